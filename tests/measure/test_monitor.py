"""Live metrics: what a real run exports while it goes on, read as Prometheus reads it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import ROOT
from wallclock.clock import STAGES
from wallclock.measure.monitor import METRICS, Monitor
from wallclock.spec import Cell, ModelSpec, Recipe


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


def test_a_run_exports_while_it_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "watched, here"
    arguments = (
        *("--n", "16", "--experiment", "t4", "--export", str(folder), "device=cpu", "model=null"),
        *("model.service_ms=160", "repeats=1", "experiment.t4.recipe.workers=1"),
        *("experiment.t4.recipe.batch_size=4", f"out={tmp_path / 'data'}"),
        f"figures={tmp_path / 'figures'}",
    )
    seen = set()
    with subprocess.Popen(
        [sys.executable, "code/main.py", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        while run.poll() is None:
            if (folder / "wallclock.prom").exists():
                seen.add(value(folder, "images_total"))
            time.sleep(0.02)
        assert run.stdout is not None
        assert run.returncode == 0, run.stdout.read()
    assert len(seen) >= 2, "it was written once only"
    assert [*families(folder)] == [f"wallclock_{name.removesuffix('_total')}" for name in METRICS]
    n_images, n_batches = value(folder, "images_total"), value(folder, "batches_total")
    assert n_images == value(folder, "stage_calls_total", stage="decode") == 60
    assert n_batches == value(folder, "stage_calls_total", stage="forward") == 15
    assert value(folder, "stage_seconds_total", stage="forward") >= 15 * 0.16
    assert 0 < value(folder, "accelerator_utilization_ratio") <= 1
    info = {"experiment": "t4", "cell": "baseline", "repeat": "0"}
    assert value(folder, "run_info", **info) == 1
    lines = lines_in(folder)
    assert {line["images_total"] for line in lines} >= seen
    for before, after in pairwise(line["stage_seconds_total"] for line in lines):
        assert all(after[name] >= before[name] for name in STAGES)
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
        assert line["stage_seconds_total"]["forward"] == pytest.approx(
            line["batches_total"] * 0.125
        )
        assert line["images_per_second"] == 32
        assert line["accelerator_utilization_ratio"] == 0.5
        assert line["queue_batches"] == 3
