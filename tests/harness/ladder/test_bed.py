"""What a service used, and how it is started."""

import pytest

from harness.ladder import bed
from harness.ladder.bed import Service, shared


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
