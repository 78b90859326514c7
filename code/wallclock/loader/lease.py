"""How the images of a batch leave a buffer of the ring, and when the buffer goes back.

On the host, the images are an array over the buffer. numpy keeps the owner of its memory, a
`Lease`, alive for the array, its views, and what torch or DLPack make of it; once the last of them
is gone, the buffer goes back.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.errors import UserError


class Lender:
    """Makes `batch.images` of the rows in a buffer; `convert`: of a batch, or of an image."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert
        self._returned: deque[int] = deque()

    def lend(self, rows: npt.NDArray[Any], number: int) -> Any:
        """The images in the first rows of buffer `number`, as the consumer has them."""
        raise NotImplementedError

    def returned(self) -> list[int]:
        """The buffers that came back since the last call. Raises UserError: too few of them."""
        return [self._returned.popleft() for _ in range(len(self._returned))]

    def close(self) -> None:
        """Called before the buffers end."""


class Lease:
    """The owner of an array's memory; reports when it is no longer referenced."""

    __slots__ = ("__array_interface__", "_buffer", "_number", "_returned")

    def __init__(self, rows: npt.NDArray[Any], number: int, returned: deque[int]) -> None:
        self.__array_interface__: dict[str, Any] = rows.__array_interface__
        self._buffer, self._number, self._returned = rows, number, returned

    def __del__(self) -> None:
        # In whichever thread the last reference ended: an append is atomic.
        self._returned.append(self._number)


class Leases(Lender):
    """The buffers are lent; `hold`: batches that may be held when the next one is requested."""

    def __init__(self, convert: Callable[[Any], Any], hold: int) -> None:
        super().__init__(convert)
        self._hold, self._lent = hold, 0

    def lend(self, rows: npt.NDArray[Any], number: int) -> Any:
        self._lent += 1
        return self._convert(np.asarray(Lease(rows, number, self._returned)))

    def returned(self) -> list[int]:
        """See `Lender`. Raises UserError: the consumer holds too many of the others."""
        numbers = super().returned()
        self._lent -= len(numbers)
        if self._lent > self._hold:
            raise UserError(
                f"{self._lent} batches are held at a time; keep copies, batch.images.copy(), or "
                f"allow more: output=Output(hold={2 * self._lent})"
            )
        return numbers


class OwnArrays(Lender):
    """Rows that hold an array each: the consumer gets a list of them."""

    def lend(self, rows: npt.NDArray[Any], number: int) -> Any:
        images = [self._convert(row[0]) for row in rows]
        # A buffer would keep them in memory until its rows are filled again.
        buffer = rows if rows.base is None else rows.base
        buffer[...] = None
        self._returned.append(number)
        return images


class DeviceCopies(Lender):
    """Each batch is copied to a device by `convert`; its buffer comes back once that is done."""

    _copied: Any = None

    def lend(self, rows: npt.NDArray[Any], number: int) -> Any:
        """See `Lender`. Returns before the copy has ended."""
        images, self._copied = self._convert(rows)
        self._returned.append(number)
        return images

    def returned(self) -> list[int]:
        """See `Lender`. Waits for the copy of the latest batch, not for what computes on it."""
        self.close()
        return super().returned()

    def close(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()
