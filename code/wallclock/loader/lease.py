"""Batches that stay valid as long as somebody holds them: their memory is lent, not copied.

The images of a batch are an array over a buffer of the ring. numpy keeps the owner of an array's
memory alive for the array, for its views, and for what torch or DLPack make of it; the owner is a
`Lease`, and once the last of them is gone, the buffer goes back.
"""

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.errors import UserError


class Lease:
    """The owner of an array's memory; reports when it is no longer referenced."""

    __slots__ = ("__array_interface__", "_buffer", "_number", "_returned")

    def __init__(self, rows: npt.NDArray[Any], number: int, returned: deque[int]) -> None:
        self.__array_interface__ = rows.__array_interface__
        self._buffer, self._number, self._returned = rows, number, returned

    def __del__(self) -> None:
        # In whichever thread the last reference ended: an append is atomic.
        self._returned.append(self._number)


class Leases:
    """The buffers of one loader that are lent.

    Args:
        hold: batches that may be held when the next one is requested.
    """

    def __init__(self, hold: int) -> None:
        self._hold = hold
        self._lent = 0
        self._returned: deque[int] = deque()

    def lend(self, rows: npt.NDArray[Any], number: int) -> npt.NDArray[Any]:
        """The rows of buffer `number` as an array that lends them."""
        self._lent += 1
        return np.asarray(Lease(rows, number, self._returned))

    def returned(self) -> list[int]:
        """The buffers that came back since the last call.

        Raises UserError: the consumer holds too many of the others.
        """
        numbers = [self._returned.popleft() for _ in range(len(self._returned))]
        self._lent -= len(numbers)
        if self._lent > self._hold:
            raise UserError(
                f"{self._lent} batches are held at a time; keep copies, batch.images.copy(), or "
                f"allow more: output=Output(hold={2 * self._lent})"
            )
        return numbers
