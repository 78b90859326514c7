"""Servers on loopback: faults, a queue, and the same requests to moto."""

import asyncio
import json
import random
import socket
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import pytest
import requests
from botocore import xform_name
from botocore.exceptions import ClientError
from moto import mock_aws
from moto.sqs import models

from harness.testbed.api import ACCOUNT, Queues
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
WAIT = WORK | {"WaitTimeSeconds": 20}


def connect(url: str) -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return boto3.client("sqs", "us-east-1", endpoint_url=url, **keys)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with serving(SqsServer().handle) as url:
        yield connect(url)


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


# --- moto -----------------------------------------------------------------------------------------


Json = dict[str, Any]

MOTO_ACCOUNT = "123456789012"
COUNTS = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible")]
ATTRIBUTES = {
    "b": {"DataType": "String.name", "StringValue": "ü"},
    "a.x": {"DataType": "Number", "StringValue": "1.5"},
}
#: Calls that both refuse.
WRONG: list[tuple[str, Json]] = [
    ("DeleteMessage", {"ReceiptHandle": "none"}),
    ("DeleteMessageBatch", {"Entries": [{"Id": "1", "ReceiptHandle": "none"}]}),
    ("ChangeMessageVisibility", {"ReceiptHandle": "none", "VisibilityTimeout": 1}),
]


class Both:
    """The same calls to both, whose answers must agree but for random ids and handles."""

    def __init__(self, client: Any, seen: set[tuple[str, str]]) -> None:
        self.moto = client
        self.ours = Queues()
        self.seen = seen
        self.ms = 1_800_000_000_000
        self.n_sent = 0
        #: Queue, our handle and moto's of every delivery.
        self.deliveries: list[tuple[str, str, str]] = []

    def call(self, action: str, params: Json, moto: Json | None = None) -> tuple[Json, Json]:
        """One call to each, a millisecond after the last; to moto with its own parameters."""
        self.ms += 1
        clock: Json = {"unix_time_millis": lambda: self.ms, "unix_time": lambda: self.ms / 1000}
        with patch.multiple(models, **clock):
            try:
                theirs = getattr(self.moto, xform_name(action))(**(moto or params))
            except ClientError as error:
                theirs = {"error": error.response["Error"]["Code"]}
        try:
            ours = self.ours.call(action, params, self.ms / 1000)
        except SqsError as error:
            ours = {"error": error.code}
        compared = comparable(ours)
        assert compared == comparable(theirs), (action, params)
        outcome = compared.get("error") or next(iter(compared), "")
        self.seen.add((action, "" if action == "GetQueueAttributes" else outcome))
        return ours, theirs

    def send(self, queue: str, n: int) -> None:
        bodies = [str(self.n_sent + i) for i in range(n)]
        self.n_sent += n
        if n == 1:
            params = {"MessageBody": bodies[0], "MessageAttributes": ATTRIBUTES}
            self.call("SendMessage", {"QueueUrl": queue, **params})
        else:
            entries = [{"Id": body, "MessageBody": body} for body in bodies]
            self.call("SendMessageBatch", {"QueueUrl": queue, "Entries": entries})

    def receive(self, queue: str, params: Json) -> None:
        names: Json = {"MessageAttributeNames": ["All"]}
        names["MessageSystemAttributeNames"] = ["ApproximateReceiveCount"]
        answers = self.call("ReceiveMessage", {"QueueUrl": queue, **names, **params})
        lists = ([m["ReceiptHandle"] for m in answer.get("Messages", [])] for answer in answers)
        self.seen.add((queue, next(iter(answers[0]), "")))
        self.deliveries += [(queue, *handles) for handles in zip(*lists, strict=True)]

    def use_handle(self, draw: random.Random, action: str, extra: Json) -> None:
        """Delete or hide a message of a former delivery, if both have the same rule for it."""
        if not self.deliveries:
            return
        queue, our, their = draw.choice(self.deliveries)
        backend = models.sqs_backends[MOTO_ACCOUNT]["us-east-1"].queues[queue]
        message = next((m for m in backend._messages if m.receipt_handle == their), None)
        if action == "DeleteMessage":
            same_rule = message is not None or their in backend.deleted_messages
        else:
            same_rule = message is not None and message.visible_at > self.ms + 1
        if not same_rule:
            return
        both: list[Json] = [{"ReceiptHandle": handle} | extra for handle in (our, their)]
        if draw.random() < 0.5:
            action += "Batch"
            both = [{"Entries": [{"Id": "1"} | entry]} for entry in both]
        our_params, their_params = ({"QueueUrl": queue} | params for params in both)
        self.call(action, our_params, their_params)


def comparable(answer: Json) -> Json:
    """An answer without what is random; an empty list is as none."""
    result = json.loads(json.dumps({k: v for k, v in answer.items() if k != "ResponseMetadata"}))
    for message in (*result.get("Messages", []), *result.get("Successful", []), result):
        for name in ("MessageId", "ReceiptHandle", "MD5OfMessageAttributes"):
            message.pop(name, None)
    for failed in result.get("Failed", []):
        failed.pop("Message")
    if "error" in result:
        result["error"] = result["error"].rpartition(".")[2]
    if "QueueUrl" in result:
        result["QueueUrl"] = result["QueueUrl"].rpartition("/")[2]
    return {key: value for key, value in result.items() if value}


def play(client: Any, seed: int, seen: set[tuple[str, str]]) -> None:
    """One random sequence on a queue and its dead-letter queue."""
    models.sqs_backends[MOTO_ACCOUNT]["us-east-1"].queues.clear()
    draw, both = random.Random(seed), Both(client, seen)
    both.call("CreateQueue", {"QueueName": "dead"})
    work = []
    for account in (ACCOUNT, MOTO_ACCOUNT):
        arn = f"arn:aws:sqs:us-east-1:{account}:dead"
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
        work.append({"QueueName": "work", "Attributes": {"RedrivePolicy": policy}})
    both.call("CreateQueue", *work)
    kinds = ["send", "receive", "delete", "change", "turn", "wrong"]
    for _ in range(15):
        queue = draw.choice(["work", "work", "dead"])
        match draw.choices(kinds, (4, 7, 2, 2, 2, 2))[0]:
            case "send":
                both.send("work", draw.randint(1, 4))
            case "receive":
                timeout_s = draw.choice([None, 0, 0, 3, 40])
                timeout = {} if timeout_s is None else {"VisibilityTimeout": timeout_s}
                both.receive(queue, {"MaxNumberOfMessages": draw.randint(1, 10), **timeout})
            case "delete":
                both.use_handle(draw, "DeleteMessage", {})
            case "change":
                timeout = {"VisibilityTimeout": draw.choice([0, 0, 3, 60])}
                both.use_handle(draw, "ChangeMessageVisibility", timeout)
            case "turn":
                both.ms += 1000 * draw.choice([1, 4, 35, 61])
            case _:
                action, params = draw.choice(WRONG)
                both.call(action, {"QueueUrl": "work"} | params)
        if draw.random() < 0.2:
            both.call("GetQueueAttributes", {"QueueUrl": queue, "AttributeNames": COUNTS})
    for queue in ("work", "dead"):
        both.call("GetQueueAttributes", {"QueueUrl": queue, "AttributeNames": COUNTS})


@pytest.mark.parametrize("n", [30, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_random_sequences(n: int) -> None:
    seen = set[tuple[str, str]]()
    with mock_aws():
        client = boto3.client("sqs", "us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
        for seed in range(n):
            play(client, seed, seen)
    assert seen >= {  # else the sequences would prove little
        ("ReceiveMessage", "Messages"),
        ("DeleteMessageBatch", "Successful"),
        ("ChangeMessageVisibility", ""),
        ("dead", "Messages"),
    }
