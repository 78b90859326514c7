"""/health: the event loop runs; /ready: messages are taken; /metrics, for Prometheus."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from wallclock.errors import UserError


@asynccontextmanager
async def answering(
    host: str, port: int, registry: CollectorRegistry, not_ready: Callable[[], str]
) -> AsyncIterator[None]:
    """Answer while the block runs; port 0: do not. `not_ready` says why not, or nothing.

    Raises UserError: the port is taken.
    """

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(request: web.Request) -> web.Response:
        reason = not_ready()
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")

    async def metrics(request: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(registry), headers=headers)

    if not port:
        yield
        return
    app = web.Application()
    app.add_routes([web.get(f"/{one.__name__}", one) for one in (health, ready, metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise UserError(f"port={port}: cannot listen on {host}: {error.strerror}") from error
        yield
    finally:
        await runner.cleanup()
