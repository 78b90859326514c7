"""Our queues answer as moto's do: random sequences of calls, with both clocks turned alike.

Left out is what our module documents otherwise: calls with a receipt handle that is not of the last
delivery, and a changed visibility of a message that is visible.
"""

import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import boto3
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws
from moto.sqs import models

from wallclock.testbed.api import Queues
from wallclock.testbed.queues import SqsError

Json = dict[str, Any]

TEXT = {"DataType": "String.name", "StringValue": "ü"}
ATTRIBUTES = {"b": TEXT, "a.x": {"DataType": "Number", "StringValue": "1.5"}}
COUNTS = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "Delayed", "NotVisible")]
ALL: Json = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["a.*"]}
ONE = {"Id": "0", "MessageBody": "x"}
#: Calls that both refuse, or half refuse.
WRONG: list[tuple[str, Json]] = [
    ("ReceiveMessage", {"MaxNumberOfMessages": 11}),
    ("ReceiveMessage", {"MaxNumberOfMessages": 0}),
    ("ReceiveMessage", {"WaitTimeSeconds": 21}),
    ("ReceiveMessage", {"VisibilityTimeout": 43201}),
    ("SendMessage", {"MessageBody": "x", "DelaySeconds": 901}),
    ("SendMessage", {"MessageBody": "x", "MessageAttributes": {"a": {"DataType": "Text"}}}),
    ("SendMessageBatch", {"Entries": []}),
    ("SendMessageBatch", {"Entries": [ONE, ONE]}),
    ("SendMessageBatch", {"Entries": [{**ONE, "Id": "a b"}]}),
    ("SendMessageBatch", {"Entries": [{**ONE, "Id": str(i)} for i in range(11)]}),
    ("SendMessageBatch", {"Entries": [{**ONE, "MessageBody": "x" * (1 << 20)}, {**ONE, "Id": "1"}]}),
    ("SendMessageBatch", {"Entries": [{"Id": "1", "MessageBody": "late", "DelaySeconds": 901}]}),
    ("DeleteMessage", {"ReceiptHandle": "none"}),
    ("DeleteMessageBatch", {"Entries": [{"Id": "1", "ReceiptHandle": "none"}]}),
    ("ChangeMessageVisibility", {"ReceiptHandle": "none", "VisibilityTimeout": 1}),
    ("GetQueueAttributes", {"AttributeNames": ["Colour"]}),
    ("GetQueueUrl", {"QueueName": "absent"}),
    ("CreateQueue", {"QueueName": "work", "Attributes": {"DelaySeconds": "7"}}),
    ("CreateQueue", {"QueueName": "a b"}),
]


class Both:
    """The same calls to both, whose answers must agree; receipt handles and ids are their own."""

    def __init__(self) -> None:
        self.ms, self.ours = 1_800_000_000_000, Queues()
        self.moto = boto3.client("sqs", "us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
        self.n_sent = 0
        #: Queue, our handle and moto's of every delivery.
        self.deliveries: list[tuple[str, str, str]] = []

    def call(self, action: str, params: Json, moto: Json | None = None) -> tuple[Json, Json]:
        """One call to each, a millisecond after the last: theirs with the parameters `moto`."""
        self.ms += 1
        with patch.object(models, "unix_time_millis", lambda: self.ms), patch.object(
            models, "unix_time", lambda: self.ms / 1000
        ):
            try:
                theirs = getattr(self.moto, xform_name(action))(**(moto or params))
            except ClientError as error:
                theirs = {"error": error.response["Error"]["Code"].rpartition(".")[2]}
        theirs.pop("ResponseMetadata", None)
        try:
            ours = self.ours.call(action, params, self.ms / 1000)
        except SqsError as error:
            ours = {"error": error.query_code.rpartition(".")[2]}
        assert comparable(ours) == comparable(theirs), (action, params)
        return ours, theirs

    def create(self, name: str, attributes: Json) -> None:
        self.call("CreateQueue", {"QueueName": name, "Attributes": attributes})

    def send(self, queue: str, n: int, delay_s: int | None) -> None:
        delay = {} if delay_s is None else {"DelaySeconds": delay_s}
        bodies = [f"{self.n_sent + i}" for i in range(n)]
        self.n_sent += n
        if n == 1:
            extra = {"MessageAttributes": ATTRIBUTES, **delay}
            self.call("SendMessage", {"QueueUrl": queue, "MessageBody": bodies[0], **extra})
        else:
            entries = [{"Id": body, "MessageBody": body, **delay} for body in bodies]
            self.call("SendMessageBatch", {"QueueUrl": queue, "Entries": entries})

    def receive(self, queue: str, n: int, timeout_s: int | None) -> None:
        timeout = {} if timeout_s is None else {"VisibilityTimeout": timeout_s}
        params = {"QueueUrl": queue, "MaxNumberOfMessages": n, **ALL, **timeout}
        pair = (answer.get("Messages", []) for answer in self.call("ReceiveMessage", params))
        handles = ([message["ReceiptHandle"] for message in messages] for messages in pair)
        self.deliveries += [(queue, *both) for both in zip(*handles, strict=True)]

    def with_handle(self, action: str, pick: int, batch: bool, extra: Json) -> None:
        """Delete or change a message of a former delivery, where both have the same rule."""
        if not self.deliveries:
            return
        queue, our, their = self.deliveries[pick % len(self.deliveries)]
        backend = models.sqs_backends["123456789012"]["us-east-1"].queues[queue]
        message = next((m for m in backend._messages if m.receipt_handle == their), None)
        deletes = action == "DeleteMessage"
        if message is None and not (deletes and their in backend.deleted_messages):
            return
        if message is not None and not deletes and message.visible_at < self.ms + 1:
            return
        both = ({"ReceiptHandle": handle, **extra} for handle in (our, their))
        if batch:
            action += "Batch"
            both = ({"Entries": [{"Id": "1", **one}]} for one in both)
        self.call(action, *({"QueueUrl": queue, **one} for one in both))


def comparable(answer: Json) -> Json:
    """An answer without what is random; an empty list is as none."""
    result = json.loads(json.dumps(answer))
    for message in (*result.get("Messages", []), *result.get("Successful", []), result):
        for name in ("MessageId", "ReceiptHandle"):
            message.pop(name, None)
        message.get("Attributes", {}).pop("SenderId", None)
    for failed in result.get("Failed", []):
        failed["Code"] = failed["Code"].rpartition(".")[2]
        failed.pop("Message")
    if "QueueUrl" in result:
        result["QueueUrl"] = result["QueueUrl"].rpartition("/")[2]
    return {key: value for key, value in result.items() if value}


NUMBER = st.integers(0, 40)
TIMEOUT = st.sampled_from([None, 0, 3, 40])
QUEUE = st.sampled_from(["work", "work", "dead"])
STEP = st.one_of(
    st.tuples(st.just("send"), QUEUE, st.integers(1, 3), st.sampled_from([None, None, 0, 5])),
    st.tuples(st.just("receive"), QUEUE, st.integers(1, 10), TIMEOUT),
    st.tuples(st.just("receive"), st.just("work"), st.integers(1, 10), st.just(0)),
    st.tuples(st.just("delete"), NUMBER, st.booleans()),
    st.tuples(st.just("change"), NUMBER, st.booleans(), st.sampled_from([0, 3, 60, 43201])),
    st.tuples(st.just("turn"), st.sampled_from([1, 4, 35, 61])),
    st.tuples(st.just("set"), st.sampled_from([0, 2, 30])),
    st.tuples(st.just("purge"), QUEUE),
    st.tuples(st.just("wrong"), st.sampled_from(WRONG)),
)


def run(steps: list[tuple[Any, ...]]) -> Both:
    """A queue with a dead-letter queue through the steps, its counts compared after each."""
    both = Both()
    both.create("dead", {})
    arn = "arn:aws:sqs:us-east-1:{}:dead"
    policy = {"deadLetterTargetArn": arn.format("000000000000"), "maxReceiveCount": 2}
    ours = {"Attributes": {"RedrivePolicy": json.dumps(policy)}, "QueueName": "work"}
    policy["deadLetterTargetArn"] = arn.format("123456789012")
    both.call("CreateQueue", ours, {**ours, "Attributes": {"RedrivePolicy": json.dumps(policy)}})
    for kind, *values in steps:
        match kind, values:
            case "delete", (pick, batch):
                both.with_handle("DeleteMessage", pick, batch, {})
            case "change", (pick, batch, timeout_s):
                extra = {"VisibilityTimeout": timeout_s}
                both.with_handle("ChangeMessageVisibility", pick, batch, extra)
            case "turn", (seconds,):
                both.ms += 1000 * seconds
            case "set", (delay_s,):
                attributes = {"VisibilityTimeout": str(delay_s)}
                both.call("SetQueueAttributes", {"QueueUrl": "work", "Attributes": attributes})
            case "purge", (queue,):
                both.call("PurgeQueue", {"QueueUrl": queue})
            case "wrong", ((action, params),):
                queue = {} if "QueueName" in params else {"QueueUrl": "work"}
                both.call(action, queue | params)
            case _:
                getattr(both, kind)(*values)
        for queue in ("work", "dead"):
            both.call("GetQueueAttributes", {"QueueUrl": queue, "AttributeNames": COUNTS})
    return both


@pytest.fixture(scope="module", autouse=True)
def moto() -> Iterator[None]:
    with mock_aws():
        yield


@pytest.mark.parametrize("n", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_sequences(n: int) -> None:
    @settings(max_examples=n, deadline=None, database=None)
    @given(st.lists(STEP, min_size=5, max_size=25))
    def check(steps: list[tuple[Any, ...]]) -> None:
        models.sqs_backends["123456789012"]["us-east-1"].queues.clear()
        run(steps)

    check()


def test_every_kind_of_call_is_compared() -> None:
    """The sequence that reaches the dead-letter queue; the random ones would pass if none did."""
