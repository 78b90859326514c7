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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from harness.corpora.manifest import Item
from harness.corpora.readers import complete
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
    server = _Server(("127.0.0.1", 0), _Handler)
    server.root = root.resolve()
    process = multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True)
    process.start()
    server.socket.close()
    try:
        yield server.server_port
    finally:
        process.terminate()
        process.join()


class _Server(ThreadingHTTPServer):
    root: Path
    #: Connections that wait to be accepted: all readers begin at once.
    request_queue_size = 1024

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._parent = os.getpid()

    def service_actions(self) -> None:
        """Called twice a second: end if the process that measures was killed."""
        if os.getppid() != self._parent:
            os._exit(1)


class _Handler(BaseHTTPRequestHandler):
    """One thread a connection, which is kept."""

    protocol_version = "HTTP/1.1"
    # Headers and body leave together, and at once.
    wbufsize, disable_nagle_algorithm = 1 << 16, True
    server: _Server

    def do_GET(self) -> None:
        """The file or the range."""
        found = _PATH.fullmatch(unquote(self.path))
        path = (self.server.root / found[2]).resolve() if found else Path()
        if not found or not path.is_relative_to(self.server.root) or not path.is_file():
            self.send_error(404)
            return
        time.sleep(float(found[1]) / 1e3)
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            first, last = (int(wanted[1]), int(wanted[2])) if wanted else (0, size - 1)
            body = os.pread(file.fileno(), last - first + 1, first)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{size}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a line a request would take longer than the request."""


class Ranges:
    """GETs from such a store, by any thread over a connection of its own."""

    def __init__(self, port: int, bucket: str) -> None:
        self._port, self._bucket, self._of_thread = port, bucket, threading.local()
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
        own = self._of_thread
        if not hasattr(own, "connection"):
            own.connection = HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
            self._connections.append(own.connection)
        wanted = {"Range": f"bytes={first}-{first + n_bytes - 1}"}
        try:
            own.connection.request("GET", f"/{self._bucket}/{quote(name)}", headers=wanted)
            response = own.connection.getresponse()
            body = response.read()
        except (OSError, HTTPException) as error:
            own.connection.close()
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
        return complete(self._ranges(name, int(offset or 0), item.bytes), item)


class RangeFile:
    """A file of the store for a library that reads files: a GET a read, none to seek."""

    closed = False

    def __init__(self, ranges: Ranges, name: str) -> None:
        self._ranges, self._name, self._at, self._size = ranges, name, 0, ranges.size(name)

    def read(self, n_bytes: int) -> bytes:
        """So many bytes, fewer at the end."""
        data = self._ranges(self._name, self._at, n_bytes) if self._at < self._size else b""
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset from the start, here or the end."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def close(self) -> None:
        """Nothing: the connections are the store's."""
