"""Fetching: threads that GET, validate and rename, and one loop that records what arrived.

Memory is bounded: a body goes to its temporary file in chunks; long bodies and images that cannot
be decoded row by row are validated one at a time; results wait in a bounded queue. Nothing blocks
for ever: sockets have timeouts, and if no object arrives for a while the fetch ends with one line.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from wallclock.corpus.abo.local import make_folder
from wallclock.corpus.abo.pacing import RESUME, AdaptiveLimiter, StallDetector
from wallclock.corpus.abo.plan import Entry
from wallclock.corpus.abo.store import CHUNK_BYTES, PermanentError, Store, TransientError, retry
from wallclock.corpus.manifest import Item
from wallclock.corpus.validate import Header, check_body, read_header
from wallclock.errors import ImageError, UserError
from wallclock.spec import Limits

#: Passes over what is missing, each with `attempts` tries an object, and the pause in between.
_PASSES = 3
_PASS_PAUSE_S = 1.0
#: How often results are collected, in seconds, and how many may wait.
_POLL_S = 0.02
_MAX_RESULTS = 4096
#: How long busy threads are joined when a pass ends early, in seconds.
_SHUTDOWN_TIMEOUT_S = 1.0

#: The suffix of temporary names; no path of the catalogue has it.
_PART = ".part"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """An image's row, or why it must be retried, or an error that ends the fetch."""

    entry: Entry
    item: Item | None = None
    reason: str = ""
    error: BaseException | None = None


@dataclass(frozen=True)
class Job:
    """What is fetched: `prefix + entry.path` from the store to `root / entry.path`."""

    store: Store
    prefix: str
    root: Path
    limits: Limits


def fetch(
    job: Job, entries: Sequence[Entry], arrived: Callable[[Sequence[Item]], None]
) -> dict[str, Item]:
    """Fetch every entry; return their rows by path, which `arrived` gets as they come.

    An entry's width and height are 0 where the image's size is not known beforehand. An image that
    the store refuses, or that is damaged in the store itself, gets a row with stage and reason.
    Everything else is retried until it is complete.

    Raises:
        UserError: the store is unreachable, keeps failing, or the disk is full.
    """
    items: dict[str, Item] = {}
    missing, reason = list(entries), ""
    try:
        _remove_parts(job.root)
        for number in range(1, _PASSES + 1):
            pool = _WorkerPool(job, missing)
            missing = []
            for outcomes in pool.outcomes():
                rows = [outcome.item for outcome in outcomes if outcome.item is not None]
                items |= {item.path: item for item in rows}
                arrived(rows)
                failed = [outcome for outcome in outcomes if outcome.item is None]
                missing += [outcome.entry for outcome in failed]
                reason = failed[-1].reason if failed else reason
            if not missing:
                break
            time.sleep(number * _PASS_PAUSE_S)
    except OSError as error:
        # A full disk, or a file-size limit.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        reason = f"no space left in {job.root} ({error.strerror})"
        raise UserError(f"{reason}; free some; {RESUME}") from error
    finally:
        _remove_parts(job.root)
    if missing:
        raise UserError(
            f"{len(missing):,} of {len(entries):,} objects could not be fetched from "
            f"{job.store.config.host}; the first, {job.prefix}{missing[0].path}: {reason}; {RESUME}"
        )
    return items


class _WorkerPool:
    """One pass over some entries with `threads` threads."""

    def __init__(self, job: Job, entries: Sequence[Entry]) -> None:
        self._job = job
        self._entries, self._total = iter(entries), len(entries)
        self._entries_lock, self._large_image_lock = threading.Lock(), threading.RLock()
        self._stop = threading.Event()
        self._results: queue.Queue[_Outcome] = queue.Queue(_MAX_RESULTS)
        self._n_threads = min(job.store.config.threads, len(entries))
        self._limiter = AdaptiveLimiter(self._n_threads)
        self._folders: set[str] = set()

    def outcomes(self) -> Iterator[list[_Outcome]]:
        """Every entry's outcome, in batches, in the order of arrival."""
        # Daemons: a thread that hangs in the resolver must not keep the process alive.
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._n_threads)]
        stall = StallDetector(self._job.store, self._job.root, self._n_threads, self._total)
        try:
            for thread in threads:
                thread.start()
            done = 0
            while done < self._total:
                # Polling costs the threads less than a wake-up for each result.
                time.sleep(_POLL_S)
                batch: list[_Outcome] = []
                with suppress(queue.Empty):
                    while len(batch) < _MAX_RESULTS:
                        batch.append(self._results.get_nowait())
                done += len(batch)
                for outcome in batch:
                    if outcome.error is not None:
                        raise outcome.error
                    stall.record(outcome.item, outcome.reason)
                if batch:
                    yield batch
                stall.check()
        finally:
            self._stop.set()
            deadline = time.monotonic() + _SHUTDOWN_TIMEOUT_S
            for thread in threads:
                if thread.is_alive():
                    thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while not self._stop.is_set():
            with self._entries_lock:
                entry = next(self._entries, None)
            if entry is None:
                return
            try:
                outcome = self._fetch_with_retries(entry)
            except BaseException as error:  # noqa: BLE001 - raised again by `outcomes`
                outcome = _Outcome(entry, error=error)
            if self._stop.is_set():
                return
            self._results.put(outcome)

    def _fetch_with_retries(self, entry: Entry) -> _Outcome:
        suspects: set[str] = set()
        attempts = self._job.store.config.attempts
        try:
            item = retry(lambda: self._fetch_once(entry, suspects), attempts, self._stop.wait)
        except TransientError as error:
            return _Outcome(entry, reason=str(error))
        except PermanentError as error:
            refused = Item(entry.id, entry.path).with_failure(ImageError("read", str(error)))
            return _Outcome(entry, refused)
        return _Outcome(entry, item)

    def _fetch_once(self, entry: Entry, suspects: set[str]) -> Item:
        """GET, validate, rename.

        Without a checksum only the image itself can show corruption: one that is invalid, or not
        of the expected size, must arrive twice with the same digest (`suspects`).
        """
        path = self._job.root / entry.path
        if entry.path[:2] not in self._folders:
            make_folder(path.parent)
            self._folders.add(entry.path[:2])
        # In the same folder: threads that all write into one folder would contend for its lock.
        temporary = path.with_name(f".{path.name}.{threading.get_native_id()}{_PART}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with self._limiter, open(os.open(temporary, flags, 0o644), "wb") as file:
            key, max_bytes = self._job.prefix + entry.path, self._job.limits.max_bytes
            info = self._job.store.get(key, max_bytes, file.write)
            file.flush()
            os.utime(file.fileno(), ns=(info.modified_ns, info.modified_ns))
        item = Item(entry.id, entry.path, info.bytes, sha256=info.sha256, etag=info.etag)
        item, header = self._validate(replace(item, mtime_ns=info.modified_ns), temporary)
        size = (entry.width, entry.height)
        odd = header is None or (entry.width and (header.width, header.height) != size)
        if odd and not info.verified and info.sha256 not in suspects:
            suspects.add(info.sha256)
            raise TransientError("corrupted in transit, as it seems; the store has no checksum")
        if not self._stop.is_set():
            os.replace(temporary, path)
        return item

    def _validate(self, item: Item, temporary: Path) -> tuple[Item, Header | None]:
        """The completed row and the header, None for a damaged image."""
        large = self._large_image_lock
        try:
            with large if item.bytes > CHUNK_BYTES else nullcontext():
                data = temporary.read_bytes()
                header = read_header(data, self._job.limits)
                with nullcontext() if header.row_decodable else large:
                    check_body(data, header)
        except ImageError as error:
            return item.with_failure(error), None
        return header.annotate(item), header


def _remove_parts(root: Path) -> None:
    """Remove what a killed run left under temporary names."""
    for folder in root.iterdir():
        if not folder.is_symlink():
            for part in folder.glob(f".*{_PART}"):
                part.unlink(missing_ok=True)
