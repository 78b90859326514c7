"""Images straight from a store: a GET each, with threads ahead of the one that waits.

The time that `read` takes is then the wait for the network, less what was fetched ahead. The
threads share the interpreter with the other stages and cost them some of theirs.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from wallclock.corpus.abo.pacing import pause_s
from wallclock.corpus.abo.store import Address, GoneError, Store, TransientError
from wallclock.corpus.manifest import Item
from wallclock.errors import ImageError

#: Objects that may be in flight or waiting to be read, in threads: what bounds the memory.
_AHEAD = 2


class RemoteReader:
    """GETs what is asked for, and up to twice `threads` of what was announced."""

    layout = "remote"

    def __init__(self, about: Path) -> None:
        plain = json.loads(about.read_text(encoding="utf-8"))
        self._store = Store(Address(**plain["address"]))
        self._folder = str(plain["folder"])
        self._pool = ThreadPoolExecutor(self._store.address.threads, "remote-read")
        self._window = _AHEAD * self._store.address.threads
        # By path, in the order of announcement. Threads may take their images in any.
        self._announced: dict[str, Item] = {}
        self._ahead: dict[str, Future[bytes]] = {}
        self._lock = threading.Lock()

    def __call__(self, item: Item) -> bytes:
        """The object's bytes, checked against the manifest."""
        with self._lock:
            future = self._ahead.pop(item.path, None)
            if future is None:
                # Out of turn: nobody would take what was fetched ahead of it any more.
                self._announced.pop(item.path, None)
            self._fill()
        return future.result() if future else self._get(item)

    def expect(self, items: Sequence[Item]) -> None:
        """Begin to fetch these, and no others."""
        with self._lock:
            for future in self._ahead.values():
                future.cancel()
            self._ahead.clear()
            self._announced = {item.path: item for item in items}
            self._fill()

    def expect_too(self, items: Sequence[Item]) -> None:
        """Fetch these after what was announced before."""
        with self._lock:
            self._announced |= {item.path: item for item in items}
            self._fill()

    def close(self) -> None:
        """Drop what was fetched ahead and close the connections."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._store.close()

    def _fill(self) -> None:
        while self._announced and len(self._ahead) < self._window:
            path = next(iter(self._announced))
            item = self._announced.pop(path)
            if path not in self._ahead:
                self._ahead[path] = self._pool.submit(self._get, item)

    def _get(self, item: Item) -> bytes:
        reason = ""
        for number in range(self._store.address.attempts):
            if number:
                time.sleep(pause_s(number))
            try:
                data, receipt = self._store.get_bytes(self._folder + item.path, item.bytes)
            except GoneError as error:
                raise ImageError("read", str(error)) from error
            except TransientError as error:
                reason = str(error)
                continue
            if receipt.sha256 == item.sha256:
                return data
            reason = f"{len(data)} bytes that are not those of the manifest"
        raise ImageError("read", reason)
