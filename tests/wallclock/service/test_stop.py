"""From queue to callback in one process: what succeeds, what fails alone, and how it stops."""

import asyncio
import json
import signal
import weakref
from pathlib import Path

import numpy as np
import pytest

from harness.processes import gc_disabled
from tests.running import start_python
from tests.wallclock.service.local_bed import LocalBed, body
from tests.wallclock.service.toy import POISON, Toy
from wallclock.service.client import Downloader
from wallclock.service.interface import ItemError, Request

#: The service waits for its work as long as this test may last, and for receivers even longer.
PATIENT = ("grace_s=3600", "callback_patience_s=3600")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?error_rate=1", []),  # its result waits in a pause
        ("?latency_s=3600", ["read_s=0.5"]),  # it hangs
    ],
)
def test_callback_that_fails_is_not_tried_again(
    query: str, words: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its message returns to the queue; what is in work meanwhile is finished."""
    failing = json.dumps({"url": "IMAGES/1", "callback_url": f"CALLS{query}", "id": "failing"})
    slow = [body("2?latency_s=0.3", id="slow")]

    async def serve() -> LocalBed:
        bed = LocalBed(tmp_path)

        def tried() -> bool:
            return bed.calls.counts["requests"] >= 2

        async with asyncio.timeout(30):
            await bed.run([failing, body(3), *slow], *PATIENT, *words, until=1, also=tried)
        assert await bed.counts("work") == (1, 0)
        assert await bed.counts("dead") == (0, 0)
        return bed

    bed = asyncio.run(serve())
    results = [json.loads(call.body) for call in bed.calls.accepted.values()]
    assert sorted(result["result"] for result in results) == [[2], [3]]
    retried = [r.__dict__["fields"] for r in caplog.records if r.message == "retried"]
    assert [fields["stage"] for fields in retried] == ["callback"]


LOADING = """
import time
from tests.wallclock.service.toy import Toy

class Slow(Toy):
    def __init__(self) -> None:
        print("loading", flush=True)
        time.sleep(600)
"""


def test_stopped_while_the_module_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "loading.py").write_text(LOADING, encoding="utf-8")
    words = ["serve", "http://127.0.0.1:1/0/work", "module=loading:Slow"]
    with start_python("-m", "wallclock", *words, cwd=tmp_path) as service:
        try:
            assert service.stdout is not None
            assert service.stdout.readline() == "loading\n"
            service.send_signal(signal.SIGTERM)
            _, errors = service.communicate(timeout=30)
        finally:
            service.kill()
    assert errors.strip() == "wallclock: stopped; no message was taken yet"
    assert service.returncode == 128 + signal.SIGTERM


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
