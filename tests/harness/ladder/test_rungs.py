"""Rung 2's buffers between a message queue and a device, under a clock that the tests turn."""

import json
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from harness.ladder.rungs import (
    RECEIVED,
    Buffers,
    Network,
    RungSettings,
    WorkItem,
    open_device,
    work_item,
)
from harness.testbed.api import Queues
from wallclock.recipe import ModelSpec, Recipe
from wallclock.service.limits import max_queue_size

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
    """3,000 requests take 333 s, of which the queue allows each delivery 100."""
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
    bound = max_queue_size(VISIBILITY_S, RATE)
    assert bound == 300, "the size of the source's queues"
    queue = TurnedQueue(3000)
    left = serve(queue, bound, 340)
    assert left[-1] == 0
    assert queue.n_delivered == 3000
    assert set(queue.called_back.values()) == {1}


def test_twice_the_bound_is_too_much() -> None:
    """Its last message waits in two full queues for longer than the timeout."""
    queue = TurnedQueue(3000)
    serve(queue, 2 * max_queue_size(VISIBILITY_S, RATE), 340)
    assert queue.n_delivered > 3000
    assert queue.left() > 0


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


def test_the_mock_sleeps_what_is_left_of_its_step() -> None:
    settings = RungSettings("", rung=4, batch=2, workers=1, px=8, step_ms=5, step_ms_per_image=10)
    device = open_device(settings)
    assert device.batch_s == pytest.approx(0.025)
    assert device.step([np.zeros((3, 8, 8), np.float32)] * 2) == [[], []]
    assert replace(settings, rung=3).batch_size == 1
