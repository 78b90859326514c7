"""Servers on loopback: images with faults, callbacks, a queue."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests

from harness.testbed.api import Queues
from harness.testbed.callbacks import CallbackReceiver
from harness.testbed.faults import Faults
from harness.testbed.images import ImageServer
from harness.testbed.queues import SqsError
from harness.testbed.serving import process, serving
from harness.testbed.sqs import SqsServer

# --- faults ---------------------------------------------------------------------------------------


IMAGE = bytes(range(250)) * 4


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ImageServer, str]]:
    folder = tmp_path_factory.mktemp("images")
    (folder / "a").mkdir()
    (folder / "a" / "b.jpg").write_bytes(IMAGE)
    server = ImageServer(folder)
    with serving(server.handle) as url:
        yield server, f"{url}/a/b.jpg"


def get(url: str, follow: bool = True) -> requests.Response:
    with requests.Session() as session:
        return session.get(url, timeout=10, allow_redirects=follow)


@pytest.mark.parametrize(
    ("query", "status", "body"),
    [
        ("", 200, IMAGE),
        ("?error_rate=1&status=429", 429, b""),
        ("?latency_s=0.001&body_s=0.001", 200, IMAGE),
        ("?extra_bytes=-300", 200, IMAGE[:700]),
        ("?redirects=3", 200, IMAGE),
        ("?colour=1", 400, b"no fault is called 'colour'; valid: "),
    ],
)
def test_answers(images: tuple[ImageServer, str], query: str, status: int, body: bytes) -> None:
    server, url = images
    server.counts.clear()
    answer = get(url + query)
    assert (answer.status_code, answer.content[: len(body) or None]) == (status, body)
    assert server.counts["redirects"] == len(answer.history) == 3 * ("redirects" in query)
    assert server.counts["bytes"] == len(answer.content) * (status == 200)


@pytest.mark.parametrize("query", ["?reset_rate=1", "?cut_rate=1", "?extra_bytes=1"])
def test_broken_answers(images: tuple[ImageServer, str], query: str) -> None:
    broken = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
    with pytest.raises(broken, match=r"reset|broken|aborted"):
        get(images[1] + query)


def test_redirect_elsewhere_and_missing_image(images: tuple[ImageServer, str]) -> None:
    metadata = "http://169.254.169.254/latest"
    answer = get(f"{images[1]}?redirects=1&redirect_to={metadata}", follow=False)
    assert (answer.status_code, answer.headers["Location"]) == (302, metadata)
    assert get(images[1] + "x").status_code == 404


def test_callbacks_are_accepted_once() -> None:
    server = CallbackReceiver(clock=iter((10.0, 20.0)).__next__, faults=Faults(error_rate=1))
    with serving(server.handle) as url, requests.Session() as session:

        def post(key: str | None, body: bytes, query: str = "") -> int:
            headers = {"Idempotency-Key": key} if key else {}
            return session.post(url + query, body, headers=headers, timeout=10).status_code

        assert post("a", b"1") == 503
        assert session.put(f"{url}/testbed", json={"error_rate": 0}, timeout=10).ok
        with pytest.raises(requests.ConnectionError):  # accepted, but the sender cannot know
            post("a", b"1", "?cut_rate=1")
        for key, body in (("a", b"1"), ("a", b"2"), ("a", b"1"), ("b", b"3")):
            assert post(key, body) == 200
        assert post(None, b"4") == 400
        counts = session.get(f"{url}/testbed", timeout=10).json()
        alone = session.get(f"{url}/testbed?counts", timeout=10).json()
    assert alone | {"accepted_at_s": counts["accepted_at_s"]} == counts
    assert "accepted_at_s" not in alone
    assert counts == {
        "requests": 7,
        "errors": 1,
        "resets": 0,
        "cuts": 1,
        "accepted": 2,
        "duplicates": 3,
        "conflicts": 1,
        "accepted_at_s": {"a": 10.0, "b": 20.0},
    }
    assert server.accepted["a"].body == b"1"


# --- sqs ------------------------------------------------------------------------------------------


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
