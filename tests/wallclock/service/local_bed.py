"""A service and the test bed in one event loop; its queue may be moto's."""

import asyncio
import json
import socket
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import aiohttp
import boto3
from botocore import xform_name

from harness.testbed.api import ACCOUNT
from harness.testbed.callbacks import CallbackReceiver
from harness.testbed.images import ImageServer
from harness.testbed.serving import listening
from harness.testbed.sqs import SqsServer
from tests.wallclock.service.toy import POISON
from wallclock.service.settings import read
from wallclock.service.sqs import Queue
from wallclock.service.worker import Worker


class Moto:
    """moto's server where a `SqsServer` is expected."""

    def __init__(self, url: str) -> None:
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        self.url, self.client = url, boto3.client("sqs", "us-east-1", endpoint_url=url, **keys)

    async def call(self, action: str, params: dict[str, Any]) -> Any:
        return await asyncio.to_thread(getattr(self.client, xform_name(action)), **params)


class LocalBed:
    """A queue, its dead letters, images and a callback receiver, in this event loop.

    A FIFO queue needs moto; it has five groups.
    """

    def __init__(self, folder: Path, sqs: Any = None, fifo: bool = False) -> None:
        for n in (*range(20), POISON):
            (folder / str(n)).write_bytes(bytes([n, 0]))
        (folder / "short").write_bytes(b"x")
        self.sqs: Any = sqs or SqsServer()
        self.work, self.dead = ("work.fifo", "dead.fifo") if fifo else ("work", "dead")
        self.fifo = fifo
        self.images = ImageServer(folder)
        self.calls = CallbackReceiver()

    async def run(
        self,
        bodies: Sequence[str],
        *words: str,
        until: int,
        also: Callable[[], bool] = lambda: True,
        status: int = 0,
    ) -> str:
        """Serve these messages until so many have been called back or are dead; the metrics.

        `also`: what else must be so before the service is stopped. `status`: with which it ends,
        by itself if it is not 0.
        """
        await self.create_queues()
        async with (
            nullcontext(self.sqs.url)
            if isinstance(self.sqs, Moto)
            else listening(self.sqs.handle) as queue,
            listening(self.images.handle) as images,
            listening(self.calls.handle) as calls,
        ):
            texts = [body.replace("IMAGES", images).replace("CALLS", calls) for body in bodies]
            await self.send(texts)
            fixed = ["module=tests.wallclock.service.toy:Toy", "wait_s=0", "allow_private=true"]
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            fixed += [f"port={port}", "retry_s=0", "grace_s=5"]
            _, settings, make_module = read(["queue", *fixed, *words])
            url = f"{queue}/{ACCOUNT}/{self.work}"
            worker = Worker(Queue(url, settings.visibility_s), settings, make_module())
            served = asyncio.create_task(worker.run())
            async with asyncio.timeout(20 + len(bodies) / 2):
                while not served.done() and not (await self.count_settled() >= until and also()):
                    await asyncio.sleep(0.05)
                metrics = "" if status or served.done() else await self.probe(port)
                if not status and not served.done():
                    worker.stop()
                assert await served == status
        return metrics

    async def send(self, texts: Sequence[str]) -> None:
        entries: list[dict[str, str]] = [
            {"Id": f"{number}", "MessageBody": text} for number, text in enumerate(texts)
        ]
        for number, entry in enumerate(entries if self.fifo else []):
            entry |= {"MessageGroupId": f"{number % 5}", "MessageDeduplicationId": f"{number}"}
        for at in range(0, len(entries), 10):
            values = {"QueueUrl": self.work, "Entries": entries[at : at + 10]}
            await self.sqs.call("SendMessageBatch", values)

    async def create_queues(self) -> None:
        fifo = {"FifoQueue": "true"} if self.fifo else {}
        await self.sqs.call("CreateQueue", {"QueueName": self.dead, "Attributes": fifo})
        names = {"QueueUrl": self.dead, "AttributeNames": ["All"]}
        arn = (await self.sqs.call("GetQueueAttributes", names))["Attributes"]["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
        attributes = {"VisibilityTimeout": "30", "RedrivePolicy": policy, **fifo}
        await self.sqs.call("CreateQueue", {"QueueName": self.work, "Attributes": attributes})

    async def probe(self, port: int) -> str:
        """The metrics; the service is healthy and ready."""
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for path, status in (("/health", 200), ("/ready", 200), ("/else", 404)):
                async with session.get(path) as response:
                    assert response.status == status
            async with session.get("/metrics") as response:
                return await response.text()

    async def counts(self, queue: str) -> tuple[int, int]:
        """Messages that are visible, and that are held."""
        names = {"QueueUrl": queue, "AttributeNames": ["All"]}
        attributes = (await self.sqs.call("GetQueueAttributes", names))["Attributes"]
        visible = int(attributes["ApproximateNumberOfMessages"])
        in_flight = int(attributes["ApproximateNumberOfMessagesNotVisible"])
        return visible, in_flight

    async def dead_letters(self) -> dict[str, tuple[str, str]]:
        """Body → stage and reason, empty where redrive has moved it; they are deleted."""
        dead = {"QueueUrl": self.dead, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
        letters = {}
        while got := (await self.sqs.call("ReceiveMessage", dead)).get("Messages"):
            for letter in got:
                values = letter.get("MessageAttributes", {}).items()
                texts = {name.rpartition(".")[2]: value["StringValue"] for name, value in values}
                letters[letter["Body"]] = (texts.get("stage", ""), texts.get("reason", ""))
            handles = [
                {"Id": f"{n}", "ReceiptHandle": letter["ReceiptHandle"]}
                for n, letter in enumerate(got)
            ]
            await self.sqs.call("DeleteMessageBatch", {"QueueUrl": self.dead, "Entries": handles})
        return letters

    async def count_settled(self) -> int:
        return len(self.calls.accepted) + sum(await self.counts(self.dead))


def body(image: object, **more: Any) -> str:
    return json.dumps({"url": f"IMAGES/{image}", "callback_url": "CALLS", **more})
