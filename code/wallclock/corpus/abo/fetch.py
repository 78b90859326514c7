"""Fetching: threads that GET, check and rename, and one loop that writes down what arrived.

Memory is bounded: each thread holds one body of at most `PIECE_BYTES` (a longer one lies in its
temporary file until it is vetted), what is long or must be decoded whole is vetted one at a time,
and results wait in a bounded queue. Nothing waits for ever: sockets have timeouts, and if no object
at all arrives for a while the fetch ends with one line.
"""

from __future__ import annotations

import errno
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from wallclock.corpus.abo.journal import Journal
from wallclock.corpus.abo.pacing import RESUME, Gate, Watch, pause_s
from wallclock.corpus.abo.store import PIECE_BYTES, GoneError, Receipt, Store, TransientError
from wallclock.corpus.manifest import Item
from wallclock.corpus.validate import Header, check_body, read_header
from wallclock.errors import ImageError, UserError
from wallclock.spec import Limits

#: Passes over what is missing, each with `attempts` tries an object, and the pause between, in seconds.
_PASSES = 3
_PASS_PAUSE_S = 1.0
#: How often results are taken, in seconds, and how many may wait.
_EVERY_S = 0.02
_RESULTS = 4096
#: How long threads that are still at it are waited for when a pass ends early, in seconds.
_FAREWELL_S = 1.0

_CREWS = itertools.count()
#: How temporary names end. A path of the catalogue cannot.
_PART = ".part"

#: Called with the bytes of each image that arrived.
Arrived = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Target:
    """One image to fetch: its row in the list, and what the catalogue says of it.

    `width` and `height` are 0 where the catalogue does not know them (it has the originals').
    """

    id: str
    path: str
    key: str
    width: int = 0
    height: int = 0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of a target: an item, or why it must be tried again, or an error that ends it all."""

    target: Target
    item: Item | None = None
    reason: str = ""
    error: BaseException | None = None


def fetch(
    store: Store,
    targets: Sequence[Target],
    root: Path,
    limits: Limits,
    journal: Journal,
    arrived: Arrived,
) -> dict[str, Item]:
    """Bring every target to `root / path`; return their rows by path.

    An image that the store refuses, or that is damaged in the store itself, gets a row with stage and
    reason. Everything else is asked for until it is here.

    Raises:
        UserError: the store cannot be reached, keeps failing, or the disk is full.
    """
    found: dict[str, Item] = {}
    left, reason = list(targets), ""
    with _disk_errors(root):
        _sweep(root)
        for number in range(_PASSES):
            crew = _Crew(store, left, root, limits)
            left = []
            for outcomes in crew.outcomes():
                items = [outcome.item for outcome in outcomes if outcome.item is not None]
                # A file of two images of one path cannot be: the catalogue's paths are unique.
                found.update((item.path, item) for item in items)
                # A refusal is final only in the end: if it is the store's, the next run asks again.
                journal.append([item for item in items if item.failed_stage != "read"])
                for item in items:
                    arrived(item.bytes)
                again = [outcome for outcome in outcomes if outcome.item is None]
                left += [outcome.target for outcome in again]
                reason = again[-1].reason if again else reason
            if not left:
                break
            time.sleep((number + 1) * _PASS_PAUSE_S)
        _sweep(root)
    if left:
        raise UserError(
            f"{len(left):,} of {len(targets):,} objects could not be had from {store.address.host}; the first, "
            f"{left[0].key}: {reason}; {RESUME}"
        )
    return found


class _Crew:
    """One pass over some targets with `threads` threads."""

    def __init__(self, store: Store, targets: Sequence[Target], root: Path, limits: Limits) -> None:
        self._store = store
        self._root = root
        self._limits = limits
        self._tasks = iter(targets)
        self._total = len(targets)
        self._lock = threading.Lock()
        self._big = threading.Lock()
        self._stop = threading.Event()
        self._results: queue.Queue[_Outcome] = queue.Queue(_RESULTS)
        self._threads = min(store.address.threads, len(targets))
        self._gate = Gate(self._threads)
        # A thread of an earlier crew that is still ending must not meet this one's files.
        self._number = next(_CREWS)
        self._folders: set[str] = set()

    def outcomes(self) -> Iterator[list[_Outcome]]:
        """Every target's outcome, in the order of arrival, some at a time."""
        # Daemons: a thread that hangs in the resolver must not keep the process from ending.
        crew = [
            threading.Thread(target=self._work, args=(n,), daemon=True)
            for n in range(self._threads)
        ]
        watch = Watch(self._store, self._root, self._threads, self._total)
        try:
            for thread in crew:
                thread.start()
            done = 0
            while done < self._total:
                some = self._take()
                done += len(some)
                for outcome in some:
                    if outcome.error is not None:
                        raise outcome.error
                    watch.saw(outcome.item, outcome.reason)
                if some:
                    yield some
                watch.look()
        finally:
            self._stop.set()
            patience = time.monotonic() + _FAREWELL_S
            for thread in crew:
                if thread.is_alive():
                    thread.join(max(0.0, patience - time.monotonic()))

    def _take(self) -> list[_Outcome]:
        # Looking now and then costs the threads less than waking up for each result.
        time.sleep(_EVERY_S)
        some: list[_Outcome] = []
        with suppress(queue.Empty):
            while len(some) < _RESULTS:
                some.append(self._results.get_nowait())
        return some

    def _work(self, number: int) -> None:
        mark = f".{self._number}-{number}{_PART}"
        while not self._stop.is_set():
            with self._lock:
                target = next(self._tasks, None)
            if target is None:
                return
            try:
                outcome = self._tried(target, mark)
            except BaseException as error:  # noqa: BLE001 - it is raised again by the loop that reads the results
                outcome = _Outcome(target, error=error)
            if self._stop.is_set():
                return
            self._results.put(outcome)

    def _tried(self, target: Target, mark: str) -> _Outcome:
        reason, doubted = "", ""
        for number in range(self._store.address.attempts):
            if number and self._stop.wait(pause_s(number)):
                break
            try:
                with self._gate:
                    item, doubted = self._one(target, mark, doubted)
            except TransientError as error:
                reason = str(error)
                continue
            except GoneError as error:
                return _Outcome(target, _row(target, failed=("read", str(error))))
            if item is not None:
                return _Outcome(target, item)
            reason = "damaged on the way, by its looks; the store gives no checksum"
        return _Outcome(target, reason=reason)

    def _one(self, target: Target, mark: str, doubted: str) -> tuple[Item | None, str]:
        """GET, vet, rename. Where only the picture can tell damage, it must look the same twice (`doubted`)."""
        pieces: list[bytes] = []
        held = 0
        place = self._place(target.path)
        # Beside its place: threads that all write into one folder would wait for its lock.
        temporary = place.with_name(f".{place.name}{mark}")
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644
        )
        try:

            def write(piece: bytes) -> None:
                nonlocal held
                _write(descriptor, piece)
                held += len(piece)
                # A long one is read back when it is its turn to be vetted.
                if held <= PIECE_BYTES:
                    pieces.append(piece)

            receipt = self._store.get(target.key, self._limits.max_bytes, write)
            os.utime(descriptor, ns=(receipt.modified_ns, receipt.modified_ns))
        finally:
            os.close(descriptor)
        if receipt.bytes <= PIECE_BYTES:
            header, failed = self._vetted(b"".join(pieces), self._big)
        else:
            pieces.clear()
            with self._big:
                header, failed = self._vetted(temporary.read_bytes(), nullcontext())
        odd = failed[0] or (
            target.width
            and header
            and (header.width, header.height) != (target.width, target.height)
        )
        if odd and not receipt.verified and receipt.sha256 != doubted:
            return None, receipt.sha256
        if not self._stop.is_set():
            os.replace(temporary, place)
        return _row(target, receipt, header, failed), doubted

    def _vetted(
        self, data: bytes, alone: AbstractContextManager[object]
    ) -> tuple[Header | None, tuple[str, str]]:
        """The header, or the stage and the reason; a picture that is decoded whole waits for its turn, `alone`."""
        try:
            header = read_header(data, self._limits)
            with nullcontext() if header.streams else alone:
                check_body(data, header)
        except ImageError as error:
            return None, (error.stage, error.reason)
        return header, ("", "")

    def _place(self, path: str) -> Path:
        """Where an image goes: its folder is made, and must be a folder and no link to one."""
        place = self._root / path
        prefix = path[:2]
        if prefix not in self._folders:
            make_folder(place.parent)
            self._folders.add(prefix)
        return place


@contextmanager
def _disk_errors(root: Path) -> Iterator[None]:
    """Turn a full disk, or a file-size limit, into one line."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        _sweep(root)
        raise UserError(
            f"no space left in {root} ({error.strerror}); free some; {RESUME}"
        ) from error


def _sweep(root: Path) -> None:
    """Remove what a killed run left under temporary names."""
    for folder in root.iterdir():
        if folder.is_dir() and not folder.is_symlink():
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith(_PART):
                        Path(entry.path).unlink(missing_ok=True)


def _write(descriptor: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(descriptor, view) :]


def make_folder(folder: Path) -> None:
    """Make a folder that is none yet.

    Raises:
        UserError: something else is there, a link to a folder included.
    """
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
    if folder.is_symlink() or not folder.is_dir():
        raise UserError(
            f"{folder} is no folder but a link or a file: remove it and run the same command again"
        )


def _row(
    target: Target,
    receipt: Receipt | None = None,
    header: Header | None = None,
    failed: tuple[str, str] = ("", ""),
) -> Item:
    item = Item(
        target.id, target.path, 0, 0, 0, "", "", "", 0, 0, failed[0], " ".join(failed[1].split())
    )
    if receipt is not None:
        item = replace(
            item,
            bytes=receipt.bytes,
            sha256=receipt.sha256,
            mtime_ns=receipt.modified_ns,
            etag=receipt.etag,
        )
    if header is not None:
        kind, process, components = header.format, header.process, header.components
        item = replace(
            item,
            width=header.width,
            height=header.height,
            format=kind,
            process=process,
            components=components,
        )
    return item
