"""`wallclock serve`: one service from the command's words to its exit status."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from wallclock.errors import UserError
from wallclock.service.callbacks import CallbackSender
from wallclock.service.client import Downloader
from wallclock.service.intake import Intake
from wallclock.service.interface import Module
from wallclock.service.leases import Bound
from wallclock.service.logs import event, set_up
from wallclock.service.metrics import Metrics
from wallclock.service.pipeline import ServicePipeline
from wallclock.service.settings import ServiceSettings, read
from wallclock.service.sqs import TEN, Queue, QueueRefusal

try:
    from uvloop import new_event_loop  # less CPU time a message than the standard library's
except ImportError:
    new_event_loop = None  # type: ignore[assignment]

#: Seconds in which messages are returned at the end.
_RETURN_S = 5.0


class Worker:
    """Serves one queue with one module; `run` once, in an event loop."""

    def __init__(self, queue: Queue, settings: ServiceSettings, module: Module) -> None:
        self._queue, self._settings, self._module = queue, settings, module
        self._stopping, self._at_once = asyncio.Event(), asyncio.Event()
        self._metrics = Metrics()
        self._said: set[tuple[bool, str]] = set()
        #: Whether the queue has refused what the service cannot go on without.
        self.refused: bool = False

    def stop(self) -> None:
        """Pull no more, finish what is held; called again, return what is held at once."""
        event(logging.INFO, "stopping", at_once=self._stopping.is_set())
        (self._at_once if self._stopping.is_set() else self._stopping).set()

    async def run(self) -> int:
        """Serve until `stop`; how many messages were not settled or returned. Raises UserError."""
        queue, settings, metrics = self._queue, self._settings, self._metrics
        async with AsyncExitStack() as stack:
            stack.push_async_callback(queue.close)
            await queue.open()
            queue.on_refusal = self._refuse
            visibility_s = queue.visibility_s
            least = settings.batch + settings.downloads + TEN * settings.pulls
            bound = Bound(visibility_s, least, settings.max_held)
            intake = Intake(queue, bound, metrics, settings)
            pipeline = ServicePipeline(
                self._module,
                intake,
                await stack.enter_async_context(Downloader(settings)),
                await stack.enter_async_context(CallbackSender(settings)),
                settings,
                metrics,
            )
            stack.callback(pipeline.close)
            await stack.enter_async_context(self._answering(settings.host, settings.port))
            event(logging.INFO, "started", queue=queue.url, visibility_s=visibility_s)
            try:
                await self._serve(intake, pipeline, settings.pulls)
            finally:
                n_left = await intake.give_back(_RETURN_S)
                event(logging.INFO, "stopped", not_returned=n_left)
            return n_left

    async def _serve(self, intake: Intake, pipeline: ServicePipeline, n_pulls: int) -> None:
        async with asyncio.TaskGroup() as group:
            pulls = (intake.pull(pipeline.accept, pipeline.pressed) for _ in range(n_pulls))
            running = [*pulls, intake.heartbeat(), *pipeline.tasks()]
            tasks = [group.create_task(coroutine) for coroutine in running]
            await self._stopping.wait()
            intake.stop()
            pipeline.stop()
            finished = asyncio.ensure_future(intake.finish())
            at_once = asyncio.ensure_future(self._at_once.wait())
            grace_s = self._settings.grace_s
            await asyncio.wait(
                (finished, at_once), timeout=grace_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in (finished, at_once, *tasks):
                task.cancel()

    def _refuse(self, refusal: QueueRefusal) -> None:
        """Say it once. What is no dead letter, which redrive replaces, ends the service."""
        self._metrics.refusals.inc()
        is_burial = refusal.action == "SendMessage"
        if (is_burial, refusal.code) not in self._said:
            self._said.add((is_burial, refusal.code))
            queue = self._queue.dead_letter if is_burial else self._queue.url
            fields = {"action": refusal.action, "queue": queue, "reason": str(refusal)}
            event(logging.ERROR, "refused", **fields)
        if not is_burial:
            self.refused = True
            self._stopping.set()

    @asynccontextmanager
    async def _answering(self, host: str, port: int) -> AsyncIterator[None]:
        """Answer HTTP meanwhile; port 0: not. Raises UserError: it is taken."""
        if not port:
            yield
            return
        runner = web.ServerRunner(web.Server(self._answer, access_log=None))
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port).start()
            except OSError as error:
                why = f"port={port}: cannot listen on {host}: {error.strerror}"
                raise UserError(why) from error
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/metrics":
            headers = {"Content-Type": CONTENT_TYPE_LATEST}
            return web.Response(body=generate_latest(self._metrics.registry), headers=headers)
        if request.path == "/ready" and self._stopping.is_set():
            return web.Response(status=503, text="stopping\n")
        if request.path == "/ready" and not self._queue.reachable:
            return web.Response(status=503, text="the queue is unreachable\n")
        is_known = request.path in ("/health", "/ready")
        return web.Response(text="ok\n") if is_known else web.Response(status=404)


def serve(words: Sequence[str]) -> int:
    """Serve a queue until SIGTERM or SIGINT; 0, or 128 + the signal if messages were not returned.

    1: the queue refuses to be served any longer; the log says why. A second signal returns what is
    held at once. `words`: as typed. Raises UserError: a setting, a model or a queue.
    """
    sys.path.insert(0, os.getcwd())  # where a user's module is
    url, settings, make_module = read(words)
    set_up(settings.log)
    queue = Queue(url, settings.visibility_s)  # before the module, which may load long
    module = make_module()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run_until_signal(Worker(queue, settings, module)))


async def run_until_signal(worker: Worker) -> int:
    """The exit status of `serve`."""
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        worker.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    stuck = await worker.run()
    if worker.refused:
        return 1
    return 128 + received[0] if stuck and received else 0
