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
from urllib.parse import parse_qsl, unquote

_MAX_HEAD_BYTES = 1 << 16


@dataclass(slots=True)
class Request:
    """One request, its body whole. `target`: path and query as sent; `keep`: the connection."""

    method: str
    target: str
    keep: bool
    transport: asyncio.Transport
    _head: bytes
    _lower: bytes
    body: bytes = b""

    @property
    def path(self) -> str:
        """The target's path, decoded."""
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> dict[str, str]:
        """The target's query, decoded."""
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))

    def header(self, name: str) -> str:
        """A header's value; empty if there is none."""
        key = b"\r\n%b:" % name.lower().encode()
        start = self._lower.find(key)
        if start < 0:
            return ""
        start += len(key)
        return self._head[start : self._head.index(b"\r\n", start)].strip().decode("latin-1")


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

    _transport: asyncio.Transport

    def __init__(self, handler: Handler, opened: "set[Connection]") -> None:
        self._handler, self._opened = handler, opened
        self._received, self._needed = b"", 0
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the client is connected."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods alone
        self._opened.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is closed."""
        self._opened.discard(self)
        self.eof_received()

    def eof_received(self) -> None:
        """asyncio: the client is gone. What it waits for is cancelled, and changes nothing."""
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """Close the connection without another word."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """asyncio: the client has sent something."""
        self._received = self._received + data if self._received else data
        if len(self._received) >= self._needed and self._task is None:
            self._serve()

    def _serve(self) -> None:
        """Answer what has been received whole, until an answer has to wait."""
        while self._received and not self._transport.is_closing():
            try:
                request = self._next()
            except ValueError:
                self._write(Response(400), b"", keep=False)
                return
            if request is None:
                return
            answer = self._handler(request)
            if isinstance(answer, Response) and isinstance(answer.body, bytes):
                self._write(answer, answer.body, request.keep)
            else:
                self._task = asyncio.ensure_future(self._later(answer, request.keep))
                return

    def _next(self) -> Request | None:
        """Take the first request from what was received; None: it is not whole yet.

        Raises ValueError: it is no request.
        """
        received = self._received
        end = received.find(b"\r\n\r\n")
        if end < 0:
            if len(received) > _MAX_HEAD_BYTES:
                raise ValueError
            return None
        head, stop = received[: end + 2], end + 4
        method, target, version = head[: head.index(b"\r\n")].decode("latin-1").split(" ")
        lower = head.lower()
        keep = version == "HTTP/1.1" and b"\r\nconnection: close\r" not in lower
        request = Request(method, target, keep, self._transport, head, lower)
        if request.header("Transfer-Encoding"):
            if (chunks := _chunks(received, stop)) is None:
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
            if isinstance(response.body, bytes):
                self._write(response, response.body, keep)
            else:
                await self._write_parts(response, response.body, keep)
            self._task = None
            self._serve()
        except BaseException:
            self.close()
            raise

    def _write(self, response: Response, body: bytes, keep: bool) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(_head(response, f"Content-Length: {len(body)}", keep) + body)
        if not keep:
            self._transport.close()

    async def _write_parts(
        self, response: Response, parts: AsyncIterator[bytes], keep: bool
    ) -> None:
        length, n_sent = response.length, 0
        chunked = length is None
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
        self._transport.write(_head(response, framing, keep))
        async for part in parts:
            self._transport.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            n_sent += len(part)
        if self._transport.is_closing():
            return
        if chunked:
            self._transport.write(b"0\r\n\r\n")
        if not keep or not (chunked or n_sent == length):
            self._transport.close()


def _head(response: Response, framing: str, keep: bool) -> bytes:
    status = response.status
    lines = [f"HTTP/1.1 {status} {responses.get(status, '')}", framing]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    if not keep:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "\r\n"]).encode()


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
