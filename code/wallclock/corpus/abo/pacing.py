"""How many GETs run at once, and when a fetch gives up."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from pathlib import Path

from wallclock.corpus.abo import store as stores
from wallclock.corpus.abo.store import Store, TransientError
from wallclock.corpus.manifest import Item
from wallclock.errors import UserError

#: Seconds between two cuts of the concurrency.
_CUT_INTERVAL_S = 0.5
#: Read timeouts without a new object after which the fetch is stuck.
_STUCK_TIMEOUTS = 6
#: Refusals in a row, without one image, that mean the store and not the objects; fewer if there
#: are not so many objects, but of very few each may be gone.
_REFUSED_IN_A_ROW = 200
_MIN_REFUSED = 8
#: Bytes that stay free on the disk.
_FREE_BYTES = 64 << 20

#: The end of a message about a run that can be resumed.
RESUME = "what has arrived is kept, the same command goes on"


class AdaptiveLimiter:
    """Bounds concurrent GETs by additive increase and multiplicative decrease, as TCP does.

    A context manager around one GET: throttling halves the limit, a good round adds one.
    """

    def __init__(self, limit: int) -> None:
        self._max = self.limit = float(limit)
        self._active = 0
        self._last_cut = 0.0
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            while self._active >= self.limit:
                self._changed.wait()
            self._active += 1

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        with self._changed:
            self._active -= 1
            now = time.monotonic()
            if not isinstance(error, TransientError):
                self.limit = min(self._max, self.limit + 1 / self.limit)
            elif error.throttled and now - self._last_cut > _CUT_INTERVAL_S:
                # Concurrent GETs are throttled together: that counts once.
                self.limit, self._last_cut = max(1.0, self.limit / 2), now
            self._changed.notify(2)


class StallDetector:
    """Ends a pass that makes no progress, or that fills the disk."""

    def __init__(self, store: Store, root: Path, threads: int, total: int) -> None:
        self._store, self._root = store, root
        self._max_refused = min(_REFUSED_IN_A_ROW, max(total, _MIN_REFUSED))
        # Two failures of each thread are the store's, not an object's.
        self._max_failed = max(2 * threads, 8)
        self._stuck_s = _STUCK_TIMEOUTS * store.config.read_timeout_s
        self._began = self._last_arrival = time.monotonic()
        self._failed = self._refused = 0
        self._any_image, self._reason = False, ""

    def record(self, item: Item | None, reason: str) -> None:
        """Count one outcome: an image's row, or why it has none yet."""
        if item is None:
            self._failed, self._reason = self._failed + 1, reason
            return
        self._last_arrival = time.monotonic()
        if item.failed_stage == "read":
            self._refused, self._reason = self._refused + 1, item.failed_reason
        else:
            self._failed, self._any_image = 0, True

    def check(self) -> None:
        """Raise `UserError` if there is no progress, `OSError` if the disk is almost full."""
        now, host = time.monotonic(), self._store.config.host
        overdue = now - self._began > stores.CONNECT_DEADLINE_S
        if not self._store.reachable.is_set() and (overdue or self._failed):
            raise self._store.unreachable()
        if self._failed >= self._max_failed:
            raise UserError(f"{host} keeps failing: {self._reason}; {RESUME}")
        if self._refused >= self._max_refused and not self._any_image:
            raise UserError(
                f"{host} refused the first {self._refused} objects: {self._reason}; check "
                "corpus.bucket, corpus.endpoint and who may read there"
            )
        if now - self._last_arrival > self._stuck_s:
            raise UserError(f"nothing has arrived from {host} for {self._stuck_s:.0f} s; {RESUME}")
        if shutil.disk_usage(self._root).free < _FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
