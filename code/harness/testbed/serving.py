"""Run a handler of HTTP requests on loopback: in an event loop, a thread or a process."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
)
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager

import uvloop
from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def listening(handler: Handler, port: int = 0) -> AsyncIterator[str]:
    """Answer with `handler` while the block runs; the URL. Port 0: any free one.

    A request whose client is gone is cancelled: nothing is handed to a connection that is closed.
    The handler's state outlives the listener, so that the same server can be reached again later.
    """
    factory = web.Server(handler, handler_cancellation=True, access_log=None, tcp_keepalive=False)
    create = asyncio.get_running_loop().create_server
    server = await create(factory, "127.0.0.1", port, backlog=1024)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        while factory.connections:
            for connection in factory.connections:
                if connection.transport is not None:
                    connection.transport.abort()
            await asyncio.sleep(0)


async def send_parts(
    request: web.BaseRequest,
    parts: AsyncIterable[bytes],
    length: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Answer with a body in parts.

    `length`: the Content-Length that is declared; None: chunked. The connection is closed after a
    body of another length.
    """
    response = web.StreamResponse(headers=headers)
    response.content_length = length
    await response.prepare(request)
    n_sent = 0
    async for part in parts:
        await response.write(part)
        n_sent += len(part)
    if length not in (None, n_sent):
        response.force_close()
    return response


def run(main: Coroutine[None, None, None]) -> None:
    """`asyncio.run`, on uvloop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


@contextmanager
def serving(handler: Handler, port: int = 0) -> Iterator[str]:
    """The same in a thread with an event loop of its own. Raises OSError: the port is taken."""
    started: Future[tuple[str, Callable[[], object]]] = Future()

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        try:
            async with listening(handler, port) as url:
                started.set_result((url, lambda: loop.call_soon_threadsafe(stop.set)))
                await stop.wait()
        except OSError as error:
            started.set_exception(error)

    thread = threading.Thread(target=lambda: run(serve()), daemon=True)
    thread.start()
    url, stop = started.result()
    try:
        yield url
    finally:
        stop()
        thread.join()


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`python -m harness.testbed ARGUMENTS` while the block runs: its URL, and the process.

    It ends with this process, however that ends. Raises RuntimeError: it did not start.
    """
    command = [sys.executable, "-m", "harness.testbed", *arguments, "--until-eof"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"{' '.join(command)} did not start")
        try:
            yield url, child
        finally:
            child.kill()
