"""Readers of images' bytes; those of a network GET what was announced before it is read.

The time of `read` is then the wait for the network, less what was prefetched.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

from wallclock.errors import ImageError


class Reader:
    """Reads images; belongs to the process that opened it, whose threads may share it."""

    #: Where it reads from, for labels and messages.
    layout = ""
    #: Whether announcing images with `prefetch` does anything.
    fetches_ahead = False

    def __call__(self, item: Any) -> bytes:
        """The image's bytes. Raises ImageError: they cannot be read."""
        raise NotImplementedError

    def prefetch(self, items: Sequence[Any]) -> None:
        """Prefetch these, which will be read next in this order, where the storage allows it."""

    def prefetch_more(self, items: Sequence[Any]) -> None:
        """Prefetch these after those that were announced before."""

    def stop(self) -> None:
        """Give up what is on its way."""

    def close(self) -> None:
        """Release what is open."""


#: Objects that are fetched, or wait to be read: as many as have these bytes, within these bounds.
_AHEAD_BYTES, _LEAST_AHEAD, _MOST_AHEAD = 1 << 26, 64, 1024


class PrefetchingReader(Reader):
    """Prefetches of what was announced, so that those that are late hold up few others.

    A subclass says what identifies an image (`_key`) and GETs it (`_get`).
    """

    fetches_ahead = True

    def __init__(self) -> None:
        #: Those in flight or waiting to be read: bounds the memory. By what was read so far.
        self._window = _LEAST_AHEAD
        self._n_read = self._n_bytes = 0
        # By key, in the order of announcement; threads may read them in any order.
        self._announced: dict[str, Any] = {}
        self._prefetched: dict[str, Future[bytes]] = {}
        self._lock = threading.Lock()

    def __call__(self, item: Any) -> bytes:
        """The object's bytes."""
        key = self._key(item)
        with self._lock:
            future = self._prefetched.pop(key, None)
            if future is None:
                # Read out of order: drop its prefetch.
                self._announced.pop(key, None)
            self._fill()
        try:
            data = (future or self._get(item)).result()
        except CancelledError as error:
            raise ImageError("read", "the loader was closed") from error
        self._n_read, self._n_bytes = self._n_read + 1, self._n_bytes + len(data)
        fitting = _AHEAD_BYTES * self._n_read // max(self._n_bytes, 1)
        self._window = min(max(fitting, _LEAST_AHEAD), _MOST_AHEAD)
        return data

    def prefetch(self, items: Sequence[Any]) -> None:
        """Prefetch these and no others."""
        with self._lock:
            self._prefetched.clear()
            self._announced.clear()
        self.prefetch_more(items)

    def prefetch_more(self, items: Sequence[Any]) -> None:
        """Prefetch these after those that were announced before."""
        with self._lock:
            self._announced |= {self._key(item): item for item in items}
            self._fill()

    def stop(self) -> None:
        """Give up: nothing is fetched or tried again; who waits for a GET gets its failure."""
        with self._lock:
            self._announced.clear()

    def _key(self, item: Any) -> str:
        return str(item.path)

    def _get(self, item: Any) -> Future[bytes]:
        raise NotImplementedError

    def _fill(self) -> None:
        while self._announced and len(self._prefetched) < self._window:
            item = self._announced.pop(next(iter(self._announced)))
            key = self._key(item)
            if key not in self._prefetched:
                self._prefetched[key] = self._get(item)


def failure(error: Exception) -> ImageError:
    """A failure of `read`, in the system's words."""
    return ImageError("read", getattr(error, "strerror", None) or str(error))
