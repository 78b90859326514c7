"""Fetching: threads GET, check and rename images; one loop records what arrived.

Every GET ends, as sockets have timeouts. A store that fails or refuses again and again ends the
fetch with one line.
"""

import io
import json
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext, suppress
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path

from harness.corpora.abo.store import CorpusStore
from harness.corpora.manifest import Item
from harness.digests import sha256_bytes
from wallclock.check import Header, check_body, read_header
from wallclock.errors import ImageError, UserError
from wallclock.fetch.retries import PermanentError, TransientError, retry
from wallclock.files import sha256_file, why_unwritable, write_bytes
from wallclock.recipe import Limits

#: Objects requested before all earlier ones are recorded.
_CHUNK = 4096
#: Refusals in a row, without one image, that mean the store and not the objects; fewer if there
#: are not so many objects, but of very few each may be gone.
_REFUSED_IN_A_ROW = 200
_MIN_REFUSED = 8
#: Bytes that stay free on the disk.
_FREE_BYTES = 64 << 20
#: The end of a message about a run that can be resumed.
_RESUME = "run the same command again to resume"


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
        self._large_image_lock = threading.Lock()
        self._stop = threading.Event()
        #: Objects that failed since the last image, and objects that were refused.
        self._failed = 0
        self._refused = 0
        self._any_image = False

    def run(self, arrived: Callable[[Item], None]) -> dict[str, Item]:
        """Return the rows of all entries by path; `arrived` gets each as it comes.

        An image that the store refuses, or that is damaged in the store itself, gets a row with
        stage and reason. Everything else is retried until it is complete.

        Raises:
            UserError: the store is unreachable, keeps failing, or the disk is full.
        """
        items: dict[str, Item] = {}
        failed: list[tuple[Item, TransientError]] = []
        for left in self._root.glob("*/.*.tmp"):  # by a run that was killed
            left.unlink()
        pool = ThreadPoolExecutor(self._store.spec.threads)
        try:
            for start in range(0, len(self._entries), _CHUNK):
                chunk = self._entries[start : start + _CHUNK]
                futures = {pool.submit(self._get, entry): entry for entry in chunk}
                for future in as_completed(futures):
                    entry = futures[future]
                    try:
                        row = future.result()
                    except TransientError as error:
                        failed.append((entry, error))
                        self._count_failure(error)
                        continue
                    self._count(row)
                    items[entry.path] = row
                    arrived(row)
        except OSError as error:
            if why := why_unwritable(error, self._root):
                raise UserError(why) from error
            raise
        finally:
            self._stop.set()
            pool.shutdown(cancel_futures=True)
        if failed:
            entry, reason = failed[0]
            raise UserError(
                f"{len(failed):,} of {len(self._entries):,} objects could not be fetched from "
                f"{self._store.host}; the first, {self._prefix}{entry.path}: {reason}; {_RESUME}"
            )
        return items

    def _count_failure(self, error: TransientError) -> None:
        """Raise `UserError` if so many objects in a row failed that the store is at fault."""
        self._failed += 1
        if self._failed >= max(2 * self._store.spec.threads, _MIN_REFUSED):
            raise UserError(f"{self._store.host} keeps failing: {error}; {_RESUME}")

    def _count(self, row: Item) -> None:
        """Raise `UserError` if the store has refused all, or the disk is almost full."""
        if row.failed_stage == "read":
            self._refused += 1
        else:
            self._failed = 0
            self._any_image = True
        most = min(_REFUSED_IN_A_ROW, max(len(self._entries), _MIN_REFUSED))
        if self._refused >= most and not self._any_image:
            raise UserError(
                f"{self._store.host} refused the first {self._refused} objects: "
                f"{row.failed_reason}; check corpus.bucket, corpus.endpoint and who may read there"
            )
        if shutil.disk_usage(self._root).free < _FREE_BYTES:
            raise UserError(f"no space left in {self._root}; free some; {_RESUME}")

    def _get(self, entry: Item) -> Item:
        get = partial(self._get_once, entry, set())
        try:
            return retry(get, self._store.spec.attempts, self._stop.wait)
        except PermanentError as error:
            return entry.with_failure(ImageError("read", str(error)))

    def _get_once(self, entry: Item, suspects: set[str]) -> Item:
        """GET, check, rename.

        Without a checksum only the image itself can show corruption: an invalid one must arrive
        twice with the same digest (`suspects`).
        """
        found = self._store.get(self._prefix + entry.path, self._limits.max_bytes)
        data, sha256 = found.data, sha256_bytes(found.data)
        item = replace(
            entry, bytes=len(data), sha256=sha256, etag=found.etag, mtime_ns=found.modified_ns
        )
        try:
            header = read_header(data, self._limits)
            # Decoded as a whole, one image may take as much memory as all the others.
            with nullcontext() if decodes_by_row(header) else self._large_image_lock:
                check_body(data, header)
            item = item.with_header(header)
        except ImageError as error:
            item = item.with_failure(error)
        if not item.valid and not found.verified and sha256 not in suspects:
            suspects.add(sha256)
            raise TransientError("corrupted in transit, as it seems; the store has no checksum")
        path = self._root / entry.path
        make_folder(path.parent)
        write_bytes(path, data, sync=False)
        os.utime(path, ns=(found.modified_ns, found.modified_ns))
        return item


def decodes_by_row(header: Header) -> bool:
    """Whether it decodes row by row; all but sequential JPEG is decoded in memory at once."""
    sequential = header.process in ("baseline", "extended") and header.scans == 1
    return sequential and header.plain_jpeg


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist.

    Raises:
        UserError: something else is there, such as a link to a folder.
    """
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
    if folder.is_symlink() or not folder.is_dir():
        raise UserError(
            f"{folder} is not a folder but a link or a file: remove it and run the command again"
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
