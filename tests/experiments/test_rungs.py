"""A queue-driven service, rung by rung: its parts, its bed, its rungs."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.ladder import bed
from experiments.ladder.bed import Service, shared
from experiments.ladder.parts import PRINTED, parts, rate
from experiments.ladder.rungs import RungSettings, open_device
from wallclock.recipe import ModelSpec, Recipe

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


@pytest.mark.parametrize(("duty", "times"), [(0.05, 2.96), (0.09, 1.65), (1 / 7, 1.04)])
def test_rung_5_depends_on_the_duty(duty: float, times: float) -> None:
    assert rate(5, parts(0.05, duty), batch=32) / PRINTED[3] == pytest.approx(times, abs=0.01)


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


@pytest.mark.parametrize(
    ("callback_s", "duty", "printed"),
    [(0.3, 0.05, PRINTED), (0.05, 0.2, PRINTED), (0.05, 0, PRINTED), (0.05, 0.05, (3, 9, 9, 28))],
)
def test_no_parts(callback_s: float, duty: float, printed: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="no parts give"):
        parts(callback_s, duty, printed)


# --- bed ------------------------------------------------------------------------------------------


def test_processes_share_the_cores() -> None:
    assert shared({"port": 0}, 1, 8) == {"port": 0}
    assert shared({"port": 0}, 3, 8) == {"port": 0, "workers": 2}
    assert shared({}, 4, 2) == {"workers": 1}
    assert shared({"workers": 8}, 2, 2) == {"workers": 8}


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


def test_a_gpu_that_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice has no utilization."""
    used = sampled([{}, {"gpu_mem_mib": 1024}], monkeypatch).used_between(100, 101)
    assert "gpu_util_mean" not in used
    assert used["gpu_used_gib"] == 1


def test_no_gpu() -> None:
    service = Service([])
    service.sample()
    assert service.used_between(0, 1).keys() == {"cpu_s", "peak_memory_mib"}


# --- rungs ----------------------------------------------------------------------------------------


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
