"""No vector with a NaN or an infinity leaves: not as a row, nor in a callback.

Half precision ends at 65,504, which the layers of some models exceed for some images.
"""

from collections import deque

import numpy as np

from wallclock.errors import ImageError, UserError
from wallclock.stages.pixels import Vectors

#: A job goes on while at most this share of the last images, at least so many, has no vector.
_MOST, _IMAGES = 0.1, 256


def rows_not_finite(vectors: Vectors) -> list[int]:
    """The rows of (n, dim) vectors that have a NaN or an infinity."""
    finite = np.isfinite(vectors)
    rows: list[int] = [] if finite.all() else np.flatnonzero(~finite.all(axis=1)).tolist()
    return rows


def not_finite(dtype: str, setting: str = "dtype") -> ImageError:
    """The failure of such a row, of a network in `dtype`; `setting`: what chooses that."""
    cure = "the model's weights are damaged" if dtype == "fp32" else f"set {setting}=fp32"
    return ImageError("forward", f"not finite in {dtype}; {cure}")


class FiniteRows:
    """What `rows_not_finite` says of a job's batches, until it is true of too many images."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._batches = deque[tuple[int, int]]()
        self._n = self._n_failed = 0

    def failed(self, vectors: Vectors) -> list[int]:
        """See `rows_not_finite`. Raises UserError: the dtype does not suffice for the model."""
        rows = rows_not_finite(vectors)
        self._batches.append((len(vectors), len(rows)))
        self._n, self._n_failed = self._n + len(vectors), self._n_failed + len(rows)
        while self._n - self._batches[0][0] >= _IMAGES:
            n, n_failed = self._batches.popleft()
            self._n, self._n_failed = self._n - n, self._n_failed - n_failed
        if self._n >= _IMAGES and self._n_failed > _MOST * self._n:
            share = f"{self._n_failed} of the last {self._n} vectors"
            raise UserError(f"{share} are {not_finite(self._dtype).reason}")
        return rows
