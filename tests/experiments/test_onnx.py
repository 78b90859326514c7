"""Experiment onnx: its grid on either device, and its table from made records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from experiments import onnx
from wallclock import settings
from wallclock.paper import claims
from wallclock.paper.csvfile import read_table, write_table
from wallclock.paper.claims import CLAIMS
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell
from wallclock.stages import runtimes

MACHINE = {"cpu": "Test CPU", "cores": 4, "gpus": [{"name": "Tesla T4"}], "memory_gib": 8}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    overrides = [
        "experiment=[onnx]",
        "profile=quick",
        "repeats_of.cpu={onnx:1}",
        "n=2",
        "device=cpu",
    ]
    with initialize_config_dir(str(settings.CONF), version_base="1.3"):
        config = compose("config", overrides=[*overrides, f"out={tmp_path}"])
    return Plan(settings.resolve(config), lambda done, total, what: None)


def grid(plan: Plan, device: str = "cpu", repeats: int = 1) -> list[Cell]:
    """The grid as the device would have it; no device is needed to plan it."""
    asked = plan.settings
    plan.settings = replace(
        asked, recipe=replace(asked.recipe, device=device), repeats_of={"onnx": repeats}
    )
    return onnx.cells(plan, asked.experiments["onnx"])


def pairs(cells: list[Cell]) -> list[str]:
    return [f"{cell.recipe.runtime} {cell.recipe.dtype}" for cell in cells if cell.recipe]


def record(cell: Cell, mean_ms: float = 100.0, error: float = 0.0001, **changes: Any) -> Record:
    values: dict[str, Any] = {
        "provider": "provider",
        "compile_s": 2.0,
        "warmup_s": 1.0,
        "warmup_batches": 10,
    }
    values |= {
        "cosine": 0.99999,
        "cosine_min": 0.99999,
        "max_rel_error": error,
        "peak_gpu_mem_gib": 0.5,
    }
    values |= changes.pop("values", {})
    batches = [round(mean_ms * share * 1e6) for share in (0.9, 1.0, 1.1)]
    return Record(
        cell, samples={"batch": batches}, values=values, environment={"machine": MACHINE}, **changes
    )


def table(records: list[Record], folder: Path) -> list[dict[str, str]]:
    """The rows as the CSV gives them back."""
    write_table(folder / onnx.CSV, onnx.COLUMNS, onnx.tables(records)[onnx.CSV])
    return read_table(folder / onnx.CSV)


GPU_ROWS = [
    "pytorch fp32",
    "pytorch fp16",
    "pytorch bf16",
    "pytorch-compile fp16",
    "pytorch-cudagraph fp16",
]
ORT_ROWS = ["onnxruntime fp32", "onnxruntime fp16", "onnxruntime-tensorrt fp16"]


def test_the_grid_on_a_gpu(plan: Plan) -> None:
    cells = grid(plan, "cuda", repeats=5)
    assert pairs(cells) == 5 * [*GPU_ROWS, *ORT_ROWS]
    assert {cell.recipe.batch_size for cell in cells if cell.recipe} == {64}
    assert {(cell.params["batches"], cell.params["warmup_batches"]) for cell in cells} == {(50, 10)}


def test_the_grid_on_a_cpu_asks_for_the_gpus_rows_too(plan: Plan) -> None:
    cells = grid(plan)
    compiled = "pytorch-compile fp32"
    cpu_rows = ["onnxruntime-cpu fp32", "onnxruntime-cpu int8"]
    assert pairs(cells) == [*GPU_ROWS[:3], compiled, GPU_ROWS[4], *ORT_ROWS, *cpu_rows]
    assert {cell.params["batches"] for cell in cells} == {3}


def test_every_row_names_a_runtime_and_has_a_gate(plan: Plan) -> None:
    for cell in [*grid(plan), *grid(plan, "cuda")]:
        assert cell.recipe is not None
        assert cell.recipe.runtime in runtimes.RUNTIMES
        assert set(cell.params["gate"]) == {"min_cosine", "max_rel_error"}
        assert cell.corpus is not None
        assert (cell.corpus.image_set, cell.corpus.n) == ("small_256", 2)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_claim_finds_its_one_row(plan: Plan, tmp_path: Path, device: str) -> None:
    rows = table([record(cell) for cell in grid(plan, device)], tmp_path)
    mine = [claim for claim in claims.load(CLAIMS) if claim.experiment == "onnx"]
    assert len(mine) == 5
    for claim in mine:
        for selector in filter(None, (claim.row, claim.over_row)):
            assert claims.select(rows, selector) is not None, selector


def test_times_are_of_the_median_repeat(plan: Plan, tmp_path: Path) -> None:
    cells = [cell for cell in grid(plan, "cuda", repeats=3) if cell.label == "pytorch-fp16"]
    (row,) = table(
        [record(cell, ms) for cell, ms in zip(cells, (70, 64, 66), strict=True)], tmp_path
    )
    assert (row["runtime"], row["dtype"], row["batch_size"], row["n_batches"]) == (
        "pytorch",
        "fp16",
        "64",
        "3",
    )
    assert (row["mean_ms"], row["mean_ms_min"], row["mean_ms_max"], row["repeats"]) == (
        "66",
        "64",
        "70",
        "3",
    )
    assert float(row["img_per_s"]) == pytest.approx(64 / 0.066, rel=1e-5)
    assert float(row["p50_ms"]) == 66
    assert 66 < float(row["p95_ms"]) < float(row["p99_ms"]) < 72.6
    assert (row["device"], row["device_kind"], row["gate"], row["status"]) == (
        "Tesla T4",
        "cuda",
        "passed",
        "ok",
    )
    assert row["export_s"] == ""


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"max_rel_error": 0.04}, "max_rel_error 0.04 (at most 0.03)"),
        ({"cosine_min": 0.9}, "cosine_min 0.9 (at least 0.999)"),
        ({"cosine": None, "cosine_min": None, "max_rel_error": None}, "not finite"),
    ],
)
def test_a_runtime_with_other_vectors_gets_no_time(
    plan: Plan, tmp_path: Path, values: dict[str, Any], why: str
) -> None:
    """One bad repeat is enough, and not only the one whose time would be shown."""
    cells = [cell for cell in grid(plan, "cuda", repeats=3) if cell.label == "onnxruntime-fp16"]
    records = [record(cells[0], 150), record(cells[1], 148), record(cells[2], 900, values=values)]
    (row,) = table(records, tmp_path)
    assert (row["status"], row["gate"]) == ("gate failed", "failed")
    assert why in row["reason"]
    assert not any(
        row[name] for name in ("mean_ms", "p50_ms", "mean_ms_min", "img_per_s", "n_batches")
    )


def test_the_reference_is_called_so_and_must_agree_with_itself(plan: Plan, tmp_path: Path) -> None:
    (cell,) = [cell for cell in grid(plan, "cuda") if cell.label == "pytorch-fp32"]
    assert table([record(cell)], tmp_path)[0]["gate"] == "reference"
    assert table([record(cell, error=0.01)], tmp_path)[0]["status"] == "gate failed"


@pytest.mark.parametrize("status", ["unavailable", "oom", "error"])
def test_a_runtime_that_did_not_run_is_a_row_with_the_reason(
    plan: Plan, tmp_path: Path, status: str
) -> None:
    (cell,) = [cell for cell in grid(plan, "cuda") if cell.label == "onnxruntime-tensorrt-fp16"]
    lacking = Record(cell, status, "libnvinfer.so.10 is not here", environment={"machine": MACHINE})
    (row,) = table([lacking], tmp_path)
    assert (row["status"], row["reason"], row["gate"]) == (
        status,
        "libnvinfer.so.10 is not here",
        "not checked",
    )
    assert (row["runtime"], row["dtype"], row["mean_ms"]) == ("onnxruntime-tensorrt", "fp16", "")
