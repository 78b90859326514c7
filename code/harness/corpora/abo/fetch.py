"""Fetching: threads that GET, validate and rename, and one loop that records what arrived.

Memory is bounded: a body goes to its temporary file in chunks; long bodies and images that cannot
be decoded row by row are validated one at a time; results wait in a bounded queue. Nothing blocks
for ever: sockets have timeouts, and if no object arrives for a while the fetch ends with one line.
"""

import errno
import io
import json
import math
import os
import queue
import shutil
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path

from harness.corpora.abo.store import CorpusStore
from harness.corpora.manifest import Item
from wallclock.check import check_body, read_header
from wallclock.errors import ImageError, UserError
from wallclock.fetch import PermanentError, TransientError, retry
from wallclock.fetch.s3 import CHUNK_BYTES
from wallclock.files import sha256_file
from wallclock.recipe import Limits

#: How often results are collected, in seconds, and how many may wait.
_POLL_S = 0.02
_MAX_RESULTS = 4096
#: How long busy threads are joined when the fetch ends early, in seconds.
_SHUTDOWN_TIMEOUT_S = 1.0
#: Read timeouts without a new object after which the fetch is stuck.
_STUCK_TIMEOUTS = 6
#: Refusals in a row, without one image, that mean the store and not the objects; fewer if there
#: are not so many objects, but of very few each may be gone.
_REFUSED_IN_A_ROW = 200
_MIN_REFUSED = 8
#: Bytes that stay free on the disk.
_FREE_BYTES = 64 << 20

#: The suffix of temporary names; no path of the catalogue has it.
_PART = ".part"
#: The end of a message about a run that can be resumed.
_RESUME = "what has arrived is kept, the same command goes on"


class Fetch:
    """Fetches each entry, `prefix + entry.path` of a store, to `root / entry.path`, once."""

    def __init__(
        self, store: CorpusStore, prefix: str, root: Path, limits: Limits, entries: Sequence[Item]
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._root = root
        self._limits = limits
        self._entries = entries
        self._waiting = deque(entries)
        self._n_threads = min(store.spec.threads, len(entries))
        self._results: queue.Queue[tuple[Item, Item | BaseException]] = queue.Queue(_MAX_RESULTS)
        self._large_image_lock = threading.RLock()
        self._stop = threading.Event()
        self._began = self._last_arrival = time.monotonic()
        #: Objects without a row since the last image, objects refused, and why the last was.
        self._failed = 0
        self._refused = 0
        self._reason = ""
        self._any_image = False

    def run(self, arrived: Callable[[Sequence[Item]], None]) -> dict[str, Item]:
        """Return the rows of all entries by path; `arrived` gets them as they come.

        An image that the store refuses, or that is damaged in the store itself, gets a row with
        stage and reason. Everything else is retried until it is complete.

        Raises:
            UserError: the store is unreachable, keeps failing, or the disk is full.
        """
        items: dict[str, Item] = {}
        failed: list[tuple[Item, TransientError]] = []
        # Daemons: a thread that hangs in the resolver must not keep the process alive.
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._n_threads)]
        try:
            _remove_parts(self._root)
            for thread in threads:
                thread.start()
            while len(items) + len(failed) < len(self._entries):
                # Polling costs the threads less than a wake-up for each result.
                time.sleep(_POLL_S)
                rows = []
                for entry, result in [self._results.get() for _ in range(self._results.qsize())]:
                    self._count(result)
                    if isinstance(result, Item):
                        rows.append(result)
                    elif isinstance(result, TransientError):
                        failed.append((entry, result))
                    else:
                        raise result
                items |= {row.path: row for row in rows}
                arrived(rows)
                self._check_progress()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            full = f"no space left in {self._root} ({error.strerror})"
            raise UserError(f"{full}; free some; {_RESUME}") from error
        finally:
            self._stop.set()
            deadline = time.monotonic() + _SHUTDOWN_TIMEOUT_S
            for thread in threads:
                if thread.is_alive():
                    thread.join(max(0.0, deadline - time.monotonic()))
            _remove_parts(self._root)
        if failed:
            entry, reason = failed[0]
            raise UserError(
                f"{len(failed):,} of {len(self._entries):,} objects could not be fetched from "
                f"{self._store.host}; the first, {self._prefix}{entry.path}: {reason}; {_RESUME}"
            )
        return items

    def _count(self, result: Item | BaseException) -> None:
        if not isinstance(result, Item):
            self._failed += 1
            self._reason = str(result)
            return
        self._last_arrival = time.monotonic()
        if result.failed_stage == "read":
            self._refused += 1
            self._reason = result.failed_reason
        else:
            self._failed = 0
            self._any_image = True

    def _check_progress(self) -> None:
        """Raise `UserError` if there is none, `OSError` if the disk is almost full."""
        now, host = time.monotonic(), self._store.host
        self._store.check_reachable(math.inf if self._failed else now - self._began)
        # Two failures of each thread are the store's, not an object's.
        if self._failed >= max(2 * self._n_threads, _MIN_REFUSED):
            raise UserError(f"{host} keeps failing: {self._reason}; {_RESUME}")
        max_refused = min(_REFUSED_IN_A_ROW, max(len(self._entries), _MIN_REFUSED))
        if self._refused >= max_refused and not self._any_image:
            raise UserError(
                f"{host} refused the first {self._refused} objects: {self._reason}; check "
                "corpus.bucket, corpus.endpoint and who may read there"
            )
        stuck_s = _STUCK_TIMEOUTS * self._store.spec.read_timeout_s
        if now - self._last_arrival > stuck_s:
            raise UserError(f"nothing has arrived from {host} for {stuck_s:.0f} s; {_RESUME}")
        if shutil.disk_usage(self._root).free < _FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _work(self) -> None:
        attempts = self._store.spec.attempts
        with suppress(IndexError):
            while not self._stop.is_set():
                entry = self._waiting.popleft()
                result: Item | BaseException
                try:
                    result = retry(partial(self._get, entry, set()), attempts, self._stop.wait)
                except PermanentError as error:
                    result = entry.with_failure(ImageError("read", str(error)))
                except BaseException as error:  # noqa: BLE001 - raised again by `run`
                    result = error
                if not self._stop.is_set():
                    self._results.put((entry, result))

    def _get(self, entry: Item, suspects: set[str]) -> Item:
        """GET, validate, rename.

        Without a checksum only the image itself can show corruption: an invalid one must arrive
        twice with the same digest (`suspects`).
        """
        path = self._root / entry.path
        make_folder(path.parent)
        # In the same folder: threads that all write into one folder would contend for its lock.
        temporary = path.with_name(f".{path.name}.{threading.get_native_id()}{_PART}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(temporary, flags, 0o644), "wb") as file:
            key = self._prefix + entry.path
            info = self._store.get(key, self._limits.max_bytes, file.write)
            file.flush()
            os.utime(file.fileno(), ns=(info.modified_ns, info.modified_ns))
        item = replace(
            entry, bytes=info.bytes, sha256=info.sha256, etag=info.etag, mtime_ns=info.modified_ns
        )
        large = self._large_image_lock
        try:
            with large if item.bytes > CHUNK_BYTES else nullcontext():
                data = temporary.read_bytes()
                header = read_header(data, self._limits)
                with nullcontext() if header.row_decodable else large:
                    check_body(data, header)
            item = item.with_header(header)
        except ImageError as error:
            item = item.with_failure(error)
        if not item.valid and not info.verified and info.sha256 not in suspects:
            suspects.add(info.sha256)
            raise TransientError("corrupted in transit, as it seems; the store has no checksum")
        if not self._stop.is_set():
            os.replace(temporary, path)
        return item


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist.

    Raises:
        UserError: something else is there, such as a link to a folder.
    """
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
    if folder.is_symlink() or not folder.is_dir():
        raise UserError(
            f"{folder} is no folder but a link or a file: remove it and run the same command again"
        )


def check_space(folder: Path, needed: float, purpose: str) -> None:
    """Raise `UserError` if there are fewer free bytes than needed, before any is written."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{purpose}: {needed / 1e9:,.2f} GB are needed in {folder}, {free / 1e9:,.2f} GB are "
            "free; free some, set out= to another disk, or take fewer with --n"
        )


def append(journal: io.FileIO, items: Sequence[Item]) -> None:
    """Record images that have their final names, so that a killed run resumes.

    One JSON list a line, which begins with its line feed and so ends one that was torn. A full
    disk raises `OSError`.
    """
    data = b"".join(b"\n" + json.dumps(astuple(item)).encode() for item in items)
    while data:
        data = data[journal.write(data) :]


def read_journal(path: Path) -> dict[str, Item]:
    """The images in a journal by path, the last line of each; empty if there is no journal."""
    items = {}
    with suppress(FileNotFoundError):
        for line in path.read_bytes().split(b"\n"):
            # A torn line is no JSON: its bracket is open.
            with suppress(ValueError):
                item = Item(*json.loads(line))
                items[item.path] = item
    return items


def intact_items(
    rows: Mapping[str, Item], paths: Iterable[str], root: Path, verify: bool
) -> dict[str, Item]:
    """Which of `paths` are already fetched and intact, with their rows; `rows`: by path.

    A file of another size, a link, or a missing one is out. A file whose modification time is not
    its object's is hashed. `verify` hashes every file, and drops what the store refused before.
    """

    def intact(item: Item) -> bool:
        if item.failed_stage == "read":
            return not verify
        path = root / item.path
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size == item.bytes:
                unchanged = status.st_mtime_ns == item.mtime_ns and not verify
                return unchanged or sha256_file(path) == item.sha256
        return False

    items = [rows[path] for path in paths if path in rows]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # Hashing releases the GIL.
        results = pool.map(intact, items)
        return {item.path: item for item, ok in zip(items, results, strict=True) if ok}


def _remove_parts(root: Path) -> None:
    """Remove what a killed run left under temporary names."""
    for folder in root.iterdir():
        if not folder.is_symlink():
            for part in folder.glob(f".*{_PART}"):
                part.unlink(missing_ok=True)
