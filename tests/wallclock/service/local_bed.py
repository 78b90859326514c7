"""A service and the test bed in one event loop."""

import asyncio
import json
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from harness.testbed.api import ACCOUNT
from harness.testbed.callbacks import CallbackReceiver
from harness.testbed.images import ImageServer
from harness.testbed.serving import listening
from harness.testbed.sqs import SqsServer
from tests.wallclock.service.toy import POISON
from wallclock.service.settings import read
from wallclock.service.worker import Worker, queue_of


class LocalBed:
    """A queue, its dead letters, images and a callback receiver, in this event loop."""

    def __init__(self, folder: Path) -> None:
        for n in (*range(20), POISON):
            (folder / str(n)).write_bytes(bytes([n, 0]))
        (folder / "short").write_bytes(b"x")
        self.sqs = SqsServer()
        self.images = ImageServer(folder)
        self.calls = CallbackReceiver()

    async def run(
        self,
        bodies: Sequence[str],
        *words: str,
        until: int,
        also: Callable[[], bool] = lambda: True,
    ) -> str:
        """Serve these messages until so many have been called back or are dead; the metrics.

        `also`: what else must be so before the service is stopped.
        """
        await self.sqs.call("CreateQueue", {"QueueName": "dead"})
        arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:dead"
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
        attributes = {"VisibilityTimeout": "30", "RedrivePolicy": policy}
        await self.sqs.call("CreateQueue", {"QueueName": "work", "Attributes": attributes})
        async with (
            listening(self.sqs.handle) as queue,
            listening(self.images.handle) as images,
            listening(self.calls.handle) as calls,
        ):
            for body in bodies:
                text = body.replace("IMAGES", images).replace("CALLS", calls)
                await self.sqs.call("SendMessage", {"QueueUrl": "work", "MessageBody": text})
            fixed = ["module=tests.wallclock.service.toy:Toy", "wait_s=0", "allow_private=true"]
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            setup = read([*fixed, f"port={port}", "retry_s=0", "grace_s=5", *words], {})
            module = setup.module(**setup.options)
            worker = Worker(queue_of(f"{queue}/{ACCOUNT}/work", setup.service), setup, module)
            served = asyncio.create_task(worker.run())
            async with asyncio.timeout(20):
                while not served.done() and not (await self.count_settled() >= until and also()):
                    await asyncio.sleep(0.01)
                if served.done():
                    await served  # raises
                metrics = await self.probe(port)
                worker.stop()
                assert await served == 0
        return metrics

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
        """Of up to ten dead letters: stage → body and reason."""
        dead = {"QueueUrl": "dead", "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
        letters = {}
        for letter in (await self.sqs.call("ReceiveMessage", dead))["Messages"]:
            texts = {k: v["StringValue"] for k, v in letter["MessageAttributes"].items()}
            letters[texts["wallclock.stage"]] = (letter["Body"], texts["wallclock.reason"])
        return letters

    async def count_settled(self) -> int:
        return len(self.calls.accepted) + sum(await self.counts("dead"))


def body(image: object, **more: Any) -> str:
    return json.dumps({"url": f"IMAGES/{image}", "callback_url": "CALLS", **more})
