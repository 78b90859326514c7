"""`ladder`: its grid in two rounds, its tables; the parts of a request, the bed, the rungs."""

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.ladder import bed
from experiments.ladder import cells as ladder
from experiments.ladder.bed import Service
from experiments.ladder.parts import PRINTED, parts, rate
from experiments.ladder.rungs import (
    RECEIVED,
    Buffers,
    Network,
    RungSettings,
    WorkItem,
    open_device,
    work_item,
)
from harness.spec import Recipe
from harness.testbed.api import Queues
from tests.experiments import made
from tests.experiments.conftest import Grid
from wallclock.recipe import ModelSpec


def test_grid(grid: Grid) -> None:
    cells = grid("ladder", "repeats=1", "corpus.image_set=small_256")
    full = [cell for cell in cells if cell.protocol == "ladder"]
    mock, model, box = (
        [cell for cell in full if cell.params["setup"] == setup]
        for setup in (ladder.MOCK, ladder.MODEL, ladder.BOX)
    )
    assert [cell.params["rung"] for cell in mock] == [1, 2, 3, 4, 5, 6, 5, 5]
    assert [cell.params["rung"] for cell in model] == [1, 2, 3, 4, 5, 6, 7]
    assert [cell.params["rung"] for cell in box] == [1, 2, 3, 4, 5, 6]
    assert [*mock, *model, *box] == full
    step, device = mock[3].model, mock[4].model
    assert step.service_ms + 8 * step.service_ms_per_image == pytest.approx(8e3 / 28)
    assert device.service_ms == pytest.approx(0.35 * step.service_ms)
    service = mock[4].params["serve"]
    assert service["preprocess_ms"] == pytest.approx(63.5 + 0.65 * 1e3 / 21, abs=0.1)
    assert (service["workers"], service["port"]) == (8, 0)
    for cell in full:
        assert cell.params["n"] % 8 == cell.params["warm_up"] % 8 == 0


def test_rungs_with_the_model(grid: Grid) -> None:
    """The configured one, on the device; downloads and callbacks as slow as the mock's."""
    random = ("model=dinov2-small", "model.weights=random")
    cells = grid("ladder", "repeats=1", "corpus.image_set=original", *random)
    model = [cell for cell in cells if cell.params["setup"] == ladder.MODEL]
    for cell in model:
        assert (cell.model.name, cell.model.weights) == ("dinov2-small", "random")
        assert cell.params["download_ms"] + cell.params["callback_ms"] == pytest.approx(2e3 / 9)
        assert cell.params["preprocess_ms"] == 0
        assert (cell.recipe.device, cell.recipe.dtype) == ("cpu", "fp32")
    service = model[4].params["serve"]
    assert service["model"] == "facebook/dinov2-small"
    assert service.items() >= {"weights": "random", "device": "cpu", "dtype": "fp32"}.items()
    assert [cell.params["n"] for cell in model] == [64, 160, 160, 160, 160, 160, 160]


def test_redelivery_is_longer_than_the_timeout(grid: Grid) -> None:
    cells = grid("ladder", "repeats=1", "corpus.image_set=small_256")
    cells = [cell for cell in cells if cell.protocol == "redelivery"]
    unbounded, bounded, serve = (cell.params for cell in cells)
    # 45 requests a second, for 8 s, in three queues.
    assert (unbounded["queue_size"], bounded["queue_size"]) == (0, 120)
    assert unbounded["n"] > 2 * 45 * 8
    assert {**bounded, "queue_size": 0} == unbounded
    assert (serve["rung"], serve["serve"]["port"]) == (5, 0)
    device = cells[2].model
    assert 8 * device.service_ms_per_image * serve["n"] > 8 * 8e3, "not all within one timeout"


def test_second_round_is_at_shares_of_what_was_measured(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[ladder]")
    options = plan.settings.experiments["ladder"]
    cells = ladder.second_round(plan, options, made.ladder())
    rates = [cell.params["rate"] for cell in cells if cell.params["rung"] == 4]
    assert rates == [30 * share for share in options["latency"]["shares"]]
    assert {cell.params["rung"] for cell in cells} == {2, 3, 4, 5}
    assert {cell.params["duty"] for cell in cells} == {0.05, 0.09}


def test_the_knee_is_the_highest_rate_within_the_bound() -> None:
    rows = ladder.tables(made.ladder())[ladder.LATENCY_CSV]
    low, high, failed = rows
    assert (low["latency_p99_ms"], low["within_bound"], low["knee"]) == (500, True, True)
    assert (high["latency_p99_ms"], high["within_bound"], high["knee"]) == (2000, False, False)
    assert (low["keeps_up"], high["keeps_up"]) == (True, False)
    assert (failed["status"], failed["knee"], failed["latency_p99_ms"]) == ("error", None, None)


def test_a_rate_that_is_not_kept_up_with_is_no_knee() -> None:
    records = [
        replace(record, samples={**record.samples, "latency": [500 * made.MS]})
        if record.cell.label == "rung-4-at-1.2"
        else record
        for record in made.ladder()
    ]
    low, high, _ = ladder.tables(records)[ladder.LATENCY_CSV]
    assert (high["within_bound"], high["keeps_up"], high["knee"]) == (True, False, False)
    assert (low["knee"], high["arrived_per_s"], high["requests_per_s"]) == (True, 36, 30)


def test_the_service_is_compared_with_what_is_not_the_sources() -> None:
    records = made.ladder()
    alike = next(record for record in records if record.cell.label == "rung-4")
    params = {**alike.cell.params, "rung": 6}
    consumer = replace(alike, cell=replace(alike.cell, label="rung-6", params=params))
    rows = ladder.tables([*records, consumer])[ladder.CSV]
    gains = {row["what"]: (row["speedup_vs_previous"], row["service_speedup"]) for row in rows}
    assert gains["rung-5"] == (2, None)
    assert gains["rung-6"] == (None, 2)


# --- parts ----------------------------------------------------------------------------------------


def test_parts_as_the_docstring_has_them() -> None:
    request = parts(0.05, 0.05)
    assert request.download_s + request.callback_s == pytest.approx(2 / 9)
    assert request.preprocess_s == pytest.approx(1 / 9 - 1 / 21)
    assert [request.step.batch_s(n) for n in (1, 8)] == pytest.approx([1 / 21, 8 / 28])
    assert (request.step.fixed_s, request.step.per_image_s) == pytest.approx(
        (0.0136, 0.0340), rel=1e-2
    )
    assert request.device_share == pytest.approx(0.35)
    assert request.device.batch_s(1) + request.host_s == pytest.approx(1 / 21)
    assert 1 / parts(0.05, 1 / 7).device.per_image_s == pytest.approx(29.4)


@given(duty=st.floats(0.01, 1 / 7), callback_ms=st.floats(10, 107))
def test_rungs_follow_whatever_the_source_leaves_open(duty: float, callback_ms: float) -> None:
    request = parts(callback_ms / 1e3, duty)
    assert [rate(rung, request) for rung in (1, 2, 3, 4)] == pytest.approx(PRINTED)
    assert rate(5, request, batch=32) <= 1 / request.device.per_image_s


@pytest.mark.parametrize(
    ("rung", "callback_s", "workers", "expected"),
    [(4, 0.2, 8, 15.0), (4, 0.05, 1, 15.75), (5, 0.2, 8, 82.96)],
)
def test_other_resources_limit_too(
    rung: int, callback_s: float, workers: int, expected: float
) -> None:
    """Three callbacks at a time, or one worker; rung 5 has as many connections as it takes."""
    request = parts(callback_s, 0.05)
    batch = 32 if rung == 5 else 8
    assert rate(rung, request, workers, batch) == pytest.approx(expected, rel=1e-3)


# --- bed ------------------------------------------------------------------------------------------


def sampled(readings: list[dict[str, float]], monkeypatch: pytest.MonkeyPatch) -> Service:
    """A service of no process beside a GPU that reads so, a second apart from 100 on."""
    service, now = Service([], gpu="handle"), 100.0
    for reading in readings:
        monkeypatch.setattr(bed, "gpu_readings", lambda handle, reading=reading: reading)
        monkeypatch.setattr("time.time", lambda now=now: now)
        service.sample()
        now += 1
    return service


def test_the_gpu_between_two_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its use in the pass alone; its memory since the start, which the model takes then."""
    readings: list[dict[str, float]] = [
        {"gpu_util": 90, "gpu_mem_mib": 1024},
        {"gpu_util": 10, "gpu_mem_mib": 2048},
        {"gpu_util": 30, "gpu_mem_mib": 1536},
        {"gpu_util": 95, "gpu_mem_mib": 512},
    ]
    used = sampled(readings, monkeypatch).used_between(100.5, 102.5)
    assert (used["gpu_util_mean"], used["gpu_used_gib"]) == (20, 2)


# --- rungs ----------------------------------------------------------------------------------------


#: The source's rung 2 answers so many a second.
RATE = 9
VISIBILITY_S = 100
WORK = {"QueueUrl": "work"}


class TurnedQueue(Network):
    """The test bed's message queue at a time of the test's; downloads and callbacks take none."""

    def __init__(self, n: int) -> None:
        self.now = 1000.0
        self.n_delivered = 0
        self.called_back = Counter[str]()
        self._queues = Queues()
        self._call("CreateQueue", QueueName="work", Attributes={"VisibilityTimeout": VISIBILITY_S})
        body = json.dumps({"url": "image", "callback_url": "done"})
        for _ in range(n):
            self._call("SendMessage", MessageBody=body)

    def _call(self, action: str, **params: Any) -> dict[str, Any]:
        return self._queues.call(action, WORK | params, self.now)

    def pull(self) -> list[WorkItem]:
        messages = self._call("ReceiveMessage", MaxNumberOfMessages=RECEIVED).get("Messages", [])
        self.n_delivered += len(messages)
        return [work_item(message) for message in messages]

    def download(self, request: WorkItem) -> bytes:
        return b""

    def call_back(self, request: WorkItem, result: Any) -> None:
        self.called_back[request.id] += 1
        self._call("DeleteMessage", ReceiptHandle=request.handle)

    def visible(self) -> int:
        return self._queues.queue(WORK).show(self.now)

    def left(self) -> int:
        return len(self._queues.queue(WORK).messages)


def serve(queue: TurnedQueue, size: int, seconds: int) -> list[int]:
    """Work like rung 2 for so long; messages left in the queue at the end of each second.

    Its threads have all the time they need between two steps of the device.
    """
    buffers = Buffers(queue, size)
    left = []
    for _ in range(seconds):
        for _ in range(RATE):
            while queue.visible() and _has_room(buffers, size):
                buffers.pull()
            while not buffers.pulled.empty() and not buffers.downloaded.full():
                buffers.download()
            if not buffers.downloaded.empty():
                request, _ = buffers.downloaded.get_nowait()
                buffers.results.put((request, []))
            queue.now += 1 / RATE
            if not buffers.results.empty():
                buffers.call_back()
        left.append(queue.left())
    return left


def _has_room(buffers: Buffers, size: int) -> bool:
    return not size or buffers.pulled.qsize() + RECEIVED <= size


def test_an_unbounded_pull_processes_the_same_messages_over_and_over() -> None:
    """3,000 requests take 333 s; the queue allows each delivery 100."""
    queue = TurnedQueue(3000)
    left = serve(queue, 0, 1000)
    in_time = RATE * VISIBILITY_S
    assert 3000 - left[VISIBILITY_S] == pytest.approx(in_time, abs=RATE)
    assert left[-1] == left[VISIBILITY_S], "nothing was completed since"
    # A delivery of each message that is left in each visibility timeout.
    assert queue.n_delivered == pytest.approx(3000 + 9 * left[-1], rel=0.01)
    callbacks = queue.called_back
    assert len(callbacks) == 3000, "each was answered, and its message came again"
    assert callbacks.total() == pytest.approx(1000 * RATE, abs=RATE)
    assert max(callbacks.values()) >= 3


def test_the_sources_bound_ends_it() -> None:
    bound = ladder.max_queue_size(VISIBILITY_S, RATE)
    assert bound == 300, "the size of the source's queues"
    queue = TurnedQueue(3000)
    left = serve(queue, bound, 340)
    assert left[-1] == 0
    assert queue.n_delivered == 3000
    assert set(queue.called_back.values()) == {1}


def test_a_model_in_place_of_the_mock() -> None:
    """Random weights: a vector of each image, which is the same alone and in a batch."""
    model = ModelSpec("tiny", dim=48, input_px=28)
    settings = RungSettings(
        queue_url="",
        rung=4,
        batch=2,
        workers=1,
        px=model.input_px,
        model=asdict(model),
        recipe=asdict(Recipe("rung", batch_size=2)),
    )
    device = open_device(settings)
    images = list(np.random.default_rng(0).normal(size=(2, 3, 28, 28)).astype(np.float32))
    together = device.step(images)
    assert np.shape(together) == (2, model.dim)
    np.testing.assert_allclose(device.step(images[1:])[0], together[1], atol=1e-4)
    assert np.ptp(together, axis=0).max() > 1e-3
    assert device.batch_s > 0
    json.dumps(together)
