"""Run a handler of HTTP requests on loopback: in an event loop, a thread or a process."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def listening(handler: Handler, port: int = 0) -> AsyncIterator[str]:
    """Answer with `handler` while the block runs; the URL. Port 0: any free one.

    A request whose client is gone is cancelled: nothing is handed to a connection that is closed.
    The handler's state outlives the listener, so that the same server can be reached again later.
    """
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True), shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


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

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    url, stop = started.result()
    try:
        yield url
    finally:
        stop()
        thread.join()


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`python -m wallclock.testbed ARGUMENTS` while the block runs: its URL, and the process.

    It ends with this process, however that ends. Raises RuntimeError: it did not start.
    """
    command = [sys.executable, "-m", "wallclock.testbed", *arguments, "--until-eof"]
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
