"""The queue's calls against the test bed: batches, partial failures, dead letters."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import ClientError

from harness.testbed.api import ACCOUNT
from harness.testbed.serving import listening
from harness.testbed.sqs import SqsServer
from wallclock.errors import UserError
from wallclock.service.interface import ItemError
from wallclock.service.leases import Message
from wallclock.service.sqs import Queue, QueueError, QueueRefusal

POLICY = {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:dead", "maxReceiveCount": 3}


@asynccontextmanager
async def open_queue(server: SqsServer) -> AsyncIterator[tuple[Queue, str]]:
    """A queue with a dead-letter queue, visibility 7 s, and the server's URL."""
    await server.call("CreateQueue", {"QueueName": "dead"})
    attributes = {"VisibilityTimeout": "7", "RedrivePolicy": json.dumps(POLICY)}
    await server.call("CreateQueue", {"QueueName": "work", "Attributes": attributes})
    async with listening(server.handle) as url:
        queue = Queue(f"{url}/{ACCOUNT}/work", 0)
        await queue.open()
        yield queue, url
        await queue.close()


def test_calls() -> None:
    async def calls() -> None:
        server = SqsServer()
        async with open_queue(server) as (queue, url):
            assert (queue.visibility_s, queue.max_receives) == (7, 3)
            assert queue.dead_letter == f"{url}/{ACCOUNT}/dead"
            kept = {"trace": {"DataType": "String", "StringValue": "t"}}
            for n in range(12):
                values = {"MessageBody": f"{n}é", "MessageAttributes": kept}
                await server.call("SendMessage", {"QueueUrl": "work", **values})
            first = await queue.receive(50, 0)
            assert [len(first), len(await queue.receive(10, 0))] == [10, 2]
            assert (first[3].body, first[3].n_received) == ("3é", 1)
            # Partial failures: a handle of another queue is refused alone.
            handles = [first[0].handle, "nonsense", first[1].handle]
            assert await queue.delete(handles) == [True, False, True]
            assert await queue.hide([(handles[0], 5), (first[2].handle, 0)]) == [False, True]
            again = await queue.receive(10, 0)
            assert [(message.id, message.n_received) for message in again] == [(first[2].id, 2)]
            await queue.bury(again[0], ItemError("decode", "two\nlines"))
        dead = {"QueueUrl": "dead", "MessageAttributeNames": ["All"]}
        (letter,) = (await server.call("ReceiveMessage", dead))["Messages"]
        assert letter["Body"] == "2é"
        texts = {k: v["StringValue"] for k, v in letter["MessageAttributes"].items()}
        assert texts == {"trace": "t", "wallclock.stage": "decode", "wallclock.reason": "two lines"}

    asyncio.run(calls())


def test_unreachable_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def calls() -> None:
        server = SqsServer()
        async with open_queue(server) as (queue, _):
            endpoint, queue._endpoint = queue._endpoint, "http://127.0.0.1:1/"
            for _ in range(3):
                with pytest.raises(QueueError, match="Cannot connect"):
                    await queue.receive(10, 0)
            assert queue.reachable is False
            queue._endpoint = endpoint
            assert await queue.receive(10, 0) == []
            assert queue.reachable

    asyncio.run(calls())
    messages = [record.message for record in caplog.records]
    assert messages == ["queue unreachable", "queue reachable again"]


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (400, "MissingParameter", "MissingParameter: why; check the queue's settings"),
        (403, "AccessDenied", "AccessDenied: why; allow ReceiveMessage to these credentials"),
        (400, "QueueDoesNotExist", "QueueDoesNotExist: why; check the queue's URL"),
        (400, "UnrecognizedClient", "UnrecognizedClient: why; renew the credentials"),
        (403, "", "HTTP 403: no reason given; allow ReceiveMessage to these credentials"),
        (400, "ThrottlingException", ""),
        (403, "OverLimit", ""),
        (429, "", ""),
        (500, "AccessDenied", ""),
        (301, "", ""),
    ],
)
def test_refused_or_unreachable(
    status: int, code: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = {"__type": f"com.amazonaws.sqs#{code}", "message": "why."} if code else []
    told = list[str]()

    async def handle(request: web.BaseRequest) -> web.Response:
        return web.json_response(answer, status=status)

    async def receive() -> None:
        async with listening(handle) as url:
            queue = Queue(f"{url}/0/work", 30)
            queue.reachable = True
            queue.on_refusal = lambda refusal: told.append(str(refusal))
            with pytest.raises(QueueError) as caught:
                await queue.receive(10, 0)
            assert isinstance(caught.value, QueueRefusal) is queue.reachable is bool(reason)
            await queue.close()

    asyncio.run(receive())
    assert told == ([reason] if reason else [])
    assert len(caplog.records) == (not reason)  # the worker says it


class Temporary:
    """Credentials that are over and have to be fetched."""

    def __init__(self) -> None:
        self.threads = list[int]()

    def refresh_needed(self) -> bool:
        return not self.threads

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        self.threads.append(threading.get_ident())
        return ReadOnlyCredentials("key", "secret", "token")


def test_credentials_that_cannot_be_renewed_for_now() -> None:
    class Broken(Temporary):
        def get_frozen_credentials(self) -> ReadOnlyCredentials:
            raise ClientError({"Error": {"Code": "Throttling"}}, "AssumeRole")

    async def receive() -> None:
        queue = Queue("http://127.0.0.1:1/0/work", 30)
        queue.credentials = Broken()
        with pytest.raises(QueueError, match="Throttling"):
            await queue.receive(10, 0)
        await queue.close()

    asyncio.run(receive())


@pytest.mark.parametrize("answer", [[], None, {}, {"Attributes": {"VisibilityTimeout": ""}}])
def test_a_url_of_something_else(answer: object) -> None:
    async def handle(request: web.BaseRequest) -> web.Response:
        return web.json_response(answer)

    async def start() -> None:
        async with listening(handle) as url:
            queue = Queue(f"{url}/0/work", 0)
            with pytest.raises(
                UserError, match=r"^http://127.* does not answer like a queue; check the URL$"
            ):
                await queue.open()
            await queue.close()

    asyncio.run(start())


def test_signature_with_credentials_that_are_fetched_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    queue = Queue("https://sqs.eu-west-1.amazonaws.com/1/work", 0)
    credentials = Temporary()
    queue.credentials = credentials
    headers = asyncio.run(queue._signed("SendMessage", b"{}"))
    assert headers["X-Amz-Security-Token"] == "token"
    assert headers["X-Amz-Target"] == "AmazonSQS.SendMessage"
    assert headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=key/")
    assert "/eu-west-1/sqs/aws4_request" in headers["Authorization"]
    in_loop = [thread == threading.get_ident() for thread in credentials.threads]
    assert in_loop == [False, True]


def test_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boto3.session.Session.get_credentials", lambda self: None)
    with pytest.raises(UserError, match="no AWS credentials"):
        Queue("https://sqs.eu-west-1.amazonaws.com/1/work", 0)


def test_queue_that_cannot_be_served() -> None:
    async def no_queue(url: str) -> None:
        queue = Queue(url, 0)
        try:
            await queue.open()
        finally:
            await queue.close()

    async def calls() -> None:
        server = SqsServer()
        async with listening(server.handle) as url:
            with pytest.raises(UserError, match="queue does not exist"):
                await no_queue(f"{url}/0/work")
            await server.call("CreateQueue", {"QueueName": "work"})
            with pytest.raises(UserError, match="has no dead-letter queue: give it"):
                await no_queue(f"{url}/0/work")

    asyncio.run(calls())
    for url in ("work", "http://host", "ftp://host/0/work"):
        with pytest.raises(UserError, match="give a queue's URL"):
            Queue(url, 0)


def test_what_an_answer_says_of_each_entry() -> None:
    """What it does not name, and what failed by the server's fault, is to be tried again."""
    received = list[Any]()
    failed = [{"Id": "1", "SenderFault": False}, {"Id": "2", "SenderFault": True}]

    async def handle(request: web.BaseRequest) -> web.Response:
        received.append(await request.json())
        return web.json_response({"Successful": [{"Id": "0"}], "Failed": failed})

    async def calls() -> None:
        async with listening(handle) as url:
            queue = Queue(f"{url}/0/work", 30)
            queue.dead_letter = "dead"
            assert await queue.delete(["a", "b", "c", "d"]) == [True, None, False, None]
            kept = {f"{n}": {"DataType": "String", "StringValue": "x"} for n in range(10)}
            error = ItemError("decode", "x" * 2000)
            await queue.bury(Message("m", "h", "text", 1, kept), error)
            queue.dead_letter = "dead.fifo"
            await queue.bury(Message("m", "h", "text", group="g"), error)
            await queue.bury(Message("m", "h", "text"), error)
            await queue.close()

    asyncio.run(calls())
    attributes = received[1]["MessageAttributes"]
    assert [*attributes] == [*map(str, range(8)), "wallclock.stage", "wallclock.reason"]
    assert len(attributes["wallclock.reason"]["StringValue"]) == 200
    names = [(call.get("MessageGroupId"), call.get("MessageDeduplicationId")) for call in received]
    assert names[1:] == [(None, None), ("g", "m"), ("m", "m")]
