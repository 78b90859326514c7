"""Our queues answer as moto's: random sequences of calls, both clocks turned alike.

Left out is what our module rules otherwise: calls with a receipt handle that is not of the last
delivery, and a new visibility timeout for a message that is visible.
"""

import json
import random
from typing import Any
from unittest.mock import patch

import boto3
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError
from moto import mock_aws
from moto.sqs import models

from harness.testbed.api import ACCOUNT, Queues
from harness.testbed.queues import SqsError

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
