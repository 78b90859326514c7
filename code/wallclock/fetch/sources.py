"""Where an image is, only its `Source` says: a path, a URL, its bytes, or an open file.

URLs may be announced to what reads them: the time of `read` is then the wait for the network, less
what was fetched ahead. What URLs need is imported when the first one is read.
"""

import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from wallclock.errors import ImageError, import_extra
from wallclock.fetch.reach import Reach
from wallclock.fetch.urls import REMOTE, UNKNOWN, is_url, place_of
from wallclock.recipe import Limits

if TYPE_CHECKING:
    from wallclock.fetch.remote import Remote

#: Images that are announced, or fetched and wait to be read, at most.
MOST_AHEAD = 1024
#: Tries of an image that was not announced.
_ATTEMPTS = 4
#: Images that are fetched, or wait to be read: as many as have these bytes, and these at least.
_AHEAD_BYTES, _LEAST_AHEAD = 1 << 26, 64


class Reader:
    """Reads images; belongs to the process that opened it, whose threads may share it."""

    #: Where it reads from, for labels and messages.
    layout = ""
    #: Bytes of a file at most.
    max_bytes: int = sys.maxsize
    #: Whether announcing images with `prefetch` does anything.
    fetches_ahead = False

    def __call__(self, item: Any) -> bytes:
        """The image's bytes. Raises ImageError: they cannot be read."""
        raise NotImplementedError

    def place(self, item: Any) -> str | bytes | None:
        """Its path, or its bytes, of an image that others may read; None: of any other."""
        return None

    def prefetch(self, items: Sequence[Any]) -> None:
        """Fetch these, in this order, after those that were announced before."""

    def stop(self) -> None:
        """Give up what is on its way."""

    def close(self) -> None:
        """Release what is open."""


def failure(error: Exception) -> ImageError:
    """A failure of `read`, in the system's words."""
    return ImageError("read", getattr(error, "strerror", None) or str(error))


@dataclass(frozen=True, slots=True)
class Source:
    """One image: an id, and where its bytes are.

    `where`: a path, a URL (http, https, s3, file), the bytes, a binary file, which is read
    from its start if it can seek, or a function of what is in memory. `given`: what the user gave.
    """

    id: str
    where: str | bytes | BinaryIO | Callable[[], Any]
    given: Any = field(default=None, compare=False, repr=False)

    @property
    def remote(self) -> bool:
        """Whether it is a URL that is fetched."""
        where = self.where
        return isinstance(where, str) and is_url(where) and place_of(where).startswith(REMOTE)


class SourceReader(Reader):
    """The bytes of a `Source`, `limits.max_bytes` at most, whatever kind it is of.

    URLs that were announced are fetched ahead: those that are late hold up few others. Without
    `fetches_ahead`, they are fetched when they are read. Calling it raises `ImageError`.
    """

    layout = "sources"

    def __init__(self, limits: Limits, *, fetches_ahead: bool = True) -> None:
        self.fetches_ahead = fetches_ahead
        self._limits = limits
        self.max_bytes: int = limits.max_bytes
        # Who reads one image waits for it for a shorter time than a job does.
        self._reach = Reach(limits.give_up_s, 0 if fetches_ahead else _ATTEMPTS)
        #: How many may be in flight or wait to be read, by what was read so far.
        self._window = _LEAST_AHEAD
        self._n_read = self._n_bytes = 0
        #: By URL, in the order of announcement; threads may read them in any order.
        self._announced: dict[str, Source] = {}
        self._prefetched: dict[str, Future[bytes]] = {}
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._closing = threading.Event()
        self._remote: Remote | None = None

    def __call__(self, item: Any) -> Any:
        """The image's bytes; or what a function returns in their place."""
        where = item.where
        if isinstance(where, str):
            return self._read_url(item) if is_url(where) else self._read_path(where)
        if isinstance(where, bytes):
            return self._check_length(where)
        if callable(where):
            made = where()
            return self._check_length(made) if isinstance(made, bytes) else made
        with self._opening:  # a file has one position, and two sources may share it
            if where.seekable():
                where.seek(0)
            data = where.read(self.max_bytes + 1)
        if data is None or isinstance(data, str):
            raise ImageError("read", f"a file that gives {type(data).__name__}: open it as 'rb'")
        return self._check_length(data)

    def place(self, item: Any) -> str | bytes | None:
        """See `Reader`: what is no URL and no function."""
        where = item.where
        is_local = isinstance(where, bytes) or (isinstance(where, str) and not is_url(where))
        return where if is_local else None

    def prefetch(self, items: Sequence[Any]) -> None:
        """Fetch those that are URLs."""
        with self._lock:
            self._announced |= {item.where: item for item in items if item.remote}
            self._fill()

    def stop(self) -> None:
        """Give up: connections are closed."""
        with self._lock:
            self._announced.clear()
        self._closing.set()
        if self._remote:
            self._remote.stop()

    def close(self) -> None:
        """Drop what was prefetched and close the connections."""
        self.stop()
        if self._remote:
            self._remote.close()

    def _read_path(self, path: str) -> bytes:
        try:
            # Without O_NONBLOCK, a pipe without a writer would never open.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise failure(error) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ImageError("read", "not a regular file")
            if status.st_size > self.max_bytes:
                raise self._too_long(status.st_size)
            data = os.read(descriptor, status.st_size)
            while len(data) < status.st_size and (
                rest := os.read(descriptor, status.st_size - len(data))
            ):
                data += rest
        except OSError as error:
            raise failure(error) from error
        finally:
            os.close(descriptor)
        return data

    def _check_length(self, data: bytes) -> bytes:
        if len(data) > self.max_bytes:
            raise self._too_long(len(data))
        return data

    def _too_long(self, length: int) -> ImageError:
        return ImageError("read", f"{length:,} bytes, over the limit of {self.max_bytes:,}")

    def _read_url(self, item: Source) -> bytes:
        place = place_of(str(item.where))
        if place.startswith(REMOTE):
            return self._fetched(item)
        if is_url(place):
            raise ImageError("read", UNKNOWN)
        return self._read_path(place)

    def _fetched(self, item: Source) -> bytes:
        key = str(item.where)
        with self._lock:
            future = self._prefetched.pop(key, None)
            if future is None:
                self._announced.pop(key, None)  # read out of order
            self._fill()
        try:
            data = (future or self._get(item)).result()
        except CancelledError as error:
            raise ImageError("read", "the loader was closed") from error
        self._n_read, self._n_bytes = self._n_read + 1, self._n_bytes + len(data)
        fitting = _AHEAD_BYTES * self._n_read // max(self._n_bytes, 1)
        self._window = min(max(fitting, _LEAST_AHEAD), MOST_AHEAD)
        return data

    def _fill(self) -> None:
        while self._announced and len(self._prefetched) < self._window:
            key = next(iter(self._announced))
            item = self._announced.pop(key)
            if key not in self._prefetched:
                self._prefetched[key] = self._get(item)

    def _get(self, item: Source) -> Future[bytes]:
        with self._opening:
            if self._remote is None:
                import_extra("pycurl", "an image behind a URL", "s3")
                from wallclock.fetch.remote import Remote

                self._remote = Remote(self._limits, self._reach, expects_some=self.fetches_ahead)
                if self._closing.is_set():  # meanwhile
                    self._remote.stop()
            return self._remote.get(place_of(str(item.where)))
