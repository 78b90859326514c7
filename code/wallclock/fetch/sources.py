"""Where an image is, only its `Source` says: a path, a URL, its bytes, or an open file.

URLs are fetched ahead (`reader.py`); what that needs is imported when the first one is read.
"""

import os
import stat
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO

from wallclock.errors import ImageError, first_line, import_extra
from wallclock.fetch.filesystems import is_url, place_of, read_url
from wallclock.fetch.reader import PrefetchingReader, failure
from wallclock.fetch.retries import PermanentError, TransientError, is_transient
from wallclock.fetch.s3 import Bucket, NoBucketError, connect
from wallclock.recipe import Limits

#: Concurrent GETs, tries per object; seconds until a connection or a silent body is given up.
_THREADS, _ATTEMPTS = 32, 4
_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 5.0, 10.0
#: Bytes that are read from a file whose length was not looked up.
_AT_FIRST = 1 << 16
_END_OF_JPEG = b"\xff\xd9"


@dataclass(frozen=True, slots=True)
class Source:
    """One image: an id, and where its bytes are.

    `where`: a path, a URL (http, https, s3, or fsspec's), the bytes, a function that returns them,
    or a binary file, which is read from its start if it can seek. `given`: what the user gave.
    """

    id: str
    where: str | bytes | BinaryIO | Callable[[], bytes]
    given: Any = field(default=None, compare=False, repr=False)

    @property
    def remote(self) -> bool:
        """Whether it is a URL."""
        return isinstance(self.where, str) and is_url(self.where)


class SourceReader(PrefetchingReader):
    """The bytes of a `Source`, `limits.max_bytes` at most, whatever kind it is of.

    Without `fetches_ahead`, URLs are fetched when they are read.

    Calling it raises `ImageError` where they cannot be read, or are more.
    """

    layout = "sources"

    def __init__(self, limits: Limits, *, fetches_ahead: bool = True) -> None:
        super().__init__(_THREADS, _ATTEMPTS)
        self.fetches_ahead = fetches_ahead
        self._limit = limits.max_bytes
        #: Whether a file so far was longer than is read at first.
        self._long = False
        self._opening = threading.Lock()
        self._buckets: dict[str, Bucket] = {}

    def __call__(self, item: Any) -> bytes:
        """The image's bytes."""
        where = item.where
        if isinstance(where, str):
            return super().__call__(item) if is_url(where) else self._read_path(where)
        if isinstance(where, bytes):
            return self._check_length(where)
        if callable(where):
            return self._check_length(where())
        with self._opening:  # a file has one position, and two sources may share it
            if where.seekable():
                where.seek(0)
            data = where.read(self._limit + 1)
        if data is None or isinstance(data, str):
            raise ImageError("read", f"a file that gives {type(data).__name__}: open it as 'rb'")
        return self._check_length(data)

    def prefetch_more(self, items: Sequence[Any]) -> None:
        """Prefetch those that are URLs."""
        if remote := [item for item in items if item.remote]:
            super().prefetch_more(remote)

    def stop(self) -> None:
        """Give up: HTTP connections are cut off; a GET of S3 ends first."""
        super().stop()
        if "_http" in vars(self):
            self._http[0].cut_off()

    def close(self) -> None:
        """Drop what was prefetched and close the connections."""
        super().close()
        for bucket in self._buckets.values():
            bucket.close()
        if "_http" in vars(self):
            self._http[0].pool.clear()

    def _read_path(self, path: str) -> bytes:
        try:
            # Without O_NONBLOCK, a pipe without a writer would never open.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise failure(error) from error
        try:
            # Each call releases the GIL, and has to wait for it: small files, whose last bytes are
            # the end of a JPEG, are read by one. A long one is read into as much as it needs.
            most = max(self._length(descriptor) if self._long else 0, _AT_FIRST)
            data = os.read(descriptor, most + 1)
            if len(data) > most or not data.endswith(_END_OF_JPEG):
                data = self._rest(descriptor, data)
        except OSError as error:
            raise failure(error) from error
        finally:
            os.close(descriptor)
        return self._check_length(data)

    def _rest(self, descriptor: int, data: bytes) -> bytes:
        """The whole file, of which `data` is the beginning."""
        length = self._length(descriptor)
        self._long = self._long or length > _AT_FIRST
        while len(data) < length and (rest := os.read(descriptor, length - len(data))):
            data += rest
        return data

    def _length(self, descriptor: int) -> int:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ImageError("read", "not a regular file")
        if status.st_size > self._limit:
            raise self._too_long(status.st_size)
        return status.st_size

    def _check_length(self, data: bytes) -> bytes:
        if len(data) > self._limit:
            raise self._too_long(len(data))
        return data

    def _too_long(self, length: int) -> ImageError:
        return ImageError("read", f"{length:,} bytes, over the limit of {self._limit:,}")

    def _key(self, item: Source) -> str:
        return str(item.where)

    def _get_once(self, item: Source) -> bytes:
        url = place_of(str(item.where))
        if url.startswith("s3://"):
            return self._get_s3(url)
        if url.startswith(("http://", "https://")):
            return self._get_http(url)
        if not is_url(url):
            return self._read_path(url)
        return self._within_limit(read_url(url, self._limit + 1))

    def _get_s3(self, url: str) -> bytes:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        with self._opening:
            if bucket not in self._buckets:
                client = connect(
                    f"s3://{bucket}",
                    connections=_THREADS,
                    connect_timeout_s=_CONNECT_TIMEOUT_S,
                    read_timeout_s=_READ_TIMEOUT_S,
                )
                self._buckets[bucket] = Bucket(client, bucket)
        try:
            return self._buckets[bucket].get_bytes(key, self._limit)[0]
        except NoBucketError as error:
            fix = "check AWS_DEFAULT_REGION, AWS_ENDPOINT_URL"
            raise PermanentError(f"no such bucket; {fix}") from error

    def _get_http(self, url: str) -> bytes:
        with self._opening:
            connections, errors = self._http
            if self._closing.is_set():
                raise TransientError("the loader was closed")
        try:
            response = connections.pool.request("GET", url, preload_content=False)
            try:
                return self._body(response)
            finally:
                # A complete answer has given its connection back; any other one takes it along.
                response.close()
        except errors.LocationValueError as error:
            raise PermanentError(first_line(error)) from error
        except errors.HTTPError as error:
            raise TransientError(first_line(error)) from error

    @cached_property
    def _http(self) -> tuple[Any, Any]:
        """The connections, and the module with their errors."""
        urllib3 = import_extra("urllib3", "an image behind http", "s3")
        from wallclock.fetch.connections import Connections

        timeout = urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S)
        # Failures are tried again by `retry`, which the loader can stop.
        retries = urllib3.Retry(connect=0, read=0, status=0, other=0, redirect=5)
        connections = Connections(maxsize=_THREADS, timeout=timeout, retries=retries)
        return connections, urllib3.exceptions

    def _body(self, response: Any) -> bytes:
        if is_transient(response.status):
            raise TransientError(f"HTTP {response.status}")
        if response.status != 200:
            raise PermanentError(f"HTTP {response.status}")
        data = self._within_limit(response.read(self._limit + 1))
        if self._closing.is_set():  # what was cut off may look complete
            raise TransientError("the loader was closed")
        return data

    def _within_limit(self, data: bytes) -> bytes:
        if len(data) > self._limit:
            raise PermanentError(f"more bytes than the limit of {self._limit:,}")
        return data
