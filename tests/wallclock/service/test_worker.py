"""From queue to callback in one process: what succeeds, what fails alone, and how it stops."""

import asyncio
import json
import weakref
from pathlib import Path

import numpy as np
import pytest

from harness.processes import gc_disabled
from tests.wallclock.service.local_bed import LocalBed, body
from tests.wallclock.service.toy import POISON, Toy
from wallclock.service import pipeline
from wallclock.service.batching import BatchPolicy
from wallclock.service.client import Downloader
from wallclock.service.interface import ItemError, Request


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
        asyncio.run(LocalBed(tmp_path).run([body(n) for n in range(10)], until=10))
        assert [image() for image in images] == [None] * 10


def test_stop_returns_what_is_not_finished(tmp_path: Path) -> None:
    async def serve() -> None:
        bed = LocalBed(tmp_path)
        await bed.run([body("1?latency_s=30")] * 15 + [body(2)], "grace_s=0", until=1)
        assert await bed.counts("work") == (15, 0)  # visible at once

    asyncio.run(serve())


def test_bug_in_a_stage_ends_the_service_and_returns_what_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Downloader, url: str) -> bytes:
        raise KeyError("a bug")

    async def serve() -> None:
        bed = LocalBed(tmp_path)
        with pytest.raises(ExceptionGroup) as caught:
            await bed.run([body(1)] * 15, until=1)
        assert caught.group_contains(KeyError, match="a bug")
        assert await bed.counts("work") == (15, 0)

    monkeypatch.setattr(Downloader, "get", broken)
    asyncio.run(serve())


def test_parameters_reach_the_rows_that_they_came_with(tmp_path: Path) -> None:
    """In a batch, and alone after a batch that failed."""
    bodies = [body(n, id=str(n), parameters={"add": 100 * n}) for n in (*range(20), POISON)]

    async def serve() -> LocalBed:
        bed = LocalBed(tmp_path)
        module = "module=tests.wallclock.service.toy:Adding"
        await bed.run(bodies, module, "batch=8", "max_wait_s=0.5", until=21)
        return bed

    accepted = asyncio.run(serve()).calls.accepted.values()
    results = {r["id"]: r["result"] for r in (json.loads(call.body) for call in accepted)}
    assert results == {str(n): 101 * n for n in range(20)}


def test_settings_reach_the_bound_of_what_is_held(tmp_path: Path) -> None:
    """A batch, all downloads and all receives have room before a rate is measured."""
    words = ("batch=11", "downloads=10", "pulls=1")
    metrics = asyncio.run(LocalBed(tmp_path).run([body(1)], *words, until=1))
    assert "wallclock_service_held_limit 31.0" in metrics


def test_the_policy_hears_of_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list[int]()

    class Recording(BatchPolicy):
        def observe(self, n: int, seconds: float) -> None:
            rows.append(n)
            super().observe(n, seconds)

    monkeypatch.setattr(pipeline, "BatchPolicy", Recording)
    bodies = [body(n % 20) for n in range(30)]
    asyncio.run(LocalBed(tmp_path).run(bodies, "max_wait_s=10", "batch=8", until=30))
    assert sum(rows) == 30
    assert rows[:4] == [1, 1, 1, 2]
