"""The HTTP server on a transport in memory: framing, order, and what ends a connection."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.testbed.server import Connection, Handler, Request, Response


class Wire(asyncio.Transport):
    """What the server has written, and whether it closed the connection."""

    def __init__(self, handler: Handler) -> None:
        super().__init__()
        self.written, self.closed = b"", False
        self.server = Connection(handler, set())
        self.server.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


def echo(request: Request) -> Response:
    said = f"{request.method} {request.path} {request.query} {request.header('X-Own')} "
    return Response(201, said.encode() + request.body)


REQUESTS = (
    b"GET /a%20b?c=%26&d= HTTP/1.1\r\nHost: x\r\nx-own:  v \r\n\r\n"
    b"POST / HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n\r\n\r\n"
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"
    b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
    b"GET /not-read HTTP/1.1\r\n\r\n"
)
ANSWERS = [b"GET /a%20b c=%26&d= v ", b"POST /   \r\n\r\n", b"POST /   abc0123456789"]


@settings(max_examples=30)
@given(st.sets(st.integers(1, len(REQUESTS) - 1)))
def test_requests_are_answered_in_order_however_they_arrive(cuts: set[int]) -> None:
    wire = Wire(echo)
    for start, end in pairwise([0, *sorted(cuts), len(REQUESTS)]):
        wire.server.data_received(REQUESTS[start:end])
    head = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n"
    expected = [head % len(body) + b"\r\n" + body for body in ANSWERS]
    last = head % 8 + b"Connection: close\r\n\r\nGET /   "
    assert wire.written == b"".join(expected) + last
    assert wire.closed


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"a" * 70_000,
    ],
)
def test_what_is_no_request_is_refused(request_: bytes) -> None:
    wire = Wire(echo)
    wire.server.data_received(request_)
    assert wire.written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert wire.closed


def test_http_1_0_is_closed() -> None:
    wire = Wire(echo)
    wire.server.data_received(b"GET / HTTP/1.0\r\n\r\n")
    assert (wire.written.count(b"201"), wire.closed) == (1, True)


def test_an_answer_that_waits_holds_back_the_next() -> None:
    async def play() -> None:
        go = asyncio.Event()

        async def slow() -> Response:
            await go.wait()
            return Response(body=b"slow")

        wire = Wire(lambda request: slow() if request.path == "/slow" else Response(204))
        wire.server.data_received(b"GET /slow HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        wire.server.data_received(b"GET /slow HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0)
        assert wire.written == b""
        go.set()
        for _ in range(4):
            await asyncio.sleep(0)
        answers = wire.written.split(b"HTTP/1.1 ")[1:]
        assert [(answer[:3], answer[-4:]) for answer in answers] == [
            (b"200", b"slow"),
            (b"204", b"\r\n\r\n"),
            (b"200", b"slow"),
        ]
        assert not wire.closed

    asyncio.run(play())


@pytest.mark.parametrize(
    ("length", "end", "closed"),
    [(None, b"chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", False)]
    + [(n, b"Content-Length: %d\r\n\r\nabc" % n, n != 3) for n in (3, 4)],
)
def test_a_body_in_parts(length: int | None, end: bytes, closed: bool) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"c"

    async def play() -> Wire:
        wire = Wire(lambda _: Response(body=parts(), length=length))
        wire.server.data_received(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0)
        return wire

    wire = asyncio.run(play())
    assert wire.written.endswith(end)
    assert wire.closed is closed


@pytest.mark.parametrize("ends", ["eof_received", "connection_lost"])
def test_a_handler_is_cancelled_when_its_client_is_gone(ends: str) -> None:
    cancelled = []

    async def wait() -> Response:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return Response()

    async def play() -> None:
        wire = Wire(lambda _: wait())
        wire.server.data_received(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0)
        if ends == "connection_lost":
            wire.server.connection_lost(None)
        else:
            wire.server.eof_received()
        await asyncio.sleep(0)
        assert (cancelled, wire.written) == ([True], b"")

    asyncio.run(play())
