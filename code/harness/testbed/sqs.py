"""A server that SQS clients talk to unchanged: JSON protocol, long polling, a journal on disk."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import orjson
from aiohttp import web

from harness.testbed.api import Queues
from harness.testbed.faults import CONTROL
from harness.testbed.queues import Json, SqsError

_READS = {"GetQueueUrl", "GetQueueAttributes"}


class SqsServer:
    """Answers boto3 and others whose `endpoint_url` it is.

    Args:
        journal: every call that may change the state is appended to this file, and what it holds
            already is replayed first. A killed process loses nothing that it has answered; a power
            cut may (no fsync). It is never shortened.
        clock: the queues' time in Unix seconds. A test that turns it calls `wake`.
    """

    def __init__(self, journal: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._queues = Queues()
        self._clock = clock
        #: Deliveries of messages, to any client.
        self.n_delivered = 0
        #: Per queue: set as soon as a message is there, for those who wait for one.
        self._arrivals: dict[str, asyncio.Event] = {}
        self._journal = journal
        if journal is not None and journal.exists():
            self._replay(journal)

    def _replay(self, journal: Path) -> None:
        with journal.open("r+b") as file:
            for line in file:
                if not line.endswith(b"\n"):  # killed while it was written, so never answered
                    file.truncate(journal.stat().st_size - len(line))
                    break
                now, action, params = orjson.loads(line)
                self._queues.call(action, params, now)

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """One request of the protocol AWS JSON 1.0; GET of `CONTROL`: the count of deliveries."""
        if request.path == CONTROL:
            return web.Response(body=orjson.dumps({"delivered": self.n_delivered}))
        action = request.headers["X-Amz-Target"].removeprefix("AmazonSQS.")
        try:
            answer = await self.call(action, orjson.loads(await request.read()))
        except SqsError as error:
            reason = {"__type": f"com.amazonaws.sqs#{error.code}", "message": str(error)}
            return _respond(reason, 400)
        if "QueueUrl" in answer:
            answer["QueueUrl"] = f"http://{request.host}{answer['QueueUrl']}"
        return _respond(answer)

    async def call(self, action: str, params: Json) -> Json:
        """One call now; a `ReceiveMessage` waits until a message is there or its time is over."""
        deadline = float("inf")
        while True:
            now = self._clock()
            answer = self._apply(action, params, now)
            if action != "ReceiveMessage" or answer:
                return answer
            queue = self._queues.queue(params)
            deadline = min(deadline, now + params.get("WaitTimeSeconds", 0))
            if now >= deadline:
                return answer
            arrival = self._arrivals.setdefault(queue.name, asyncio.Event())
            with suppress(TimeoutError):
                async with asyncio.timeout(min(deadline, queue.due_s()) - now):
                    await arrival.wait()

    def wake(self) -> None:
        """Let everyone who waits look again: the clock was turned."""
        for name in list(self._arrivals):
            self._arrivals.pop(name).set()

    def _apply(self, action: str, params: Json, now: float) -> Json:
        # An empty answer to a poll changes nothing: a journal would hold little else.
        is_empty = action == "ReceiveMessage" and not self._queues.queue(params).show(now)
        answer = self._queues.call(action, params, now)
        self.n_delivered += len(answer.get("Messages", ()))
        if self._journal and not is_empty and action not in _READS:
            with self._journal.open("ab") as file:
                file.write(orjson.dumps([now, action, params]) + b"\n")
        for name in list(self._arrivals):
            if self._queues.queue({"QueueName": name}).show(now):
                self._arrivals.pop(name).set()
        return answer


def _respond(answer: Json, status: int = 200) -> web.Response:
    content_type = "application/x-amz-json-1.0"
    return web.Response(status=status, body=orjson.dumps(answer), content_type=content_type)
