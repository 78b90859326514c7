"""From queue to callback in one process: what succeeds, what fails alone, and how it stops."""

import asyncio
import json
import socket
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from harness.testbed.api import ACCOUNT
from harness.testbed.callbacks import CallbackReceiver
from harness.testbed.images import ImageServer
from harness.testbed.serving import listening
from harness.testbed.sqs import SqsServer
from tests.wallclock.service.toy import POISON, Toy
from wallclock.clock import gc_disabled
from wallclock.service.download import Downloader
from wallclock.service.module import ItemError, Request
from wallclock.service.settings import read
from wallclock.service.worker import Worker


class Bed:
    """A queue, its dead letters, images and a callback receiver, in this event loop."""

    def __init__(self, folder: Path) -> None:
        for n in (*range(20), POISON):
            (folder / str(n)).write_bytes(bytes([n, 0]))
        (folder / "short").write_bytes(b"x")
        self.sqs = SqsServer()
        self.images = ImageServer(folder)
        self.calls = CallbackReceiver()

    async def run(self, bodies: Sequence[str], *words: str, until: int) -> str:
        """Serve these messages until so many have been called back or are dead; the metrics."""
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
            worker = Worker(f"{queue}/{ACCOUNT}/work", setup, Toy())
            served = asyncio.create_task(worker.run())
            async with asyncio.timeout(20):
                while not served.done() and await self.count_settled() < until:
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

    async def count_settled(self) -> int:
        return len(self.calls.accepted) + sum(await self.counts("dead"))


def body(image: object, **more: Any) -> str:
    return json.dumps({"url": f"IMAGES/{image}", "callback_url": "CALLS", **more})


def test_every_message_is_called_back_or_dead_lettered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = [body(n, id=f"request {n}") for n in range(20)]
    refusing = json.dumps({"url": "IMAGES/1", "callback_url": "CALLS?error_rate=1&status=410"})
    bad = ["{", body("short"), body("none"), body(POISON), refusing]

    async def serve() -> tuple[Bed, list[Any]]:
        bed = Bed(tmp_path)
        metrics = await bed.run([*bad, *good], until=25)
        outcomes = {"delivered": 20, "dead_lettered": 5, "retried": 1, "lost": 0, "duplicate": 0}
        for outcome, n in outcomes.items():
            assert f'wallclock_service_messages_total{{outcome="{outcome}"}} {n}.0' in metrics
        assert "wallclock_service_redeliveries_total 1.0" in metrics
        assert await bed.counts("work") == (0, 0)
        dead = {"QueueUrl": "dead", "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
        return bed, (await bed.sqs.call("ReceiveMessage", dead))["Messages"]

    bed, dead = asyncio.run(serve())
    results = [json.loads(accepted.body) for accepted in bed.calls.accepted.values()]
    assert sorted(results, key=lambda result: int(result["result"][0])) == [
        {"id": f"request {n}", "result": [n]} for n in range(20)
    ]
    why = {}
    for letter in dead:
        texts = {k: v["StringValue"] for k, v in letter["MessageAttributes"].items()}
        why[texts["wallclock.stage"]] = (letter["Body"], texts["wallclock.reason"])
    assert sorted(why) == ["callback", "decode", "download", "parse", "process"]
    assert why["parse"][0] == "{"
    assert why["decode"][1] == "truncated"
    assert why["process"][1] == f"{POISON} in a batch"
    # Transient: tried as often as the queue says; the others once.
    retried = [record for record in caplog.records if record.message == "retried"]
    assert [record.__dict__["fields"]["stage"] for record in retried] == ["process"]


def test_failed_image_is_freed_without_a_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = list[weakref.ref[np.ndarray]]()

    def refuse(self: Toy, image: bytes, request: Request) -> np.ndarray:
        pixels = np.zeros(1_000_000, np.uint8)
        images.append(weakref.ref(pixels))
        raise ItemError("decode", "refused", permanent=True)

    monkeypatch.setattr(Toy, "preprocess", refuse)
    with gc_disabled():
        asyncio.run(Bed(tmp_path).run([body(n) for n in range(10)], until=10))
        assert [image() for image in images] == [None] * 10


def test_stop_returns_what_is_not_finished(tmp_path: Path) -> None:
    async def serve() -> None:
        bed = Bed(tmp_path)
        await bed.run([body("1?latency_s=30")] * 15 + [body(2)], "grace_s=0", until=1)
        assert await bed.counts("work") == (15, 0)  # visible at once

    asyncio.run(serve())


def test_bug_in_a_stage_ends_the_service_and_returns_what_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Downloader, url: str) -> bytes:
        raise KeyError("a bug")

    async def serve() -> None:
        bed = Bed(tmp_path)
        with pytest.raises(ExceptionGroup) as caught:
            await bed.run([body(1)] * 15, until=1)
        assert caught.group_contains(KeyError, match="a bug")
        assert await bed.counts("work") == (15, 0)

    monkeypatch.setattr(Downloader, "get", broken)
    asyncio.run(serve())
