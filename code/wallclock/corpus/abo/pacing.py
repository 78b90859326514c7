"""How fast to ask, when to ask again, and when to stop asking."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
import time
from pathlib import Path

from wallclock.corpus.abo.store import Store, TransientError
from wallclock.corpus.manifest import Item
from wallclock.errors import UserError

#: The longest pause between two tries, and between two cuts of how many go at once, in seconds.
_LONGEST_PAUSE_S = 8.0
_CUT_EVERY_S = 0.5
#: No answer at all: seconds until the store counts as unreachable. No object: until it counts as stuck.
CONTACT_S = 8.0
_STUCK_TIMEOUTS = 6
#: Refusals in a row, without one image, that mean the store and not the images; fewer if there are not so many, ...
_REFUSED_IN_A_ROW = 200
#: ... but of a handful each may be gone.
_HANDFUL = 8
#: Bytes that stay free on the disk, and how often that is looked at, in seconds.
_FREE_BYTES = 64 << 20
_DISK_EVERY_S = 0.5

#: What a message ends with where nothing is lost.
RESUME = "what has arrived is kept, the same command goes on"


def pause_s(number: int) -> float:
    """Seconds to wait before try `number` (from 1): random, below a bound that doubles."""
    return random.uniform(0, min(_LONGEST_PAUSE_S, 0.25 * 2**number))


class Gate:
    """How many GETs may be under way: half as many when the store is busy, one more for each round that goes well.

    A context manager around one GET. The same adaptation as TCP's, so that several clients of one
    store find their shares.
    """

    def __init__(self, most: int) -> None:
        self._most = float(most)
        self._allowed = float(most)
        self._inside = 0
        self._last_cut = 0.0
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            while self._inside >= self._allowed:
                self._changed.wait()
            self._inside += 1

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._changed:
            self._inside -= 1
            now = time.monotonic()
            if not isinstance(error, TransientError):
                self._allowed = min(self._most, self._allowed + 1 / self._allowed)
            elif error.busy and now - self._last_cut > _CUT_EVERY_S:
                # What was under way together is refused together: that is one sign, not many.
                self._allowed, self._last_cut = max(1.0, self._allowed / 2), now
            self._changed.notify(2)


class Watch:
    """Ends a pass that gets nowhere, or that fills the disk."""

    def __init__(self, store: Store, root: Path, threads: int, total: int) -> None:
        self._store = store
        self._root = root
        self._refusals = min(_REFUSED_IN_A_ROW, max(total, _HANDFUL))
        # Every thread's failure, twice over, is the store's and not an object's.
        self._too_many = max(2 * threads, 8)
        self._stuck_s = _STUCK_TIMEOUTS * store.address.read_timeout_s
        self._began = self._last = time.monotonic()
        self._looked = 0.0
        self._failed = self._refused = 0
        self._images = False
        self._reason = ""

    def saw(self, item: Item | None, reason: str) -> None:
        """Take in what became of one target: its row, or why it has none yet."""
        if item is None:
            self._failed += 1
            self._reason = reason
            return
        self._last = time.monotonic()
        if item.failed_stage == "read":
            self._refused += 1
            self._reason = item.failed_reason
        else:
            self._failed, self._images = 0, True

    def look(self) -> None:
        """Judge.

        Raises:
            UserError: the store is not there, keeps failing, refuses everything, or gives nothing.
            OSError: the disk is almost full.
        """
        now, host = time.monotonic(), self._store.address.host
        if not self._store.answered.is_set() and (now - self._began > CONTACT_S or self._failed):
            raise unreachable(self._store)
        if self._failed >= self._too_many:
            raise UserError(f"{host} keeps failing: {self._reason}; {RESUME}")
        if self._refused >= self._refusals and not self._images:
            raise UserError(
                f"{host} refused the first {self._refused} objects: {self._reason}; check corpus.bucket, "
                "corpus.endpoint and who may read there"
            )
        if now - self._last > self._stuck_s:
            raise UserError(f"nothing has arrived from {host} for {self._stuck_s:.0f} s; {RESUME}")
        if now - self._looked > _DISK_EVERY_S:
            self._looked = now
            if shutil.disk_usage(self._root).free < _FREE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def unreachable(store: Store) -> UserError:
    """The one line for a store that does not answer."""
    return UserError(
        f"cannot reach {store.address.host}: {store.trouble or f'no answer in {CONTACT_S:g} s'}; check the network "
        "(and HTTPS_PROXY), or set corpus.endpoint to a mirror; without a network: corpus=synthetic, or "
        "corpus=folder corpus.path=DIR"
    )
