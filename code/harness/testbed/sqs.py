"""A server that SQS clients talk to unchanged: JSON protocol, long polling, a journal on disk."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import orjson

from harness.testbed.api import Queues
from harness.testbed.faults import CONTROL
from harness.testbed.queues import Json, SqsError
from harness.testbed.server import Request, Response

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

    def handle(self, request: Request) -> Response | Awaitable[Response]:
        """One request of the protocol AWS JSON 1.0; GET of `CONTROL`: the count of deliveries."""
        if request.path == CONTROL:
            return Response(body=orjson.dumps({"delivered": self.n_delivered}))
        action = request.header("X-Amz-Target").removeprefix("AmazonSQS.")
        params = orjson.loads(request.body or b"{}")
        try:
            answer = self._apply(action, params, self._clock())
        except SqsError as error:
            return _refuse(error)
        if action == "ReceiveMessage" and not answer:
            return self._receive_later(params)
        _add_host(answer, "http://" + request.header("Host"))
        return _respond(answer)

    async def _receive_later(self, params: Json) -> Response:
        try:
            return _respond(await self.call("ReceiveMessage", params))
        except SqsError as error:
            return _refuse(error)

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


def _respond(answer: Json, status: int = 200) -> Response:
    headers = {"Content-Type": "application/x-amz-json-1.0"}
    return Response(status, orjson.dumps(answer), headers)


def _refuse(error: SqsError) -> Response:
    return _respond({"__type": f"com.amazonaws.sqs#{error.code}", "message": str(error)}, 400)


def _add_host(answer: Json, host: str) -> None:
    if "QueueUrl" in answer:
        answer["QueueUrl"] = host + answer["QueueUrl"]
