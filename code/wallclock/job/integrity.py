"""Are the parts of a dataset what was written?

Each start of a job looks at sizes and footers; `verify` reads every byte.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from wallclock.job.dataset import DamagedPartError, Dataset
from wallclock.job.items import CARRIES
from wallclock.job.part import ROWS

#: Parts that are checked at once: a bucket answers late, a file of a bucket is in memory.
_THREADS = 4


def check_sizes(dataset: Dataset, number: int) -> None:
    """Compare a part's sizes and columns with what they must be. Raises DamagedPartError."""
    row_file = dataset.row_file(number)
    recorded = dataset.recorded(number)
    for name in recorded:
        size = dataset.store.size(row_file, name)
        if size is None:
            raise dataset.damaged(number, name, "it is missing")
        if size != recorded[name]["bytes"]:
            raise dataset.damaged(number, name, f"{size:,} of {recorded[name]['bytes']:,} bytes")
    footer = dataset.footer(number)
    with dataset.reading(number, row_file):
        _check_columns(dataset, footer.schema.to_arrow_schema())
    dataset.failures(number)
    dataset.unreached(number)


def _check_columns(dataset: Dataset, schema: Any) -> None:
    """Raise ValueError where a column is not there, or has another type than `commit` writes."""
    identity = dataset.about["identity"]
    columns = [*ROWS.names, "vector", *identity.get(CARRIES, ())]
    if absent := set(columns) - set(schema.names):
        raise ValueError(f"it has no column {min(absent)}")
    for field in ROWS:
        if (kind := schema.field(field.name).type) != field.type:
            raise ValueError(f"its column {field.name} has the type {kind}, not {field.type}")
    kind, dim = schema.field("vector").type, identity.get("model", {}).get("dim")
    is_list = pa.types.is_fixed_size_list(kind) and kind.value_type == pa.float32()
    if not is_list or kind.list_size != (dim or kind.list_size):
        raise ValueError(f"its column vector has the type {kind}")


def check_bytes(dataset: Dataset, number: int) -> None:
    """Compare every byte of a part with its checksums. Raises DamagedPartError."""
    check_sizes(dataset, number)
    row_file = dataset.row_file(number)
    for name in dataset.recorded(number):
        with dataset.store.piece(row_file, name) as path:
            if path is None:
                raise dataset.damaged(number, name, "it is missing")
            dataset.check_file(number, name, path)


def faults(dataset: Dataset, check: Callable[[Dataset, int], None]) -> Iterator[DamagedPartError]:
    """What a check finds, part by part."""

    def fault_of(number: int) -> DamagedPartError | None:
        try:
            check(dataset, number)
        except DamagedPartError as error:
            return error
        return None

    with ThreadPoolExecutor(_THREADS) as pool:
        yield from filter(None, pool.map(fault_of, dataset.committed()))


def remove_damaged(dataset: Dataset) -> Iterator[str]:
    """Remove the parts that are not whole, with a line for each; the job makes them again."""
    for fault in [*faults(dataset, check_sizes)]:
        dataset.store.remove(fault.row_file)
        yield f"{fault.name} is damaged: {fault.reason}; the images of its part are embedded again"
