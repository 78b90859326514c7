"""A store on this machine that answers late, and its reader: ranges of files over HTTP.

It answers GET of `/<name>-<ms>/<file>` with the file, or with the range that is asked for, the
first byte so many milliseconds late. It stands for a store's latency, not for its bandwidth:
loopback has more than a network.
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
        self.reply(206 if wanted else 200, {"Content-Length": str(len(body))}, body)


class RangeReader(Reader):
    """One GET an image: a file, or a range of a file that holds many (`00003.tar@1536`).

    Each thread has a connection of its own. `bucket`: `<name>-<ms>`.
    """

    layout = "remote"

    def __init__(self, port: int, bucket: str) -> None:
        self._port = port
        self._bucket = bucket
        #: Of each thread, its connection.
        self._local = threading.local()
        self._connections: list[HTTPConnection] = []

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()

    def __call__(self, item: Item) -> bytes:
        """The image's bytes. Raises `ImageError`: of the stage `read`."""
        name, _, offset = item.path.partition("@")
        first = int(offset or 0)
        headers = {"Range": f"bytes={first}-{first + item.bytes - 1}"}
        local = self._local
        if not hasattr(local, "connection"):
            local.connection = HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
            self._connections.append(local.connection)
        try:
            local.connection.request("GET", f"/{self._bucket}/{quote(name)}", headers=headers)
            response = local.connection.getresponse()
            body = response.read()
        except (OSError, HTTPException) as error:
            local.connection.close()
            raise ImageError("read", str(error)) from error
        if response.status >= 300:
            raise ImageError("read", f"{response.status} {response.reason}")
        return check_complete(body, item)
