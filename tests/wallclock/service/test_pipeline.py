"""The stages between a queue in memory and downloads and callbacks that the test answers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson
import pytest

from tests import making
from tests.wallclock.service.local_bed import LocalBed, body
from tests.wallclock.service.test_intake import BODY, Case
from tests.wallclock.service.toy import Toy
from wallclock import native
from wallclock.errors import ImageError
from wallclock.service.callbacks import CallbackSender
from wallclock.service.client import Downloader
from wallclock.service.interface import ItemError, Module, Request
from wallclock.service.leases import Message
from wallclock.service.modules import Embedding
from wallclock.service.pipeline import ServicePipeline
from wallclock.service.settings import ServiceSettings

IMAGE = bytes(2)


async def nothing() -> None:
    """What happens during a call, unless a test says it."""


class Requests:
    """Downloads and callbacks: `during` is awaited in the first of each kind."""

    def __init__(self) -> None:
        self.image = IMAGE
        self.sent: list[tuple[str, Any]] = []
        self.during: dict[str, Callable[[], Awaitable[None]]] = {}

    async def get(self, url: str) -> bytes:
        await self.during.pop("get", nothing)()
        return self.image

    async def send(self, url: str, key: str, data: bytes) -> None:
        self.sent.append((key, orjson.loads(data)))
        await self.during.pop("send", nothing)()


def pipeline_of(case: Case, requests: Requests, module: Module, **values: Any) -> ServicePipeline:
    return ServicePipeline(
        module,
        case.intake,
        cast(Downloader, requests),
        cast(CallbackSender, requests),
        ServiceSettings(workers=1, **values),
        case.metrics,
        clock=lambda: case.now,
    )


def serve(
    case: Case, pipeline: ServicePipeline, until: Callable[[], bool], *messages: Message
) -> None:
    """Take messages, and work until the condition holds."""

    async def session() -> None:
        for message in messages:
            case.intake._take(message, case.now, pipeline.accept)
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            tasks = [group.create_task(stage) for stage in pipeline.tasks()]
            while not until():
                await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()
        await case.intake.give_back(1)

    asyncio.run(session())
    pipeline.close()


def test_what_another_delivery_has_settled_is_not_called_back() -> None:
    """The lease ends during the callback, and the message is delivered to this process again."""
    case, requests = Case(), Requests()
    pipeline = pipeline_of(case, requests, Toy(), callbacks=1)

    async def deliver_again() -> None:
        case.now = 30
        case.intake.leases.expire()
        case.intake._take(Message("a", "a2", BODY, 2), case.now, pipeline.accept)
        while not pipeline._buffers["results"].qsize():
            await asyncio.sleep(0.001)

    requests.during["send"] = deliver_again

    def is_settled() -> bool:
        return case.count("delivered") + case.count("duplicate") == 2

    serve(case, pipeline, is_settled, Message("a", "a1", BODY))
    assert [key for key, _ in requests.sent] == ["a"]
    assert ("delete", "a2") in case.queue.calls
    assert (case.count("delivered"), case.count("duplicate")) == (1, 1)


def test_two_messages_of_one_name_have_two_keys() -> None:
    case, requests = Case(), Requests()
    text = '{"id": "same", "url": "u", "callback_url": "c"}'
    messages = [Message(name, name, text) for name in "ab"]
    serve(case, pipeline_of(case, requests, Toy()), lambda: len(requests.sent) == 2, *messages)
    result = {"id": "same", "result": [0]}
    assert sorted(requests.sent, key=str) == [("a", result), ("b", result)]


@dataclass
class Score:
    """A result that orjson writes as an object."""

    of: list[float]
    label: None = None


class Returning(Toy):
    """Returns what a test says."""

    def __init__(self, results: Any) -> None:
        super().__init__()
        self._results = results

    def process(self, batch: np.ndarray) -> Any:
        return self._results


@pytest.mark.parametrize(
    ("results", "outcome"),
    [
        ([], "retried"),
        ([1, 2], "retried"),
        ([object()], "dead_lettered"),
        ([ImageError("forward", "not finite")], "dead_lettered"),
        ([ItemError("process", "busy")], "retried"),
        ([np.array([1, np.nan], np.float16)], "dead_lettered"),
        ([{"a": [None, (1, float("inf"))]}], "dead_lettered"),
        ([np.float32("nan")], "dead_lettered"),
        ([Score([np.float64("nan")])], "dead_lettered"),
        ([Score([1.0])], "delivered"),
        ({"scores": [1]}, "retried"),
        ([{"a": [None, "null", np.ones(2, np.float32)]}], "delivered"),
    ],
)
def test_a_result_that_cannot_be_a_row_s_is_not_called_back(results: object, outcome: str) -> None:
    """Another number than rows may be mended by another try; no JSON and no number are not."""
    case, requests = Case(), Requests()
    pipeline = pipeline_of(case, requests, Returning(results))
    serve(case, pipeline, lambda: case.count(outcome) == 1, Message("a", "a1", BODY))
    assert len(requests.sent) == (outcome == "delivered")


def test_work_ends_with_its_lease() -> None:
    """Redelivery brings the message again: its image is not decoded for nobody."""
    case, requests = Case(), Requests()
    decoded = list[bytes]()

    class Counting(Toy):
        def preprocess(self, image: bytes, request: Request) -> np.ndarray:
            decoded.append(image)
            return super().preprocess(image, request)

    pipeline = pipeline_of(case, requests, Counting(), downloads=1)

    async def lose() -> None:
        case.intake.leases.give_up(case.intake.leases.all()[0])

    requests.during["get"] = lose
    messages = [Message(name, name, BODY) for name in "ab"]
    serve(case, pipeline, lambda: "b" in dict(requests.sent), *messages)
    assert ([key for key, _ in requests.sent], decoded) == (["b"], [IMAGE])


class Refusing(Toy):
    """Refuses the images of some messages, and calls `during` before."""

    def __init__(self, names: str, during: Callable[[], object] = int) -> None:
        super().__init__()
        self._names, self._during = names, during

    def preprocess(self, image: bytes, request: Request) -> np.ndarray:
        self._during()
        if request.id in self._names:
            raise ItemError("decode", "refused", permanent=True)
        return super().preprocess(image, request)


def test_bytes_of_an_image_count_until_it_is_done_with() -> None:
    case, requests, pressed = Case(), Requests(), list[bool]()
    requests.image = bytes(1_000_000)
    module = Refusing("a", lambda: pressed.append(pipeline.pressed()))
    pipeline = pipeline_of(case, requests, module, buffer_mb=1)
    messages = [Message(name, name, BODY) for name in "ab"]

    def is_over() -> bool:
        return case.count("dead_lettered") + case.count("delivered") == 2

    serve(case, pipeline, is_over, *messages)
    assert pressed == [True, True]
    assert not pipeline.pressed()
    assert pipeline._n_bytes == 0


@pytest.mark.skipif(native.find() is None, reason=f"native: {native.described()}")
def test_fallbacks_are_counted() -> None:
    """Here a JPEG without its end."""
    case, requests = Case(), Requests()
    requests.image = making.jpeg()[:-2]
    pipeline = pipeline_of(case, requests, Embedding(model="null"))
    serve(case, pipeline, lambda: case.count("dead_lettered") == 1, Message("a", "a", BODY))
    assert case.metrics.registry.get_sample_value("wallclock_service_fallbacks_total") == 1


def test_a_batch_does_not_wait_for_an_image_that_has_failed() -> None:
    case, requests = Case(), Requests()
    pipeline = pipeline_of(case, requests, Refusing("a"), max_wait_s=3600)
    for _ in range(3):
        pipeline._policy.observe(1, 1.0)
    assert pipeline._policy.size == 2
    messages = [Message(name, name, BODY) for name in "ab"]
    serve(case, pipeline, lambda: len(requests.sent) == 1, *messages)


def test_a_batch_that_does_not_end_is_told() -> None:
    case, requests, told = Case(visibility_s=3600), Requests(), list[str]()

    class Slow(Toy):
        def process(self, batch: np.ndarray) -> Sequence[Any]:
            for seconds in (299, 2):
                case.now += seconds
                told.append(pipeline.stalled())
            return super().process(batch)

    pipeline = pipeline_of(case, requests, Slow(), stall_s=300)
    assert pipeline.stalled() == ""
    serve(case, pipeline, lambda: len(requests.sent) == 1, Message("a", "a1", BODY))
    assert told == ["", "a batch takes 301 s"]
    assert pipeline.stalled() == ""


def test_a_stop_pulls_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it waits for what is in work, another process may take the rest of the queue."""
    stop = ServicePipeline.stop

    async def run() -> LocalBed:
        bed, sending = LocalBed(tmp_path), list[asyncio.Task[Any]]()

        def stop_and_send(pipeline: ServicePipeline) -> None:
            stop(pipeline)
            late = {"QueueUrl": "work", "MessageBody": BODY}
            sending.append(asyncio.create_task(bed.sqs.call("SendMessage", late)))

        monkeypatch.setattr(ServicePipeline, "stop", stop_and_send)
        slow = body("2?latency_s=0.6", id="slow")
        await bed.run([body(1), slow], "wait_s=0", until=1)
        await asyncio.gather(*sending)
        assert await bed.counts("work") == (1, 0)
        return bed

    bed = asyncio.run(run())
    assert (bed.images.counts["requests"], len(bed.calls.accepted)) == (2, 2)
