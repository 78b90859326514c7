"""Pure functions over vectors: cosines, nearest neighbours."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

#: float32 products of equal vectors differ by this in different blocks.
ROUNDING = 1e-6
_SIMILARITIES = 1 << 23

Indices = npt.NDArray[np.intp]


def cosine(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Row-wise cosines of two (n, d) arrays, float64 (n,); a row of zeros equals only another."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)
    norms = lengths[0] * lengths[1]
    similarity: npt.NDArray[np.float64] = (lengths[0] == lengths[1]).astype(np.float64)
    np.divide(np.sum(x * y, axis=1), norms, out=similarity, where=norms != 0)
    return similarity


def unit_length(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The directions of (n, d) vectors, which are finite and not zero, in place."""
    # Scaled first: the squares of the largest float32 values are infinite.
    vectors /= np.abs(vectors).max(axis=1, keepdims=True)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def row_blocks(rows: Indices, n: int) -> Iterator[Indices]:
    """Rows in blocks, so that float32 similarities of a block's to `n` vectors take 32 MB."""
    size = max(1, _SIMILARITIES // n)
    for at in range(0, len(rows), size):
        yield rows[at : at + size]


def misplaced(
    a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], rows: Indices, median_cosine: float
) -> Iterator[tuple[int, int]]:
    """Yield each row whose vector in a is nearer to another row of b than to its own, and that row.

    `a`, `b`: (n, d) vectors of unit length, aligned; `rows`: which of them are tested. A row counts
    only where the two similarities differ by more than noise: twice what the median vector of a
    differs from its own in b, whose cosine is `median_cosine`.
    """
    noise = np.float64(2 * (1 - median_cosine) + ROUNDING)
    for block in row_blocks(rows, len(a)):
        similar = a[block] @ b.T
        nearest = similar.argmax(axis=1)
        at = np.arange(len(block))
        for i in np.flatnonzero(similar[at, nearest] > similar[at, block] + noise):
            yield int(block[i]), int(nearest[i])
