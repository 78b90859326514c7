"""The table of a part: its rows with their vectors, and how it lies in a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wallclock.stages.pixels import Vectors

#: The columns beside the vector; sha256 as hexadecimal text, which every reader takes.
ROWS = pa.schema(
    [
        ("id", pa.string()),
        ("sha256", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("version", pa.string()),
    ]
)
#: Floats and digests take as many bytes compressed; only what is searched needs its range.
PARQUET: Mapping[str, Any] = {
    "row_group_size": 4096,
    "use_dictionary": False,
    "compression": {"id": "snappy", "version": "snappy"},
    "write_statistics": ["id"],
    "write_page_checksum": True,
}
#: Rows that are read at a time.
_PIECE = 1024


@dataclass
class Part:
    """One shard before its commit: n rows, vectors (n, dim) float32, the list's other columns."""

    rows: Mapping[str, Sequence[Any]]
    vectors: Vectors
    failures: Sequence[Mapping[str, Any]] = ()
    carried: Any = field(default_factory=lambda: pa.table({}))
    unreached: Sequence[Mapping[str, Any]] = ()

    @staticmethod
    def empty(dim: int, carried: Any) -> "Part":
        """One without an image, with the columns of those that carry others."""
        rows = {name: list[Any]() for name in ROWS.names}
        return Part(rows, np.empty((0, dim), np.float32), carried=carried[:0])


def table_of(part: Part) -> Any:
    """The rows of a part, each with its vector."""
    table = pa.table(dict(part.rows), schema=ROWS)
    flat = pa.array(np.ascontiguousarray(part.vectors).reshape(-1))
    kind = pa.list_(pa.field("element", flat.type, nullable=False), part.vectors.shape[1])
    table = table.add_column(1, "vector", pa.FixedSizeListArray.from_arrays(flat, type=kind))
    for column, values in zip(part.carried.schema, part.carried.columns, strict=True):
        table = table.append_column(column, values)
    return table


def read_rows(file: Any, columns: Sequence[str] | None = None) -> Any:
    """Columns of a row file. Raises ValueError, among others: they are not what was written."""
    with pq.ParquetFile(file, page_checksum_verification=True) as rows:
        names = rows.schema_arrow.names if columns is None else columns
        schema = pa.schema([rows.schema_arrow.field(name) for name in names])
        n, pieces = rows.metadata.num_rows, rows.iter_batches(_PIECE, columns=schema.names)
        # In pieces: of all rows that a footer claims Arrow would make room.
        table = pa.Table.from_batches(islice(pieces, n // _PIECE + rows.num_row_groups + 1), schema)
    if len(table) != n:
        raise ValueError(f"it has {len(table):,} rows, its footer says {n:,}")
    table.validate(full=True)
    return table
