"""Protocols `ladder` and `redelivery`: what is sent, waited for, counted and refused."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.ladder.measure import arrivals, check, count_late, ladder, redelivery
from harness.protocols.protocol import no_progress
from harness.spec import Cell, Recipe
from tests.devices import Device
from tests.experiments import made
from tests.families import FAMILIES
from wallclock.recipe import ModelSpec

#: A device ten times as fast as the source's.
MOCK = ModelSpec("null", weights="none", service_ms=1.4, service_ms_per_image=3.4)


@given(rate=st.floats(0.1, 5000), seed=st.integers(0, 99))
def test_arrivals_are_poisson(rate: float, seed: int) -> None:
    times = arrivals(rate, 2000, seed)
    assert times == sorted(times)
    assert arrivals(rate, 2000, seed) == times
    # The last of n arrivals is at n / rate, give or take 5 standard deviations.
    assert times[-1] * rate == pytest.approx(2000, abs=5 * 2000**0.5)
    gaps = [(b - a) * rate for a, b in zip([0.0, *times], times, strict=False)]
    assert sum(gap > 1 for gap in gaps) / 2000 == pytest.approx(0.368, abs=0.06)


@pytest.mark.parametrize(
    ("accepted", "counts", "left", "reason"),
    [
        ("a", {}, 0, "of 2 requests 1 lost"),
        ("abc", {}, 0, "1 unknown"),
        ("ab", {"duplicates": 2, "conflicts": 1}, 0, "2 duplicates, 1 conflicts"),
        ("ab", {}, 3, "3 left in the queue"),
    ],
)
def test_a_request_lost_or_answered_twice_fails(
    accepted: str, counts: dict[str, int], left: int, reason: str
) -> None:
    check({"a", "b"}, {"a", "b"}, Counter(), 0)
    with pytest.raises(RuntimeError, match=reason):
        check({"a", "b"}, set(accepted), Counter(counts), left)


def run(
    work: Path, rung: int, *, model: ModelSpec = MOCK, device: str = "cpu", **changes: Any
) -> dict[str, Any]:
    """A short pass of a rung on a mock ten times as fast as the source's; its values."""
    corpus = next(iter(made.plan(work, "experiment=[ladder]").slices({"original": 3}).values()))
    params = {
        "rung": rung,
        "n": 24,
        "warm_up": 8,
        "rate": 0.0,
        "seed": 0,
        "page_cache": "warm",
        "download_ms": 17.0,
        "callback_ms": 5.0,
        "preprocess_ms": 6.3,
        "queue_size": 300,
        "serve": {},
        "services": 0 if rung == 5 else 1,
    }
    recipe = Recipe("rung", workers=2, batch_size=8, device=device)
    cell = Cell("ladder", "ladder", "x", 0, recipe, corpus, model, params | changes)
    (work / "work").mkdir()
    measured = ladder(cell, work / "work", no_progress)
    assert sum(measured.samples["wall"]) > 0
    return measured.values | dict(measured.samples)


#: Of `wallclock serve`: the mock machine's module.
SERVE = {
    "module": "experiments.ladder.mock_module:MockMachine",
    "preprocess_ms": 6.3,
    "step_ms_per_image": 3.4,
    "port": 0,
    "allow_private": "true",
}


@pytest.mark.slow
@pytest.mark.parametrize("rung", [1, 2, 3, 4, 5, 6, 7])
def test_every_request_is_answered_once(tmp_path: Path, rung: int) -> None:
    if needed := {5: "wallclock.service.worker", 7: "litserve"}.get(rung):
        pytest.importorskip(needed)
    values = run(tmp_path, rung, serve=SERVE)
    counts = {"n_loaded": 24, "n_requests": 32, "redeliveries": 0, "wasted": 0, "rung": rung}
    assert {name: values[name] for name in counts} == counts
    assert 0 < values["cpu_s"] < 60
    assert values["image_bytes"] > 32 * 500
    assert values["peak_memory_mib"] > 20


@pytest.mark.slow
def test_a_service_with_a_network_on_a_device(device: Device, tmp_path: Path) -> None:
    """Rung 5 with vectors that a device makes: each request is answered once."""
    folder = tmp_path / "model"
    FAMILIES["dinov2"](folder)
    serve = {"model": str(folder), "device": "cuda", "dtype": "fp32", "batch": 8}
    serve |= {"port": 0, "allow_private": "true"}
    if device.fake:
        serve["module"] = "tests.on_fake_device:OnFakeDevice"
    values = run(tmp_path, 5, serve=serve, services=1)
    counts = {"n_loaded": 24, "n_requests": 32, "redeliveries": 0, "wasted": 0}
    assert {name: values[name] for name in counts} == counts


@pytest.mark.slow
def test_arrivals_have_latencies(tmp_path: Path) -> None:
    values = run(tmp_path, 2, rate=20.0)
    assert len(values["latency"]) == 24
    least_s = 0.017 + 0.0063 + 0.0048 + 0.005
    assert min(values["latency"]) > 1e9 * least_s
    assert 0 <= values["late_s"] < 60


@pytest.mark.slow
def test_a_service_that_ends_is_an_error_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"the service ended with status 1: TypeError"):
        run(tmp_path, 2, preprocess_ms="x")


#: Fifty requests a second.
SLOW = ModelSpec("null", weights="none", service_ms_per_image=20)
N, VISIBILITY_S = 400, 4


def answer_backlog(work: Path, queue_size: int, seconds: float) -> dict[str, Any]:
    """Rung 2's values and the duration of a pass."""
    corpus = next(iter(made.plan(work, "experiment=[ladder]").slices({"original": 3}).values()))
    params: dict[str, Any] = {"rung": 2, "n": N, "seconds": seconds, "visibility_s": VISIBILITY_S}
    params |= {"queue_size": queue_size, "services": 1, "serve": {}, "page_cache": "warm"}
    params |= {"download_ms": 5.0, "callback_ms": 5.0, "preprocess_ms": 0.0}
    cell = Cell("ladder", "redelivery", "x", 0, Recipe("rung"), corpus, SLOW, params)
    (work / "work").mkdir()
    measured = redelivery(cell, work / "work", no_progress)
    return measured.values | {"wall_s": measured.samples["wall"][0] / 1e9}


@pytest.mark.slow
def test_with_the_bound_all_are_completed(tmp_path: Path) -> None:
    """How often each comes depends on the machine's load: test_ladder.py has its own clock."""
    values = answer_backlog(tmp_path, queue_size=40, seconds=60)
    assert values["completed"] == values["accepted"] == N
    assert values["completed_late"] > 0


def test_the_second_half() -> None:
    assert count_late([0, 1, 2, 3, 4], [0, 5, 7, 8, 8]) == 1
    assert count_late([0, 10], [0, 9]) == 9
