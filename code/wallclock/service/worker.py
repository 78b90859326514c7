"""`wallclock serve`: one service from the command's words to its exit status."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from uvloop import new_event_loop  # less CPU time a message than the standard library's

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

#: Seconds in which messages are returned at the end.
_RETURN_S = 5.0


class Worker:
    """Serves one queue with one module; `run` once, in an event loop."""

    def __init__(self, queue: Queue, settings: ServiceSettings, module: Module) -> None:
        self._queue, self._settings, self._module = queue, settings, module
        self._stopping, self._at_once = asyncio.Event(), asyncio.Event()
        self._metrics = Metrics()
        self._said: set[tuple[bool, str]] = set()
        self._signal = 0
        # Whether the queue has refused what the service cannot go on without.
        self._refused = False

    def stop(self, number: int = 0) -> None:
        """Pull no more, finish what is held; called again, return what is held at once."""
        event(logging.INFO, "stopping", at_once=self._stopping.is_set())
        self._signal = self._signal or number
        (self._at_once if self._stopping.is_set() else self._stopping).set()

    async def run(self) -> int:
        """Serve until `stop` or a signal; the exit status of `serve`. Raises UserError."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop, number)
        queue, settings, metrics = self._queue, self._settings, self._metrics
        async with AsyncExitStack() as stack:
            stack.push_async_callback(queue.close)
            await queue.open()
            queue.on_refusal = self._refuse
            least = settings.batch + settings.downloads + TEN * settings.pulls
            bound = Bound(queue.visibility_s, least, settings.max_held)
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
            await self._listen(stack)
            event(logging.INFO, "started", queue=queue.url, visibility_s=queue.visibility_s)
            try:
                await self._serve(intake, pipeline)
            finally:
                n_left = await intake.give_back(_RETURN_S)
                event(logging.INFO, "stopped", not_returned=n_left)
        if self._refused:
            return 1
        return 128 + self._signal if n_left and self._signal else 0

    async def _serve(self, intake: Intake, pipeline: ServicePipeline) -> None:
        async with asyncio.TaskGroup() as group:
            n_pulls = self._settings.pulls
            pulls = (intake.pull(pipeline.accept, pipeline.pressed) for _ in range(n_pulls))
            running = [*pulls, intake.heartbeat(), *pipeline.tasks()]
            tasks = [group.create_task(coroutine) for coroutine in running]
            await self._stopping.wait()
            intake.stop()
            pipeline.stop()
            finished = group.create_task(intake.finish())
            finished.add_done_callback(lambda _: self._at_once.set())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._at_once.wait(), self._settings.grace_s)
            for task in (finished, *tasks):
                task.cancel()

    def _refuse(self, refusal: QueueRefusal) -> None:
        """Say it once. What is no dead letter, which redrive replaces, ends the service."""
        self._metrics.refusals.inc()
        is_burial = refusal.action == "SendMessage"
        if (is_burial, refusal.code) not in self._said:
            self._said.add((is_burial, refusal.code))
            queue = self._queue.dead_letter if is_burial else self._queue.url
            event(logging.ERROR, "refused", action=refusal.action, queue=queue, reason=str(refusal))
        if not is_burial:
            self._refused = True
            self._stopping.set()

    async def _listen(self, stack: AsyncExitStack) -> None:
        """Answer HTTP until the stack is closed; port 0: not. Raises UserError: it is taken."""
        host, port = self._settings.host, self._settings.port
        if not port:
            return
        runner = web.ServerRunner(web.Server(self._answer, access_log=None))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise UserError(f"port={port}: cannot listen on {host}: {error.strerror}") from error

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
        return runner.run(Worker(queue, settings, module).run())
