"""HTTP/1.1 for the test bed by aiohttp: a handler turns a request into a response."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(slots=True)
class Request:
    """One request, its body whole. `path` and `query` are as sent."""

    method: str
    path: str
    query: str
    body: bytes
    _received: web.BaseRequest

    def header(self, name: str) -> str:
        """A header's value; empty if there is none."""
        return self._received.headers.get(name, "")

    @property
    def transport(self) -> Any:
        """asyncio's transport of the connection; None once it is closed."""
        return self._received.transport


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


def serve_with(handler: Handler) -> web.Server:
    """A protocol factory for `create_server`; make it in the event loop.

    A request whose client is gone is cancelled.
    """

    async def answer(received: web.BaseRequest) -> web.StreamResponse:
        url = received.rel_url
        body = await received.content.read()
        request = Request(received.method, url.raw_path, url.raw_query_string, body, received)
        response = handler(request)
        if not isinstance(response, Response):
            response = await response
        if isinstance(response.body, bytes):
            return web.Response(
                status=response.status, body=response.body, headers=response.headers
            )
        stream = web.StreamResponse(status=response.status, headers=response.headers)
        stream.content_length = response.length
        await stream.prepare(received)
        n_sent = 0
        async for part in response.body:
            await stream.write(part)
            n_sent += len(part)
        if response.length not in (None, n_sent):
            stream.force_close()
        return stream

    return web.Server(answer, handler_cancellation=True, access_log=None, tcp_keepalive=False)
