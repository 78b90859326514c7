"""A long run watched: what a real run exports while it goes on, read as Prometheus reads it."""

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


def families(text: str) -> dict[str, Any]:
    """Metric families by name; Prometheus takes `_total` off a counter's."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(found: dict[str, Any], name: str, **labels: str) -> float:
    (sample,) = [s for s in found[name.removesuffix("_total")].samples if s.labels == labels]
    return float(sample.value)


def test_a_real_run_can_be_watched_while_it_goes_on(tmp_path: Path) -> None:
    command = [
        *(
            sys.executable,
            "code/main.py",
            "--n",
            "16",
            "--experiment",
            "t4",
            "--export",
            str(tmp_path / "watched, here"),
        ),
        *(
            "device=cpu",
            "model=null",
            "model.service_ms=160",
            "repeats=1",
            "experiment.t4.recipe.workers=1",
        ),
        *(
            "experiment.t4.recipe.batch_size=4",
            f"out={tmp_path / 'data'}",
            f"figures={tmp_path / 'figures'}",
        ),
    ]
    prom, seen = tmp_path / "watched, here" / "wallclock.prom", set()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        while run.poll() is None:
            if prom.exists():
                seen.add(
                    value(families(prom.read_text(encoding="utf-8")), "wallclock_images_total")
                )
            time.sleep(0.02)
        assert run.stdout is not None
        assert run.returncode == 0, run.stdout.read()
    assert len(seen) >= 2, "it was written once only"
    found = families(prom.read_text(encoding="utf-8"))
    assert [*found] == [f"wallclock_{name.removesuffix('_total')}" for name in METRICS]
    assert (
        value(found, "wallclock_images_total")
        == value(found, "wallclock_stage_calls_total", stage="decode")
        == 60
    )
    assert (
        value(found, "wallclock_batches_total")
        == value(found, "wallclock_stage_calls_total", stage="forward")
        == 15
    )
    assert value(found, "wallclock_stage_seconds_total", stage="forward") >= 15 * 0.16
    assert 0.5 < value(found, "wallclock_accelerator_utilization_ratio") <= 1
    assert found["wallclock_run_info"].samples[0].labels == {
        "experiment": "t4",
        "cell": "baseline",
        "repeat": "0",
    }
    lines = [
        json.loads(line)
        for line in prom.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert {line["images_total"] for line in lines} >= seen
    for before, after in pairwise(lines):
        assert all(
            after["stage_seconds_total"][name] >= before["stage_seconds_total"][name]
            for name in STAGES
        )
    assert max(line["queue_batches"] for line in lines) >= 1, (
        "the worker is far ahead of a forward pass of 160 ms"
    )


def test_labels_may_hold_anything(tmp_path: Path) -> None:
    label = 'a "quoted" \\ back\nslash'
    samples: dict[str, list[int]] = {name: [1] for name in (*STAGES, "wait")}
    Monitor(tmp_path, Cell("t4", "throughput", label, 0, Recipe("x"), None, ModelSpec("m"))).update(
        samples, 1, 1, 0, lambda: 0, final=True
    )
    found = families((tmp_path / "wallclock.prom").read_text(encoding="utf-8"))
    assert found["wallclock_run_info"].samples[0].labels["cell"] == label


def test_it_counts_each_call_once_and_writes_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("wallclock.measure.monitor.time.monotonic", lambda: now[0])
    watch = Monitor(tmp_path, Cell("t4", "throughput", "x", 0, Recipe("x"), None, ModelSpec("m")))
    samples: dict[str, list[int]] = {name: [] for name in (*STAGES, "wait")}
    for batch in range(1, 31):
        now[0] += 0.1
        samples["forward"].append(50_000_000)
        watch.update(samples, 8 * batch, batch, 0, lambda: 3)
    lines = [
        json.loads(line)
        for line in (tmp_path / "wallclock.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert len(lines) in (2, 3)
    for line in lines:
        assert line["stage_seconds_total"]["forward"] == pytest.approx(line["batches_total"] * 0.05)
        assert line["images_per_second"] == pytest.approx(80, rel=0.01)
        assert line["accelerator_utilization_ratio"] == pytest.approx(0.5, rel=0.01)
        assert line["queue_batches"] == 3
