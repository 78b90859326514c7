"""Columns of millions of texts, without an object for each."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: Rows that are looked at together: a bound on the memory.
CHUNK = 65_536
#: What `repr` writes between two elements of a list, less their quotes.
_BETWEEN = {"string": "', '", "binary": b"', b'"}


class _Flat(NamedTuple):
    """Texts in one piece of memory: `data` uint8, the first byte of each, and how long it is."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


def repr_of(column: Any) -> bytes:
    """`repr(column.to_pylist())` in UTF-8, of a chunked column of string or binary.

    Texts of printable ASCII, without quotes and backslashes, are joined by Arrow.
    """
    array = column.combine_chunks()
    between = _BETWEEN.get(str(column.type))
    if between is None or array.null_count or not len(array) or not _is_plain(_flat(array).data):
        return repr(array.to_pylist()).encode()
    ends = pa.array([0, len(array)], pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(ends, array), pa.scalar(between, column.type))
    prefix = b"['" if isinstance(between, str) else b"[b'"
    text: bytes = joined[0].as_buffer().to_pybytes()
    return prefix + text + b"']"


def repeated(column: Any) -> tuple[str, int] | None:
    """A text that is there more than once, and how often; None: all are distinct. None is empty.

    A sorted column is compared with itself. Of another, 64 bits of hash a row are sorted, in 16
    bytes per row, and only texts with equal hashes are compared.
    """
    if pc.all(pc.less(column[:-1], column[1:])).as_py() is not False:
        return None
    weights = np.random.default_rng(0).integers(0, 1 << 64, 256, np.uint64)
    hashes = np.empty(len(column), np.uint64)
    for at in range(0, len(column), CHUNK):
        hashes[at : at + CHUNK] = _hashes(_flat(column[at : at + CHUNK].combine_chunks()), weights)
    ordered = np.sort(hashes)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    counts = pc.value_counts(column.filter(pa.array(np.isin(hashes, twice))))
    several = counts.filter(pc.greater(counts.field("counts"), 1))
    if not len(several):
        return None
    return several[0]["values"].as_py(), several[0]["counts"].as_py()


def _flat(array: Any) -> _Flat:
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    flat = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    starts = ends.astype(np.int64) - ends[0]
    return _Flat(flat, starts[:-1], np.diff(starts))


def _is_plain(data: npt.NDArray[np.uint8]) -> bool:
    """Whether `repr` writes all bytes as they are."""
    if not len(data):
        return True
    is_printable = data.min() >= ord(" ") and data.max() <= ord("~")
    return bool(is_printable and not (data == ord("'")).any() and not (data == ord("\\")).any())


def _hashes(texts: _Flat, weights: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A sum over the bytes of each text: byte × a random number of its place (multilinear hashing).

    Carter and Wegman, "Universal classes of hash functions", 1979. Places repeat after as many
    bytes as there are weights; equal hashes of other texts only cost a comparison.
    """
    places = np.arange(len(texts.data)) - np.repeat(texts.starts, texts.lengths)
    turns = (places // len(weights)).astype(np.uint64) + np.uint64(1)
    products = (
        (texts.data.astype(np.uint64) + np.uint64(1)) * weights[places % len(weights)] * turns
    )
    hashes: npt.NDArray[np.uint64] = np.add.reduceat(products, texts.starts)
    return hashes
