"""The README of a reference with a GPU, and the order of its pieces."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import contents
from harness import provenance, records
from harness.protocols import registry
from paper import gpu_reference, packing
from tests.experiments import made

CODE = provenance.code_digest(registry.timed_by("throughput", "t4"))
GPU = {"name": "Tesla T4", "memory_gib": 15, "driver": "580.1"}


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = provenance.machine() | {"gpus": [GPU], "cpu": "Xeon(R) 8481C", "cores": 16}
    monkeypatch.setattr(provenance, "machine", lambda: machine)


def test_experiments_by_value_and_each_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_reference.main(["order"]) == 0
    names = capsys.readouterr().out.split()
    assert names[:4] == ["serial", "t4", "opt", "onnx"]
    assert sorted(names) == sorted(contents.ORDER)


def test_the_folder_names_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_reference.main(["folder"]) == gpu_reference.main(["gpu"]) == 0
    assert capsys.readouterr().out == "tesla-t4-xeon-r-8481c-16-cores\nTesla T4\n"


def measured(runs: Path, code: str = CODE, **values: Any) -> None:
    """Two passes on the GPU, of which the second has these values, and one without its library."""
    state = {"utc": "2026-11-24T10:00:00Z", "git": {"commit": "0123456789abcdef"}}
    good: dict[str, Any] = {"gpu_segments_allocated": 0, "clock_error_us": 4.25}
    taken = [
        made.record("t4", "throughput", "baseline", good, {}),
        made.record("t4", "throughput", "wide", {**good, **values}, {}),
        replace(
            made.record("t4", "throughput", "other", {}, {}), status="unavailable", reason="no x"
        ),
    ]
    for record in taken:
        environment = {**record.environment, "before": state, "code": code}
        whole = replace(record, environment=environment)
        records.write(runs / "t4" / record.cell.label, whole)
    records.write_index(runs, "t4", [record.cell.label for record in taken])


def written(tmp_path: Path) -> str:
    (tmp_path / "reference").mkdir(exist_ok=True)
    folders = [f"--{name}={tmp_path / name}" for name in ("steps", "runs", "reference")]
    assert gpu_reference.main(["readme", *folders]) == 0
    return (tmp_path / "reference" / "README.md").read_text(encoding="utf-8")


def test_the_readme_says_how_far_it_came(tmp_path: Path) -> None:
    steps = tmp_path / "steps"
    steps.mkdir()
    for number, (name, log, status) in enumerate(
        (
            ("cuda-harness-test_x", "...\n=== 3 passed, 2 deselected in 4.10s ===\n", "0"),
            ("serial", "fine\n", "0"),
            ("opt", "a | b\nKilled\n", "137"),
            ("t4", "half of it\n", ""),
        )
    ):
        (steps / f"{name}.log").write_text(log, encoding="utf-8")
        path = steps / f"{name}.log"
        path.touch()
        os.utime(path, (number, number))
        if status:
            (steps / f"{name}.done").write_text(status + "\n", encoding="ascii")
    measured(tmp_path / "runs", gpu_segments_allocated=2)
    page = written(tmp_path)
    assert page.startswith("# Reference run: Tesla T4, Xeon(R) 8481C, 16 cores\n")
    assert "driver 580.1, 15 GiB; measured 2026-11-24; at commit 0123456789ab." in page
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert rows == [
        "| cuda-harness-test_x | 3 passed, 2 deselected |",
        "| serial | complete |",
        "| opt | ended with status 137: Killed |",
        "| t4 | not complete |",
    ]
    assert "\n- t4/other: unavailable: no x\n" in page
    assert "2 passes; in 1 of them the allocator took memory while timed." in page
    assert "- t4/wide, repeat 1: 2 segments, 0 failed images" in page
    assert "right to 4.2 µs" in page


def test_before_anything_was_measured(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    page = written(tmp_path)
    assert "\nNone.\n" in page
    assert "No pass ran on a GPU." in page


@pytest.mark.parametrize(("code", "n"), [(CODE, 3), ("of another commit", 0)])
def test_records_of_this_code_are_restored(code: str, n: int, tmp_path: Path) -> None:
    """Others beside what is measured now would keep that from being packed."""
    measured(tmp_path / "runs", code)
    (tmp_path / "reference").mkdir()
    packing.pack([tmp_path / "runs"], tmp_path / "reference" / packing.ARCHIVE)
    folders = [f"--runs={tmp_path / 'again'}", f"--reference={tmp_path / 'reference'}"]
    assert gpu_reference.main(["restore", *folders]) == 0
    assert len(records.load_experiment(tmp_path / "again", "t4")) == n
    assert gpu_reference.main(["restore", *folders[:1], f"--reference={tmp_path / 'none'}"]) == 1
