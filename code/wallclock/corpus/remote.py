"""Images straight from a store: a GET each, with threads that prefetch.

The time of `read` is then the wait for the network, less what was prefetched. The threads share the
GIL with the other stages and slow them down.
"""

import json
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from wallclock.corpus.abo.store import PermanentError, Store, TransientError, retry
from wallclock.corpus.manifest import Item
from wallclock.corpus.readers import MARKER, Reader
from wallclock.errors import ImageError
from wallclock.spec import CorpusSpec


class RemoteReader(Reader):
    """GETs what is read, and prefetches up to twice `threads` of what was announced."""

    layout = "remote"
    fetches_ahead = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        settings = json.loads((root / MARKER).read_text(encoding="utf-8"))
        self._store = Store(CorpusSpec("abo", **settings["store"]))
        self._prefix = str(settings["prefix"])
        self._pool = ThreadPoolExecutor(self._store.spec.threads, "remote-read")
        # Objects in flight or waiting to be read: bounds the memory.
        self._window = 2 * self._store.spec.threads
        # By path, in the order of announcement; threads may read them in any order.
        self._announced: dict[str, Item] = {}
        self._prefetched: dict[str, Future[bytes]] = {}
        self._lock = threading.Lock()

    def __call__(self, item: Item) -> bytes:
        """The object's bytes, checked against the manifest."""
        with self._lock:
            future = self._prefetched.pop(item.path, None)
            if future is None:
                # Read out of order: drop its prefetch.
                self._announced.pop(item.path, None)
            self._fill()
        return future.result() if future else self._get(item)

    def prefetch(self, items: Sequence[Item]) -> None:
        """Prefetch these and no others."""
        with self._lock:
            for future in self._prefetched.values():
                future.cancel()
            self._prefetched.clear()
            self._announced.clear()
        self.prefetch_more(items)

    def prefetch_more(self, items: Sequence[Item]) -> None:
        """Prefetch these after those that were announced before."""
        with self._lock:
            self._announced |= {item.path: item for item in items}
            self._fill()

    def close(self) -> None:
        """Drop what was prefetched and close the connections."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._store.close()

    def _fill(self) -> None:
        while self._announced and len(self._prefetched) < self._window:
            item = self._announced.pop(next(iter(self._announced)))
            if item.path not in self._prefetched:
                self._prefetched[item.path] = self._pool.submit(self._get, item)

    def _get(self, item: Item) -> bytes:
        try:
            return retry(partial(self._get_once, item), self._store.spec.attempts)
        except (PermanentError, TransientError) as error:
            raise ImageError("read", str(error)) from error

    def _get_once(self, item: Item) -> bytes:
        data, info = self._store.get_bytes(self._prefix + item.path, item.bytes)
        if info.sha256 != item.sha256:
            raise TransientError(f"{len(data)} bytes that are not those of the manifest")
        return data
