"""Images from a network: GETs with retries, by threads that fetch what was announced.

The time of `read` is then the wait for the network, less what was prefetched. The threads share the
GIL with the other stages and slow them down.
"""

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from wallclock.corpus.readers import Reader
from wallclock.errors import ImageError

T = TypeVar("T")

#: The longest pause between two tries, in seconds.
_MAX_BACKOFF_S = 8.0


class TransientError(Exception):
    """A failed GET that a retry may mend."""


class PermanentError(Exception):
    """A GET that the store refuses for good: no such key, forbidden."""


def retry(call: Callable[[], T], attempts: int, pause: Callable[[float], object] = time.sleep) -> T:
    """Call until no `TransientError` is raised, `attempts` times at most, and back off in between.

    `pause` waits for so many seconds; a true result means to give up.
    """
    for number in range(1, attempts):
        try:
            return call()
        except TransientError:
            if pause(_backoff_s(number)):
                raise
    return call()


async def retry_async(
    call: Callable[[], Awaitable[T]],
    attempts: int,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """As `retry`, in an event loop; to give up, cancel it."""
    for number in range(1, attempts):
        try:
            return await call()
        except TransientError:
            await pause(_backoff_s(number))
    return await call()


def _backoff_s(number: int) -> float:
    """A random time below a bound that doubles with each try."""
    return random.uniform(0, min(_MAX_BACKOFF_S, 0.25 * 2**number))


class PrefetchingReader(Reader):
    """GETs what is read, and prefetches up to twice `threads` of what was announced.

    A subclass says what identifies an image (`_key`) and GETs it once (`_get_once`).
    """

    fetches_ahead = True

    def __init__(self, root: Path, threads: int, attempts: int) -> None:
        super().__init__(root)
        self._attempts = attempts
        self._pool = ThreadPoolExecutor(threads, "remote-read")
        # Objects in flight or waiting to be read: bounds the memory.
        self._window = 2 * threads
        # By key, in the order of announcement; threads may read them in any order.
        self._announced: dict[str, Any] = {}
        self._prefetched: dict[str, Future[bytes]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()

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
            return future.result() if future else self._get(item)
        except CancelledError as error:
            raise ImageError("read", "the loader was closed") from error

    def prefetch(self, items: Sequence[Any]) -> None:
        """Prefetch these and no others."""
        with self._lock:
            for future in self._prefetched.values():
                future.cancel()
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
        self._closing.set()
        with self._lock:
            self._announced.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Drop what was prefetched; a GET on its way ends first."""
        self.stop()
        self._pool.shutdown(wait=True)

    def _key(self, item: Any) -> str:
        return str(item.path)

    def _get_once(self, item: Any) -> bytes:
        raise NotImplementedError

    def _fill(self) -> None:
        while self._announced and len(self._prefetched) < self._window:
            item = self._announced.pop(next(iter(self._announced)))
            key = self._key(item)
            if key not in self._prefetched:
                self._prefetched[key] = self._pool.submit(self._get, item)

    def _get(self, item: Any) -> bytes:
        try:
            return retry(partial(self._get_once, item), self._attempts, self._closing.wait)
        except (PermanentError, TransientError) as error:
            raise ImageError("read", str(error)) from error
