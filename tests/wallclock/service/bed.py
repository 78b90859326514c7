"""The test bed in processes of its own, and services that are started, stopped and killed."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3
import requests

from harness.testbed.api import ACCOUNT
from harness.testbed.faults import CONTROL
from harness.testbed.serving import process
from tests.conftest import ROOT
from tests.wallclock.service.toy import POISON

WORDS = (
    "module=tests.wallclock.service.toy:Toy",
    "allow_private=true",
    "port=0",
    "wait_s=1",
    "retry_s=0",
    "connect_s=1",
    "read_s=1",
    "callback_patience_s=60",
    "grace_s=20",
    "log=warning",
)


class Bed:
    """A queue `work` with its dead letters, images 0 to 19, and a callback receiver.

    `sqs`: the queue server's URL, by default of a process of its own.
    """

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        visibility_s: int = 2,
        max_receives: int = 1000,
        sqs: str = "",
    ) -> None:
        for n in (*range(20), POISON):
            (folder / str(n)).write_bytes(bytes([n, 0]))
        self._stack = stack
        self.journal = folder / "journal"
        self.log = folder / "log"
        self.calls, self.calls_process = stack.enter_context(process("callbacks"))
        self.images, _ = stack.enter_context(process("images", "--folder", str(folder)))
        self.sqs = sqs
        if not sqs:
            server = process("sqs", "--journal", str(self.journal))
            self.sqs, self.sqs_process = stack.enter_context(server)
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        self._client = boto3.client("sqs", "us-east-1", endpoint_url=self.sqs, **keys)
        stack.callback(self._client.close)
        self._client.create_queue(QueueName="dead")
        arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:dead"
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": max_receives})
        attributes = {"VisibilityTimeout": str(visibility_s), "RedrivePolicy": policy}
        self._client.create_queue(QueueName="work", Attributes=attributes)

    def body(self, image: object, query: str = "") -> str:
        return json.dumps({"url": f"{self.images}/{image}{query}", "callback_url": self.calls})

    def send(self, bodies: Sequence[str]) -> set[str]:
        """Send messages; their ids."""
        ids = set[str]()
        for at in range(0, len(bodies), 10):
            ten = bodies[at : at + 10]
            entries = [{"Id": str(n), "MessageBody": text} for n, text in enumerate(ten)]
            sent = self._client.send_message_batch(QueueUrl="work", Entries=entries)
            ids |= {entry["MessageId"] for entry in sent["Successful"]}
        return ids

    @contextmanager
    def service(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A service, killed at the end of the block if it still runs; its log is appended."""
        url = f"{self.sqs}/{ACCOUNT}/work"
        command = [sys.executable, "-m", "wallclock", "serve", url, *WORDS, *words]
        with self.log.open("ab") as log, subprocess.Popen(command, cwd=ROOT, stderr=log) as child:
            try:
                yield child
            finally:
                child.kill()

    def stats(self, server: str) -> dict[str, Any]:
        """Counts of the images' or the callbacks' server."""
        counts: dict[str, Any] = requests.get(server + CONTROL, timeout=10).json()
        return counts

    def change(self, server: str, **faults: float) -> None:
        """Set the faults of the images' or the callbacks' server."""
        requests.put(server + CONTROL, json=faults, timeout=10).raise_for_status()

    def restart_calls(self) -> None:
        """A new receiver in the place of the one that is dead."""
        port = self.calls.rpartition(":")[2]
        _, self.calls_process = self._stack.enter_context(process("callbacks", "--port", port))

    def accepted(self) -> set[str]:
        return set(self.stats(self.calls)["accepted_at_s"])

    def count(self, queue: str, kind: str = "") -> int:
        """Messages of a queue; of one kind (NotVisible) if given."""
        kinds = [kind] if kind else ["", "NotVisible"]
        answer = self._client.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])
        return sum(int(answer["Attributes"][f"ApproximateNumberOfMessages{k}"]) for k in kinds)

    def dead(self) -> dict[str, tuple[str, str]]:
        """Dead letters, body → stage and reason."""
        letters = {}
        values = {"QueueUrl": "dead", "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
        while messages := self._client.receive_message(**values).get("Messages"):
            for message in messages:
                texts = {k: v["StringValue"] for k, v in message["MessageAttributes"].items()}
                letters[message["Body"]] = (texts["wallclock.stage"], texts["wallclock.reason"])
        return letters


def wait_until(condition: Callable[[], bool], limit_s: float = 60) -> None:
    """Wait, at most so long."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"not within {limit_s:g} s"
        time.sleep(0.05)
