"""Live metrics as Prometheus reads them, and the sampler of GPU and CPU use."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import psutil
import pynvml as nvml
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness import telemetry
from tests.wallclock.test_clock import FakeClock
from wallclock import metrics as monitor
from wallclock.clock import StageProfiler
from wallclock.errors import UserError
from wallclock.metrics import METRICS, Exporter, Loop


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server notices that it is to stop; by default it looks twice a second."""
    monkeypatch.setattr(BaseServer.serve_forever, "__defaults__", (0.01,))


@contextmanager
def serve_metrics(
    loop: Loop | None = None, info: dict[str, str] | None = None
) -> Iterator[Exporter]:
    exporter = monitor.serve(0, loop or Loop.from_profiler(StageProfiler()), info)
    try:
        yield exporter
    finally:
        exporter.close()


def scrape(port: int) -> dict[str, Any]:
    """Metric families by name; Prometheus takes `_total` off a counter's."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Any], name: str, sample: str = "", **labels: str) -> float:
    """The one sample with these labels: of a histogram, its `_count`, `_sum` or `_bucket`."""
    every = families[f"wallclock_{name}"].samples
    matches = [s for s in every if s.labels == labels and s.name.endswith(sample)]
    assert len(matches) == 1, (name, labels, every)
    return float(matches[0].value)


def test_any_loop_with_a_profiler() -> None:
    """Images through every stage, failures, each call in one bucket however often one looks."""
    fake = FakeClock()
    profiler = StageProfiler(clock=fake)
    label = 'a "quoted" \\ back\nslash'
    with serve_metrics(Loop.from_profiler(profiler), {"job": label}) as exporter:
        assert value(scrape(exporter.port), "images") == 0
        for ms in (1, 3, 1, 400_000):
            for _ in range(8):
                with profiler.stage("decode"):
                    fake.now += ms * 1_000_000
            with pytest.raises(ValueError, match="bad"), profiler.stage("decode"):
                raise ValueError("bad")
            with profiler.stage("forward", count=8):
                fake.now += 7
            scrape(exporter.port)
        families = scrape(exporter.port)
    assert value(families, "images") == 32
    assert value(families, "failures", "_total", stage="decode") == 4
    assert value(families, "failures", "_total", stage="forward") == 0
    assert value(families, "stage_seconds", "_sum", stage="decode") == pytest.approx(3200.04)
    upto = {"0.001": 20, "0.0025": 20, "0.005": 28, "250.0": 28, "500.0": 36, "+Inf": 36}
    for bound, calls in upto.items():
        assert value(families, "stage_seconds", "_bucket", stage="decode", le=bound) == calls
    assert families["wallclock_run_info"].samples[0].labels == {"job": label}
    names = [f"wallclock_{name.removesuffix('_total')}" for name in METRICS if "gpu" not in name]
    assert {name for name in families if "gpu" not in name} == {*names}
    assert value(families, "resident_memory_bytes") > 10e6


def test_port_that_is_taken() -> None:
    with (
        serve_metrics() as exporter,
        pytest.raises(UserError, match="cannot listen there: Address"),
    ):
        monitor.serve(exporter.port, Loop.from_profiler(StageProfiler()))


def test_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = {"first": {"gpu_mem_mib": 3.0}, "second": {"gpu_mem_mib": 5.0, "gpu_util": 50.0}}
    monkeypatch.setattr(monitor, "gpu_readings", readings.get)
    with serve_metrics() as exporter:
        exporter._handles = ["first", "second"]
        families = scrape(exporter.port)
    memory = [value(families, "gpu_memory_bytes", gpu=gpu) for gpu in ("0", "1")]
    assert memory == [3 << 20, 5 << 20]
    (only,) = families["wallclock_gpu_utilization_ratio"].samples
    assert (only.labels, only.value) == ({"gpu": "1"}, 0.5)


def test_cpu_use_of_a_child() -> None:
    sampler = telemetry.Telemetry(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            sampler.sample_cpu()
            sampler.samples.clear()
            began = time.monotonic()
            before = psutil.Process(child.pid).cpu_times().user
            while psutil.Process(child.pid).cpu_times().user < before + 0.1:
                time.sleep(0.01)
            sampler.sample_cpu()
            elapsed_s = time.monotonic() - began
        finally:
            child.kill()
    values = sampler.as_values()
    (total,), (other,) = values["cpu_cores"], values["other_cores"]
    assert total * elapsed_s > 0.09, "the child's CPU use"
    assert other >= 0
    assert sum(values["rss_mib"]) > psutil.Process().memory_info().rss / 2**20 / 2
    assert "gpu_util" not in values
    assert values["throttle_reasons"] == []


def test_a_process_of_its_own_samples_and_ends_with_the_block() -> None:
    """No thread of the timed process, no share of its cores, no child left behind."""
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), telemetry.recorded("cpu") as recorded:  # noqa: PT012
        (sampler,) = psutil.Process().children()
        assert threading.active_count() == before
        recorded.begin()
        time.sleep(8 * telemetry._PERIOD_S)
        1 / 0  # noqa: B018
    assert not sampler.is_running()
    values = recorded.values
    assert len(values["cpu_cores"]) == len(values["other_cores"]) >= 1


def test_a_reading_that_a_gpu_lacks_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of a GPU has no utilization, a virtual one no clock."""

    def lacks(*arguments: Any) -> Any:
        raise nvml.NVMLError_NotSupported

    sampler = telemetry.Telemetry(os.getpid())
    for name in ("UtilizationRates", "PowerUsage", "ClockInfo", "CurrentClocksThrottleReasons"):
        monkeypatch.setattr(nvml, f"nvmlDeviceGet{name}", lacks)
    memory = SimpleNamespace(used=3 << 20)
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", lambda handle: memory)
    sampler.sample_gpu("handle")
    sampler.sample_cpu()
    assert sampler.as_values()["gpu_mem_mib"] == [3]
    assert set(sampler.samples) == {"gpu_mem_mib", "rss_mib", "cpu_cores", "other_cores"}


@pytest.mark.cuda
def test_gpu_samples() -> None:
    with telemetry.recorded("cuda") as recorded:
        time.sleep(8 * telemetry._PERIOD_S)
    assert recorded.values["gpu_mem_mib"][0] > 0


def test_swap_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "swapped_bytes", lambda: 8192)
    with serve_metrics() as exporter:
        assert value(scrape(exporter.port), "swapped_bytes") == 8192
