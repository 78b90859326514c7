"""Over HTTP: /health and /ready for who starts and stops services, /metrics for Prometheus."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from wallclock.errors import UserError


@asynccontextmanager
async def answering(
    host: str, port: int, registry: CollectorRegistry, checks: Mapping[str, Callable[[], str]]
) -> AsyncIterator[None]:
    """Answer while the block runs; port 0: do not.

    `checks`: path → what is wrong, empty for nothing. Raises UserError: the port is taken.
    """

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/metrics":
            headers = {"Content-Type": CONTENT_TYPE_LATEST}
            return web.Response(body=generate_latest(registry), headers=headers)
        if request.path not in checks:
            return web.Response(status=404)
        wrong = checks[request.path]()
        return web.Response(status=503 if wrong else 200, text=f"{wrong or 'ok'}\n")

    if not port:
        yield
        return
    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise UserError(f"port={port}: cannot listen on {host}: {error.strerror}") from error
        yield
    finally:
        await runner.cleanup()
