"""The stages between a queue in memory and downloads and callbacks that the test answers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson
import pytest

from tests.wallclock.service.local_bed import LocalBed, body
from tests.wallclock.service.test_intake import BODY, Case
from tests.wallclock.service.toy import Toy
from wallclock.errors import ImageError
from wallclock.fetch.retries import PermanentError, RequestError, TransientError
from wallclock.service.callbacks import CallbackSender
from wallclock.service.client import Downloader
from wallclock.service.interface import ItemError, Module, Request
from wallclock.service.leases import Message
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


@pytest.mark.parametrize(("max_wait_s", "is_full"), [(3600, True), (0, False)])
def test_a_batch_is_what_waits_or_comes_in_time(max_wait_s: float, is_full: bool) -> None:
    """Up to `batch` rows. What comes while one is in `process` waits for the next."""
    case, requests, sizes = Case(), Requests(), list[int]()

    class Noting(Toy):
        def process(self, batch: np.ndarray) -> Sequence[Any]:
            while not sizes and pipeline._buffers["batch"].qsize() < 6 - len(batch):
                time.sleep(0.001)
            sizes.append(len(batch))
            return super().process(batch)

    pipeline = pipeline_of(case, requests, Noting(), batch=3, max_wait_s=max_wait_s)
    messages = [Message(name, name, BODY) for name in "abcdef"]
    serve(case, pipeline, lambda: len(requests.sent) == 6, *messages)
    assert (sizes[0] == 3, sizes[1]) == (is_full, 3)


@pytest.mark.parametrize(
    ("error", "outcome", "sent"),
    [(TransientError("HTTP 503", 503), "delivered", 2), (PermanentError("HTTP 400"), "", 1)],
)
def test_a_callback_is_sent_again_unless_it_is_refused(
    error: RequestError, outcome: str, sent: int
) -> None:
    """With the same key. A refused one ends as a dead letter."""
    case, requests = Case(), Requests()

    async def fail() -> None:
        raise error

    requests.during["send"] = fail
    pipeline, end = pipeline_of(case, requests, Toy()), outcome or "dead_lettered"
    serve(case, pipeline, lambda: case.count(end) == 1, Message("a", "a1", BODY))
    assert [key for key, _ in requests.sent] == ["a"] * sent


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
