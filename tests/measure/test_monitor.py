"""Live metrics as Prometheus reads them, and the sampler of GPU and CPU use."""

import json
import os
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml as nvml
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import RunMain
from tests.measure.conftest import FORKS
from wallclock.clock import STAGES
from wallclock.measure import monitor, telemetry
from wallclock.measure.monitor import METRICS, Monitor
from wallclock.measure.throughput import throughput
from wallclock.spec import Cell, ModelSpec, Recipe, Slice


def cell_of(label: str) -> Cell:
    return Cell("t4", "throughput", label, 0, Recipe("x"), None, ModelSpec("m"))


def families(folder: Path) -> dict[str, Any]:
    """Metric families by name; Prometheus takes `_total` off a counter's."""
    text = (folder / "wallclock.prom").read_text(encoding="utf-8")
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(folder: Path, name: str, **labels: str) -> float:
    family = families(folder)[f"wallclock_{name.removesuffix('_total')}"]
    (sample,) = [sample for sample in family.samples if sample.labels == labels]
    return float(sample.value)


def lines_in(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "wallclock.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_the_option_reaches_the_run(run_main: RunMain, tmp_path: Path) -> None:
    folder = tmp_path / "watched, here"
    arguments = ("--n", "4", "--experiment", "batch", "--export", str(folder), "repeats=1")
    paths = (f"out={tmp_path / 'data'}", f"figures={tmp_path / 'figures'}")
    one = "experiment.batch.batch_sizes=[8]"
    done = run_main(*arguments, one, "device=cpu", "model=null", *paths)
    assert done.returncode == 0, done.stdout + done.stderr
    assert value(folder, "run_info", experiment="batch", cell="batch-8", repeat="0") == 1


@FORKS
def test_exports_as_it_runs(corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, work = tmp_path / "watched", tmp_path / "work"
    work.mkdir()
    recipe = Recipe("baseline", engine="dataloader", workers=1, batch_size=4)
    model = ModelSpec("null", weights="none", input_px=32, service_ms=20.0)
    cell = Cell("t4", "throughput", "baseline", 0, recipe, corpus, model)
    monkeypatch.setattr(monitor, "_PERIOD_S", 0.05)
    monkeypatch.setattr(monitor, "current", Monitor(folder, cell))
    seen = set()

    def read(images: int) -> None:
        if (folder / "wallclock.prom").exists():
            seen.add(value(folder, "images_total"))

    throughput(cell, work, read)
    assert len(seen) >= 2, "it was written once only"
    assert [*families(folder)] == [f"wallclock_{name.removesuffix('_total')}" for name in METRICS]
    n_images, n_batches = value(folder, "images_total"), value(folder, "batches_total")
    assert n_images == value(folder, "stage_calls_total", stage="decode") == 60
    assert n_batches == value(folder, "stage_calls_total", stage="forward") == 15
    assert value(folder, "stage_seconds_total", stage="forward") >= 15 * 0.02
    assert value(folder, "run_info", experiment="t4", cell="baseline", repeat="0") == 1
    lines = lines_in(folder)
    assert {line["images_total"] for line in lines} >= seen
    for before, after in pairwise(line["stage_seconds_total"] for line in lines):
        assert all(after[name] >= before[name] for name in STAGES)
    assert 0 < max(line["accelerator_utilization_ratio"] for line in lines) <= 1
    assert max(line["queue_batches"] for line in lines) >= 1, "the worker is far ahead"


def test_labels_may_hold_anything(tmp_path: Path) -> None:
    label = 'a "quoted" \\ back\nslash'
    samples: dict[str, list[int]] = {name: [1] for name in (*STAGES, "wait")}
    Monitor(tmp_path, cell_of(label)).update(samples, 1, 1, 0, lambda: 0, final=True)
    assert families(tmp_path)["wallclock_run_info"].samples[0].labels["cell"] == label


def test_one_line_a_second_counts_each_call_once(tmp_path: Path) -> None:
    now = [100.0]
    monitor = Monitor(tmp_path, cell_of("x"), clock=lambda: now[0])
    samples: dict[str, list[int]] = {name: [] for name in (*STAGES, "wait")}
    for batch in range(1, 13):
        now[0] += 0.25
        samples["forward"].append(125_000_000)
        monitor.update(samples, 8 * batch, batch, 0, lambda: 3)
    lines = lines_in(tmp_path)
    assert [line["batches_total"] for line in lines] == [4, 8, 12]
    for line in lines:
        forward_s = line["stage_seconds_total"]["forward"]
        assert forward_s == pytest.approx(line["batches_total"] * 0.125)
        assert (line["images_per_second"], line["queue_batches"]) == (32, 3)
        assert line["accelerator_utilization_ratio"] == 0.5


def test_cpu_use_of_a_child() -> None:
    sampler = telemetry.Telemetry(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            sampler.sample_cpu()
            sampler.clear()
            before = psutil.Process(child.pid).cpu_times().user
            while psutil.Process(child.pid).cpu_times().user < before + 0.1:
                time.sleep(0.01)
            sampler.sample_cpu()
        finally:
            child.kill()
    values = sampler.as_values()
    (total,), (other,) = values["cpu_cores"], values["other_cores"]
    own, *children = (cores for (cores,) in values["cpu_cores_by_process"])
    assert max(children) > 0, "the child's CPU use"
    assert total == pytest.approx(own + sum(children), abs=1e-3)
    assert other >= 0
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
    assert len(values["cpu_cores_by_process"]) == 1, "the sampler is none of them"


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
    assert set(sampler.samples) == {"gpu_mem_mib", "cpu_cores", "other_cores"}


@pytest.mark.cuda
def test_gpu_samples() -> None:
    with telemetry.recorded("cuda") as recorded:
        time.sleep(8 * telemetry._PERIOD_S)
    assert recorded.values["gpu_mem_mib"][0] > 0
