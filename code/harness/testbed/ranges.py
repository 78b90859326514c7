"""A store on this machine that answers late, and its client: ranges of files over HTTP.

It answers GET of `/<name>-<ms>/<file>` with the file, or with the range that is asked for,
the first byte so many milliseconds late: an S3 store's path-style bucket, without signatures. It
stands for a store's latency, not for its bandwidth: loopback has more than a network.
"""

import multiprocessing
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote, unquote

from harness.corpora.manifest import Item
from harness.corpora.readers import check_complete
from harness.testbed.threaded import FileHandler, ThreadedServer
from wallclock.errors import ImageError
from wallclock.fetch import Reader

_PATH = re.compile(r"/\w+-([\d.]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
#: Seconds without an answer until a request counts as failed.
_TIMEOUT_S = 30


@contextmanager
def serving(root: Path) -> Iterator[int]:
    """Serve a folder's files in a process of its own while the block runs; the port on loopback.

    It is forked, before the readers' threads start, and ends with this process.
    """
    server = RangeServer(root)
    process = multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True)
    process.start()
    server.socket.close()
    try:
        yield server.server_port
    finally:
        process.terminate()
        process.join()


class RangeServer(ThreadedServer):
    """Serves the files of a folder; ends when the process that made it was killed."""

    def __init__(self, root: Path) -> None:
        super().__init__(_RangeHandler)
        self.root = root.resolve()
        self._parent = os.getpid()

    def service_actions(self) -> None:
        """Called twice a second: end if the process that measures was killed."""
        if os.getppid() != self._parent:
            os._exit(1)


class _RangeHandler(FileHandler):
    server: RangeServer

    def answer(self) -> None:
        """The file or the range."""
        match = _PATH.fullmatch(unquote(self.path))
        path = (self.server.root / match[2]).resolve() if match else Path()
        if not match or not path.is_relative_to(self.server.root) or not path.is_file():
            self.send_error(404)
            return
        time.sleep(float(match[1]) / 1e3)
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            first, last = (int(wanted[1]), int(wanted[2])) if wanted else (0, size - 1)
            body = os.pread(file.fileno(), last - first + 1, first)
        headers = {
            "Content-Range": f"bytes {first}-{first + len(body) - 1}/{size}",
            "Content-Length": str(len(body)),
        }
        self.reply(206 if wanted else 200, headers, body)


class Ranges:
    """GETs from such a store, by any thread over a connection of its own."""

    def __init__(self, port: int, bucket: str) -> None:
        self._port = port
        self._bucket = bucket
        #: Of each thread, its connection.
        self._local = threading.local()
        self._connections: list[HTTPConnection] = []

    def __del__(self) -> None:
        for connection in self._connections:
            connection.close()

    def __call__(self, name: str, first: int, n_bytes: int) -> bytes:
        """So many bytes of a file, fewer at its end. Raises `ImageError`: of the stage `read`."""
        return self._get(name, first, n_bytes)[0]

    def size(self, name: str) -> int:
        """A file's bytes."""
        return int(self._get(name, 0, 1)[1].rpartition("/")[2])

    def _get(self, name: str, first: int, n_bytes: int) -> tuple[bytes, str]:
        local = self._local
        if not hasattr(local, "connection"):
            local.connection = HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
            self._connections.append(local.connection)
        headers = {"Range": f"bytes={first}-{first + n_bytes - 1}"}
        try:
            local.connection.request("GET", f"/{self._bucket}/{quote(name)}", headers=headers)
            response = local.connection.getresponse()
            body = response.read()
        except (OSError, HTTPException) as error:
            local.connection.close()
            raise ImageError("read", str(error)) from error
        if response.status >= 300:
            raise ImageError("read", f"{response.status} {response.reason}")
        return body, response.headers["Content-Range"]


class RangeReader(Reader):
    """One GET an image: a file, or a range of a file that holds many (`00003.tar@1536`)."""

    layout = "remote"

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges

    def __call__(self, item: Item) -> bytes:
        """The image's bytes."""
        name, _, offset = item.path.partition("@")
        return check_complete(self._ranges(name, int(offset or 0), item.bytes), item)


class RangeFile:
    """A file of the store for a library that reads files: a GET a read, none to seek."""

    closed = False

    def __init__(self, ranges: Ranges, name: str) -> None:
        self._ranges = ranges
        self._name = name
        self._at = 0
        self._size = ranges.size(name)

    def read(self, n_bytes: int) -> bytes:
        """So many bytes, fewer at the end."""
        data = self._ranges(self._name, self._at, n_bytes) if self._at < self._size else b""
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset from the start, here or the end."""
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}
        self._at = starts[whence] + offset
        return self._at

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def close(self) -> None:
        """Nothing: the connections are the store's."""
