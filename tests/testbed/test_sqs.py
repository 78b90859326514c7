"""The queue server as clients see it: boto3 unchanged, long polling, a restart, and its rules."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from wallclock.testbed.api import Queues
from wallclock.testbed.queues import SqsError
from wallclock.testbed.serving import process, serving
from wallclock.testbed.sqs import SqsServer

WORK = {"QueueUrl": "work"}


def connect(url: str) -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return boto3.client("sqs", "us-east-1", endpoint_url=url, **keys)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with serving(SqsServer().handle) as url:
        yield connect(url)


def test_boto3_unchanged(client: Any) -> None:
    url = client.create_queue(QueueName="a", Attributes={"VisibilityTimeout": "7"})["QueueUrl"]
    assert client.get_queue_url(QueueName="a")["QueueUrl"] == url
    assert client.list_queues(QueueNamePrefix="a")["QueueUrls"] == [url]
    attribute = {"DataType": "Binary", "BinaryValue": b"\x00\xff"}
    sent = client.send_message(QueueUrl=url, MessageBody="é", MessageAttributes={"x": attribute})
    (message,) = client.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert message["Body"] == "é"
    assert message["MessageAttributes"]["x"]["BinaryValue"] == b"\x00\xff"
    for name in ("MessageId", "MD5OfMessageAttributes"):
        assert message[name] == sent[name]
    entry = {"Id": "1", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
    client.change_message_visibility_batch(QueueUrl=url, Entries=[entry])
    counts = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (counts["ApproximateNumberOfMessages"], counts["VisibilityTimeout"]) == ("1", "7")
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert "Messages" not in client.receive_message(QueueUrl=url)
    client.delete_queue(QueueUrl=url)
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.purge_queue(QueueUrl=url)


def test_waiting_receive_gets_what_is_sent(client: Any) -> None:
    url = client.create_queue(QueueName="b")["QueueUrl"]
    send = threading.Timer(0.05, client.send_message, kwargs={"QueueUrl": url, "MessageBody": "x"})
    send.start()
    assert client.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"][0]["Body"] == "x"
    send.join()


def test_waiting_receive_follows_the_queues_clock() -> None:
    """A message that becomes visible ends the wait; so does the end of the time, with nothing."""
    now = [100.0]
    server = SqsServer(clock=lambda: now[0])

    async def turn(seconds: float) -> None:
        await asyncio.sleep(0)
        now[0] += seconds
        server.wake()

    async def waits() -> None:
        await server.call("CreateQueue", {"QueueName": "work"})
        await server.call("SendMessage", {**WORK, "MessageBody": "x", "DelaySeconds": 9})
        poll = {**WORK, "WaitTimeSeconds": 10, "VisibilityTimeout": 20}
        answer, _ = await asyncio.gather(server.call("ReceiveMessage", poll), turn(9))
        assert len(answer["Messages"]) == 1
        answer, _ = await asyncio.gather(server.call("ReceiveMessage", poll), turn(10))
        assert answer == {}

    asyncio.run(waits())


def test_cancelled_receive_takes_nothing() -> None:
    server = SqsServer()

    async def cancel() -> None:
        await server.call("CreateQueue", {"QueueName": "work"})
        poll = asyncio.create_task(server.call("ReceiveMessage", {**WORK, "WaitTimeSeconds": 20}))
        await asyncio.sleep(0)
        poll.cancel()
        await server.call("SendMessage", {**WORK, "MessageBody": "x"})
        assert (await server.call("ReceiveMessage", WORK))["Messages"]

    asyncio.run(cancel())


def test_killed_process_keeps_messages_and_handles(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with process("sqs", "--journal", str(journal)) as (url, child):
        client = connect(url)
        client.create_queue(QueueName="work")
        client.send_message(MessageBody="held", **WORK)
        (held,) = client.receive_message(**WORK)["Messages"]
        client.send_message(MessageBody="free", **WORK)
        child.kill()
    with journal.open("ab") as file:
        file.write(b'[1, "SendMessage", {"Que')  # killed amid a call that nobody saw answered
    with serving(SqsServer(journal).handle) as url:
        client = connect(url)
        client.delete_message(ReceiptHandle=held["ReceiptHandle"], **WORK)
        (free,) = client.receive_message(VisibilityTimeout=0, **WORK)["Messages"]
        assert (free["Body"], free["MessageId"] != held["MessageId"]) == ("free", True)
    received = asyncio.run(SqsServer(journal).call("ReceiveMessage", WORK))
    assert [message["Body"] for message in received["Messages"]] == ["free"]


def test_only_the_last_receipt_handle_counts() -> None:
    queues = Queues()

    def call(action: str, now: float, **params: Any) -> Any:
        return queues.call(action, {**WORK, **params}, now)

    def receive(now: float) -> str:
        return str(call("ReceiveMessage", now, VisibilityTimeout=5)["Messages"][0]["ReceiptHandle"])

    def refused(handle: str, now: float) -> str:
        with pytest.raises(SqsError) as caught:
            call("ChangeMessageVisibility", now, ReceiptHandle=handle, VisibilityTimeout=5)
        return caught.value.query_code

    for name in ("work", "other"):
        call("CreateQueue", 0, QueueName=name)
    call("SendMessage", 0, MessageBody="x")
    first = receive(0)
    assert refused(first, 6) == "AWS.SimpleQueueService.MessageNotInflight"
    second = receive(6)
    assert refused(first, 7) == "InvalidParameterValue"
    call("DeleteMessage", 7, ReceiptHandle=first)
    call("ChangeMessageVisibility", 7, ReceiptHandle=second, VisibilityTimeout=5)
    assert call("ReceiveMessage", 11.9) == {}
    with pytest.raises(SqsError, match="handle is invalid"):
        call("DeleteMessage", 12, ReceiptHandle=second, QueueUrl="other")
    call("DeleteMessage", 12, ReceiptHandle=second)  # visible again, and not delivered since
    assert call("ReceiveMessage", 12) == {}
    assert refused(second, 12) == "InvalidParameterValue"


def test_messages_end_with_the_retention_period() -> None:
    queues = Queues()
    queues.call(
        "CreateQueue", {"QueueName": "work", "Attributes": {"MessageRetentionPeriod": 60}}, 0
    )
    queues.call("SendMessage", {**WORK, "MessageBody": "x"}, 0)
    assert queues.call("ReceiveMessage", {**WORK, "VisibilityTimeout": 0}, 59)
    assert queues.call("ReceiveMessage", WORK, 60) == {}
