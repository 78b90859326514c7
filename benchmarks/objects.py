"""A server of objects in memory, over HTTP and as much of S3 as its clients ask for.

The last part of a key names a file of the folder; whatever comes before it makes another object of
the same bytes. It answers faster than its clients ask, so that a benchmark measures these.
"""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from hashlib import md5
from pathlib import Path
from typing import cast

import uvloop

_END = b"\r\n\r\n"
_RANGE = re.compile(rb"\r\nrange: *bytes=(\d+)-(\d*)", re.IGNORECASE)
_MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def serving(folder: Path, pause_s: float = 0) -> Iterator[str]:
    """The URL of a process that serves the files of a folder, each after a pause."""
    command, pipe = [sys.executable, "-m", __name__, str(folder), f"{pause_s}"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


class Connection(asyncio.Protocol):
    """Answers GET and HEAD. `objects`: by name the body, and the headers that are of it."""

    def __init__(self, objects: dict[bytes, tuple[bytes, str]], pause_s: float) -> None:
        self._objects, self._pause_s, self._waiting = objects, pause_s, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._write = cast(asyncio.Transport, transport).writelines

    def data_received(self, data: bytes) -> None:
        """Answer every request that is whole."""
        *requests, self._waiting = (self._waiting + data).split(_END)
        for request in requests:
            if self._pause_s:
                loop = asyncio.get_running_loop()
                loop.call_later(self._pause_s, self._write, self._answer(request))
            else:
                self._write(self._answer(request))

    def _answer(self, request: bytes) -> tuple[bytes, ...]:
        method, target, _ = request.split(b" ", 2)
        name = target.partition(b"?")[0].rpartition(b"/")[2]
        if name not in self._objects:
            return (_MISSING,)
        body, headers = self._objects[name]
        head, part = "HTTP/1.1 200 OK", body
        if wanted := _RANGE.search(request):
            first, last = int(wanted[1]), min(int(wanted[2] or len(body)), len(body) - 1)
            part = body[first : last + 1]
            head = f"HTTP/1.1 206 Partial\r\nContent-Range: bytes {first}-{last}/{len(body)}"
        head += f"\r\nContent-Length: {len(part)}{headers}"
        return head.encode() + _END, b"" if method == b"HEAD" else part


async def _serve(folder: Path, pause_s: float) -> None:
    objects, now = {}, formatdate(usegmt=True)
    for path in folder.iterdir():
        body = path.read_bytes()
        tag = md5(body, usedforsecurity=False).hexdigest()
        objects[path.name.encode()] = body, f'\r\nETag: "{tag}"\r\nLast-Modified: {now}'
    create = asyncio.get_running_loop().create_server
    server = await create(lambda: Connection(objects, pause_s), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    # Standard input ends with the process that wants the objects, however that ends.
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), float(sys.argv[2])))
