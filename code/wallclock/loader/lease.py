"""How the images of a batch leave a buffer of the ring, and when the buffer goes back.

On the host, the images are an array over the buffer. numpy keeps the owner of an array's memory
alive for the array, for its views, and for what torch or DLPack make of it; the owner is a `Lease`,
and once the last of them is gone, the buffer goes back. A batch that is copied to a device, or has
arrays of their own, is the consumer's anyway.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.errors import UserError


class Lender:
    """Makes `batch.images` of the rows in a buffer."""

    def lend(self, rows: npt.NDArray[Any], number: int) -> Any:
        """The images in the first rows of buffer `number`, as the consumer has them."""
        raise NotImplementedError

    def returned(self) -> list[int]:
        """The buffers that came back since the last call. Raises UserError: too few of them."""
        raise NotImplementedError

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
    """The buffers of one loader that are lent.

    `hold`: batches that may be held when the next one is requested. `convert`: an array to what the
    consumer gets, over the same memory.
    """

    def __init__(self, hold: int, convert: Callable[[npt.NDArray[Any]], Any]) -> None:
        self._hold, self._convert = hold, convert
        self._lent = 0
        self._returned: deque[int] = deque()

    def lend(self, rows: npt.NDArray[Any], number: int) -> Any:
        self._lent += 1
        return self._convert(np.asarray(Lease(rows, number, self._returned)))

    def returned(self) -> list[int]:
        """See `Lender`. Raises UserError: the consumer holds too many of the others."""
        numbers = [self._returned.popleft() for _ in range(len(self._returned))]
        self._lent -= len(numbers)
        if self._lent > self._hold:
            raise UserError(
                f"{self._lent} batches are held at a time; keep copies, batch.images.copy(), or "
                f"allow more: output=Output(hold={2 * self._lent})"
            )
        return numbers


class OwnArrays(Lender):
    """Rows that hold an array each: the consumer gets a list of them, as `convert` makes them."""

    def __init__(self, convert: Callable[[npt.NDArray[Any]], Any]) -> None:
        self._convert = convert
        self._returned: list[int] = []

    def lend(self, rows: npt.NDArray[Any], number: int) -> Any:
        images = [self._convert(row[0]) for row in rows]
        # A buffer would keep them in memory until its rows are filled again.
        buffer = rows if rows.base is None else rows.base
        buffer[...] = None
        self._returned.append(number)
        return images

    def returned(self) -> list[int]:
        numbers, self._returned = self._returned, []
        return numbers


class DeviceCopies(Lender):
    """Each batch is copied to a device by `copy`; its buffer comes back once that is done."""

    def __init__(self, copy: Callable[[Any], tuple[Any, Any]]) -> None:
        self._copy = copy
        self._queued: deque[tuple[int, Any]] = deque()

    def lend(self, rows: npt.NDArray[Any], number: int) -> Any:
        """See `Lender`. Returns before the copy has ended."""
        images, copied = self._copy(rows)
        self._queued.append((number, copied))
        return images

    def returned(self) -> list[int]:
        """See `Lender`. Waits for the copy of the latest batch, not for what computes on it."""
        self.close()
        numbers = [number for number, _ in self._queued]
        self._queued.clear()
        return numbers

    def close(self) -> None:
        for _, copied in self._queued:
            copied.synchronize()
