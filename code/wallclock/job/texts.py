"""Columns of millions of texts, without an object for each."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Rows that are looked at together: a bound on the memory.
CHUNK = 65_536
T = TypeVar("T")


def chunks(rows: Iterable[T], most: int = CHUNK) -> Iterator[list[T]]:
    """Rows in lists of `most`, the last of what is left."""
    waiting = iter(rows)
    while some := list(islice(waiting, most)):
        yield some


def add_to_digest(digest: Any, column: Any) -> None:
    """Add the values of an Arrow column to one of hashlib's, however they lie in chunks."""
    for at in range(0, len(column), CHUNK):
        digest.update(_bytes_of(column[at : at + CHUNK].combine_chunks()))


def _bytes_of(array: Any) -> bytes:
    """The lengths and the bytes of texts; of other values, and of nulls, what Python prints."""
    if array.type not in (pa.string(), pa.binary()) or array.null_count:
        return repr(array.to_pylist()).encode()
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return np.diff(ends).tobytes() + memoryview(data or b"")[ends[0] : ends[-1]]


def repeated(column: Any) -> tuple[str, int] | None:
    """A text that is there more than once, and how often; None: all are distinct. None is empty.

    Only a column that is not sorted is counted, in a hash table of Arrow's.
    """
    if pc.all(pc.less(column[:-1], column[1:])).as_py() is not False:
        return None
    counts = pc.value_counts(column)
    several = counts.filter(pc.greater(counts.field("counts"), 1))
    if not len(several):
        return None
    return several[0]["values"].as_py(), several[0]["counts"].as_py()
