"""A server of images over HTTP and S3's GETs that fails at random, killed and started again.

Object n is a picture of its own. A few never come whole (`fate`). Each of the others comes when it
is asked for, or something of `_WEATHER` does. As a program: `PORT SEED LOG [tokens]`. It appends to
LOG `whole N` for each object that it gave whole, and `refused N`: with `tokens`, a session token is
the Unix time at which it ends, and a GET with one that has ended is refused.
"""

import asyncio
import contextlib
import hashlib
import random
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from tests import making
from tests.conftest import ROOT

#: Hosts of one machine; nothing listens at the last one.
HOSTS = [f"127.0.0.{number}" for number in range(1, 6)]
_DEAD_HOST = "127.0.0.9"
#: What never comes whole, with its share, and what the reason says of it.
FATES = {
    "NoSuchKey": (0.02, "404"),
    "cut": (0.01, "truncated"),
    "loop": (0.01, "redirects"),
    "SlowDown": (0.005, "503"),
    "dead host": (0.005, "no connection"),
}
_BAD_SHARE = 0.25
#: What comes instead of an object, and how often beside the others. The last two take ten seconds
#: each, for which those behind it in the list wait, too.
_WEATHER = {"SlowDown": 30, "TooManyRequests": 30, "reset": 30, "cut off": 30, "long": 30}
_WEATHER |= {"redirect": 30, "drip": 1, "silence": 1}
_ERRORS = {
    "ExpiredToken": "403 Forbidden",
    "NoSuchKey": "404 Not Found",
    "SlowDown": "503 Slow Down",
    "TooManyRequests": "429 Too Many Requests",
}
_ERROR = b"<Error><Code>%s</Code></Error>"
_SILENCE_S = 30


def fate(number: int, s3: bool = False) -> str:
    """Why an object never comes whole; empty if it does."""
    draw = random.Random(number).random()
    for name, (share, _) in FATES.items():
        draw -= share
        if draw < 0:
            return "" if s3 and name in ("loop", "dead host") else name
    return ""


@lru_cache(maxsize=256)
def picture(number: int) -> bytes:
    """The bytes of an object."""
    return making.jpeg(40, 30, number)


def url(number: int, port: int) -> str:
    """Where an object is, over HTTP."""
    host = _DEAD_HOST if fate(number) == "dead host" else HOSTS[number % len(HOSTS)]
    return f"http://{host}:{port}/bucket/{number}"


class Server:
    """One process of the server. `log`: all that its processes have done so far."""

    def __init__(self, log: Path, seed: int, *options: str) -> None:
        self.log, self._seed, self._options = log, seed, options
        self.log.touch()
        with socket.create_server((HOSTS[0], 0)) as free:
            self.port = free.getsockname()[1]

    def start(self) -> None:
        """Start it, again with other weather, and wait until it listens."""
        self._seed += 1
        words = [f"{self.port}", f"{self._seed}", str(self.log), *self._options]
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.communicate()

    def logged(self, what: str) -> set[int]:
        """The objects of such lines."""
        lines = (line.split() for line in self.log.read_text().splitlines())
        return {int(number) for word, number in lines if word == what}


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """The server, running; killed at the end."""
    server.start()
    try:
        yield server
    finally:
        server.kill()


class _Weather:
    """What one process answers."""

    def __init__(self, seed: int, log: Path, uses_tokens: bool) -> None:
        self._random, self._uses_tokens = random.Random(seed), uses_tokens
        self._log = log.open("a", buffering=1)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, until one ends it."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await self._answer((await reader.readuntil(b"\r\n\r\n")).decode(), writer):
                pass
        writer.close()

    async def _answer(self, request: str, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection is kept."""
        path = request.split(" ", 2)[1]
        number = int(re.sub(r".*/|\?.*", "", path))
        what = fate(number, self._uses_tokens) or self._draw(path)
        if self._uses_tokens and not _is_valid(request):
            self._log.write(f"refused {number}\n")
            what = "ExpiredToken"
        body = picture(number)
        if what in _ERRORS:
            return await _send(writer, _ERRORS[what], _ERROR % what.encode(), "Retry-After: 1")
        if what in ("loop", "redirect"):
            return await _send(writer, "302 Found", b"", f"Location: {path}?again")
        if what in ("reset", "silence"):
            await asyncio.sleep(_SILENCE_S if what == "silence" else 0)
            _reset(writer)
            return False
        if what == "drip":
            return await _drip(writer, body)
        if what == "cut":
            return await _send(writer, "200 OK", body[: len(body) // 2])
        if what == "cut off":
            return await _send(writer, "200 OK", body[: len(body) // 2], length=len(body))
        sent = body + bytes(100) if what == "long" else body
        is_kept = await _send(writer, "200 OK", sent, length=len(body))
        self._log.write(f"whole {number}\n")
        return is_kept

    def _draw(self, path: str) -> str:
        """What comes of a GET; empty for the object."""
        if self._random.random() > _BAD_SHARE:
            return ""
        what = self._random.choices([*_WEATHER], [*_WEATHER.values()])[0]
        return "" if what == "redirect" and (self._uses_tokens or path.endswith("?again")) else what


def _is_valid(request: str) -> bool:
    token = re.search(r"x-amz-security-token: *(\d+)", request, re.IGNORECASE)
    return token is not None and int(token[1]) > time.time()


async def _send(
    writer: asyncio.StreamWriter, status: str, body: bytes, *headers: str, length: int | None = None
) -> bool:
    """Answer; the connection is kept if the length is the body's."""
    tag = hashlib.md5(body, usedforsecurity=False).hexdigest()
    n = len(body) if length is None else length
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {n}", f'ETag: "{tag}"', *headers)
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()
    return n == len(body)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close the connection with a TCP reset."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _drip(writer: asyncio.StreamWriter, body: bytes) -> bool:
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    for at in range(_SILENCE_S):
        writer.write(body[at : at + 1])
        await writer.drain()
        await asyncio.sleep(1)
    return False


async def _serve(port: int, weather: _Weather) -> None:
    server = await asyncio.start_server(weather.connected, HOSTS, port, backlog=1024)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    port, seed, log, *options = sys.argv[1:]
    asyncio.run(_serve(int(port), _Weather(int(seed), Path(log), bool(options))))
