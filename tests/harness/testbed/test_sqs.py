"""The queue server as clients see it: boto3 unchanged, long polling, a restart, and its rules."""

import asyncio
import socket
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests

from harness.testbed.api import Queues
from harness.testbed.queues import SqsError
from harness.testbed.serving import process, serving
from harness.testbed.sqs import SqsServer

WORK = {"QueueUrl": "work"}
WAIT = WORK | {"WaitTimeSeconds": 20}


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
    attribute = {"DataType": "String", "StringValue": "ü"}
    sent = client.send_message(QueueUrl=url, MessageBody="é", MessageAttributes={"x": attribute})
    (message,) = client.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert message["Body"] == "é"
    assert message["MessageAttributes"]["x"]["StringValue"] == "ü"
    assert message["MessageId"] == sent["MessageId"]
    entry = {"Id": "1", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
    client.change_message_visibility_batch(QueueUrl=url, Entries=[entry])
    counts = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (counts["ApproximateNumberOfMessages"], counts["VisibilityTimeout"]) == ("1", "7")
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert "Messages" not in client.receive_message(QueueUrl=url)
    answer = requests.get(f"{client.meta.endpoint_url}/testbed", timeout=10)
    assert answer.json() == {"delivered": 1}
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.receive_message(QueueUrl=f"{url}-absent")


def test_waiting_receive() -> None:
    """What is sent ends the wait, what becomes visible, and the end of the time with nothing."""
    now = [100.0]
    server = SqsServer(clock=lambda: now[0])

    async def answer(call: Coroutine[Any, Any, Any], seconds: float) -> Any:
        """What a waiting receive answers after a call and a turn of the clock, without delay."""
        poll = asyncio.create_task(server.call("ReceiveMessage", WAIT))
        await asyncio.sleep(0)
        await call
        now[0] += seconds
        if seconds:
            server.wake()
        for _ in range(9):
            await asyncio.sleep(0)
        return poll.result()

    async def waits() -> None:
        hidden = {"VisibilityTimeout": "10"}
        await server.call("CreateQueue", {"QueueName": "work", "Attributes": hidden})
        assert await answer(asyncio.sleep(0), 20) == {}
        message = WORK | {"MessageBody": "x"}
        assert len((await answer(server.call("SendMessage", message), 0))["Messages"]) == 1
        assert len((await answer(asyncio.sleep(0), 10))["Messages"]) == 1, "visible again"

    asyncio.run(waits())


def test_receive_of_a_client_that_is_gone_takes_nothing(client: Any) -> None:
    url = client.create_queue(QueueName="c")["QueueUrl"]
    body = b'{"QueueUrl": "c", "WaitTimeSeconds": 20}'
    head = "POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
    with socket.create_connection(("127.0.0.1", int(url.split("/")[2].split(":")[1]))) as gone:
        gone.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        # On another connection; then the server has read the above.
        client.get_queue_url(QueueName="c")
    client.get_queue_url(QueueName="c")
    client.send_message(QueueUrl=url, MessageBody="x")
    assert client.receive_message(QueueUrl=url)["Messages"]


def test_killed_process_keeps_messages_and_handles(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with process("sqs", "--journal", str(journal)) as (url, child):
        client = connect(url)
        client.create_queue(QueueName="work")
        client.send_message(MessageBody="held", **WORK)
        (hidden,) = client.receive_message(**WORK)["Messages"]
        client.receive_message(**WORK)
        client.send_message(MessageBody="free", **WORK)
        child.kill()
    assert len(journal.read_bytes().splitlines()) == 4  # not the receive that found nothing
    with journal.open("ab") as file:
        file.write(b'[1, "SendMessage", {"Que')  # killed amid a call, before its answer
    with serving(SqsServer(journal).handle, int(url.rpartition(":")[2])):  # the same client goes on
        client.delete_message(ReceiptHandle=hidden["ReceiptHandle"], **WORK)
        (free,) = client.receive_message(VisibilityTimeout=0, **WORK)["Messages"]
        assert (free["Body"], free["MessageId"] != hidden["MessageId"]) == ("free", True)
    received = asyncio.run(SqsServer(journal).call("ReceiveMessage", WORK))
    assert [message["Body"] for message in received["Messages"]] == ["free"]


def test_only_the_last_receipt_handle_counts() -> None:
    queues = Queues()

    def call(action: str, now: float, **params: Any) -> Any:
        return queues.call(action, WORK | params, now)

    def receive(now: float) -> str:
        return str(call("ReceiveMessage", now, VisibilityTimeout=5)["Messages"][0]["ReceiptHandle"])

    def refused(handle: str, now: float) -> str:
        with pytest.raises(SqsError) as caught:
            call("ChangeMessageVisibility", now, ReceiptHandle=handle, VisibilityTimeout=5)
        return caught.value.code

    for name in ("work", "other"):
        call("CreateQueue", 0, QueueName=name)
    call("SendMessage", 0, MessageBody="x")
    first = receive(0)
    assert refused(first, 6) == "MessageNotInflight"
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
