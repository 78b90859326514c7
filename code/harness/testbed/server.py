"""An HTTP/1.1 server whose own cost is small beside that of the service under test.

Requests of a connection are answered in their order, pipelined ones included. A handler's answer
is written at once; a task is made only for one that has to wait. `Expect` is ignored; HEAD, TLS,
compression and trailers are left out, and the size of a body is not limited.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http.client import responses
from typing import cast

_MAX_HEAD_BYTES = 1 << 16


@dataclass(slots=True)
class Request:
    """One request, its body whole. `path` and `query` are as sent; `keep`: the connection."""

    method: str
    path: str
    query: str
    keep: bool
    transport: asyncio.Transport
    _head: bytes
    _lower: bytes
    body: bytes = b""

    def header(self, name: str) -> str:
        """A header's value; empty if there is none."""
        key = b"\r\n%b:" % name.lower().encode()
        if (at := self._lower.find(key)) < 0:
            return ""
        end = self._lower.index(b"\r\n", at + 2)
        return self._head[at + len(key) : end].strip().decode("latin-1")


@dataclass(slots=True)
class Response:
    """An answer. `length`: the Content-Length that is declared for a body in parts; None: chunked.

    The connection is closed after a body that has another length.
    """

    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None


Handler = Callable[[Request], Response | Awaitable[Response]]


class Connection(asyncio.Protocol):
    """One client's connection. `opened` holds those that are open."""

    transport: asyncio.Transport

    def __init__(self, handler: Handler, opened: "set[Connection]") -> None:
        self._handler = handler
        self._opened = opened
        #: What was received and not answered yet, and how many bytes the next request needs.
        self._received = b""
        self._needed = 0
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the client is connected."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods alone
        self._opened.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is closed."""
        self._opened.discard(self)
        self.eof_received()

    def eof_received(self) -> None:
        """asyncio: the client is gone. What it waits for is cancelled, and changes nothing."""
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """asyncio: the client has sent something."""
        self._received = self._received + data if self._received else data
        if len(self._received) >= self._needed and self._task is None:
            self._serve()

    def _serve(self) -> None:
        """Answer what has been received whole, until an answer has to wait."""
        while self._received and not self.transport.is_closing():
            try:
                request = self._next()
            except ValueError:
                self._end(_head(Response(400), 0, keep=False), keep=False)
                return
            if request is None:
                return
            answer = self._handler(request)
            if not (isinstance(answer, Response) and isinstance(answer.body, bytes)):
                self._task = asyncio.ensure_future(self._later(answer, request.keep))
                return
            body = answer.body
            self._end(_head(answer, len(body), request.keep) + body, request.keep)

    def _next(self) -> Request | None:
        """Take the first request from what was received; None: it is not whole yet.

        Raises ValueError: it is no request.
        """
        received = self._received
        if (end := received.find(b"\r\n\r\n")) < 0:
            if len(received) > _MAX_HEAD_BYTES:
                raise ValueError
            return None
        head, stop = received[: end + 2], end + 4
        method, target, version = head[: head.index(b"\r\n")].decode("latin-1").split(" ")
        path, _, query = target.partition("?")
        lower = head.lower()
        keep = version == "HTTP/1.1" and b"\r\nconnection: close\r" not in lower
        request = Request(method, path, query, keep, self.transport, head, lower)
        if request.header("Transfer-Encoding"):
            chunks = _chunks(received, stop)
            if chunks is None:
                return None
            request.body, stop = chunks
        elif length := request.header("Content-Length"):
            if not length.isdecimal():
                raise ValueError
            start, stop = stop, stop + int(length)
            if len(received) < stop:
                self._needed = stop
                return None
            request.body = received[start:stop]
        self._received, self._needed = received[stop:], 0
        return request

    async def _later(self, answer: Response | Awaitable[Response], keep: bool) -> None:
        """Write an answer that has to wait, or whose body does; then go on."""
        try:
            response = answer if isinstance(answer, Response) else await answer
            if isinstance(body := response.body, bytes):
                self._end(_head(response, len(body), keep) + body, keep)
            else:
                n_sent = 0
                chunked = response.length is None
                self.transport.write(_head(response, response.length, keep))
                async for part in body:
                    self.transport.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                    n_sent += len(part)
                is_whole = chunked or n_sent == response.length
                self._end(b"0\r\n\r\n" if chunked else b"", keep and is_whole)
            self._task = None
            self._serve()
        except BaseException:
            self.transport.abort()
            raise

    def _end(self, data: bytes, keep: bool) -> None:
        """Write the last of an answer, unless its handler has reset the connection."""
        if not self.transport.is_closing():
            self.transport.write(data)
            if not keep:
                self.transport.close()


def _head(response: Response, length: int | None, keep: bool) -> bytes:
    status = response.status
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [f"HTTP/1.1 {status} {responses.get(status, '')}", framing]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    if not keep:
        lines.append("Connection: close")
    lines.append("\r\n")
    return "\r\n".join(lines).encode()


def _chunks(received: bytes, at: int) -> tuple[bytes, int] | None:
    """A chunked body from `at` on, and where it ends; None: it is not whole yet."""
    parts: list[bytes] = []
    while (end := received.find(b"\r\n", at)) >= 0:
        if (size := int(received[at:end].partition(b";")[0], 16)) < 0:
            raise ValueError
        start, at = end + 2, end + 4 + size
        if len(received) < at:
            break
        if not size:
            return b"".join(parts), at
        parts.append(received[start : start + size])
    return None
