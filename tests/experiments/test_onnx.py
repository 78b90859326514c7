"""`onnx`: its grid on either device, and its table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import onnx
from tests.experiments import made
from wallclock.measure.runtimes import VARIANTS
from wallclock.paper import claims
from wallclock.paper.claims import CLAIMS
from wallclock.paper.csvfile import read_table, write_table
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell

MACHINE = {**made.MACHINE, "gpus": [{"name": "Tesla T4"}]}
GPU_ROWS = [
    *("pytorch fp32", "pytorch fp16", "pytorch bf16"),
    *("pytorch-compile fp16", "pytorch-cudagraph fp16"),
    *("onnxruntime fp32", "onnxruntime fp16", "onnxruntime-tensorrt fp16"),
]
CPU_ROWS = ["onnxruntime-cpu fp32", "onnxruntime-cpu int8"]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return made.plan(tmp_path, "experiment=[onnx]", "n=2", "corpus.image_set=small_256")


def grid(plan: Plan, device: str = "cpu", repeats: int = 1, label: str = "") -> list[Cell]:
    """The grid for a device, which need not be present; of one label, if any."""
    settings = plan.settings
    recipe = replace(settings.recipe, device=device)
    plan.settings = replace(settings, recipe=recipe, repeats=repeats)
    cells = onnx.cells(plan, settings.experiments["onnx"])
    return [cell for cell in cells if label in ("", cell.label)]


def names(cells: list[Cell]) -> list[str]:
    return [f"{cell.recipe.runtime} {cell.recipe.dtype}" for cell in cells]


def record(cell: Cell, mean_ms: float = 100.0, **changes: Any) -> Record:
    values = {"provider": "provider", "compile_s": 2.0, "warmup_s": 1.0, "warmup_batches": 10}
    values |= {"cosine": 0.99999, "cosine_min": 0.99999, "max_rel_error": 0.0001}
    values |= {"peak_gpu_mem_gib": 0.5, **changes}
    samples = {"batch": [round(mean_ms * share * made.MS) for share in (0.9, 1.0, 1.1)]}
    return Record(cell, samples=samples, values=values, environment={"machine": MACHINE})


def table(records: list[Record], folder: Path) -> list[dict[str, str]]:
    """The rows as the CSV gives them back."""
    write_table(folder / onnx.CSV, onnx.COLUMNS, onnx.tables(records)[onnx.CSV])
    return read_table(folder / onnx.CSV)


def test_grid_on_a_gpu(plan: Plan) -> None:
    cells = grid(plan, "cuda", repeats=5)
    assert names(cells) == 5 * GPU_ROWS
    assert {cell.recipe.batch_size for cell in cells} == {64}
    assert {(cell.params["batches"], cell.params["warmup_batches"]) for cell in cells} == {(50, 10)}


def test_grid_on_a_cpu_has_the_gpu_rows_too(plan: Plan) -> None:
    cells = grid(plan)
    on_cpu = [name.replace("compile fp16", "compile fp32") for name in GPU_ROWS]
    assert names(cells) == [*on_cpu, *CPU_ROWS]
    assert {cell.params["batches"] for cell in cells} == {3}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_row_has_a_runtime_and_a_gate(plan: Plan, device: str) -> None:
    for cell in grid(plan, device):
        assert cell.recipe.runtime in VARIANTS
        assert set(cell.params["gate"]) == {"min_cosine", "max_rel_error"}
        assert (cell.images.image_set, cell.images.n) == ("small_256", 2)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_claim_has_one_row(plan: Plan, tmp_path: Path, device: str) -> None:
    rows = table([record(cell) for cell in grid(plan, device)], tmp_path)
    mine = [claim for claim in claims.load(CLAIMS) if claim.experiment == "onnx"]
    assert len(mine) == 5
    for claim in mine:
        for selector in filter(None, (claim.row, claim.over_row)):
            assert claims.select(rows, selector) is not None, selector


def test_times_are_of_the_median_repeat(plan: Plan, tmp_path: Path) -> None:
    cells = grid(plan, "cuda", 3, "pytorch-fp16")
    records = [record(cell, ms) for cell, ms in zip(cells, (70, 64, 66), strict=True)]
    (row,) = table(records, tmp_path)
    shown = (row["runtime"], row["dtype"], row["batch_size"], row["n_batches"])
    assert shown == ("pytorch", "fp16", "64", "3")
    means = (row["mean_ms"], row["mean_ms_min"], row["mean_ms_max"], row["repeats"])
    assert means == ("66", "64", "70", "3")
    assert float(row["img_per_s"]) == pytest.approx(64 / 0.066, rel=1e-5)
    assert float(row["p50_ms"]) == 66
    assert 66 < float(row["p95_ms"]) < float(row["p99_ms"]) < 72.6
    assert (row["device"], row["gate"], row["status"]) == ("Tesla T4", "passed", "ok")
    assert row["export_s"] == ""


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"max_rel_error": 0.04}, "max_rel_error 0.04 (at most 0.03)"),
        ({"cosine_min": 0.9}, "cosine_min 0.9 (at least 0.999)"),
        ({"cosine": None, "cosine_min": None, "max_rel_error": None}, "not finite"),
    ],
)
def test_one_repeat_with_other_vectors_withholds_all_times(
    plan: Plan, tmp_path: Path, values: dict[str, Any], why: str
) -> None:
    cells = grid(plan, "cuda", 3, "onnxruntime-fp16")
    records = [record(cells[0], 150), record(cells[1], 148), record(cells[2], 900, **values)]
    (row,) = table(records, tmp_path)
    assert (row["status"], row["gate"]) == ("gate failed", "failed")
    assert why in row["reason"]
    assert not any(row[name] for name in ("mean_ms", "p50_ms", "img_per_s", "n_batches"))


def test_reference_must_agree_with_itself(plan: Plan, tmp_path: Path) -> None:
    (cell,) = grid(plan, "cuda", label="pytorch-fp32")
    assert table([record(cell)], tmp_path)[0]["gate"] == "reference"
    assert table([record(cell, max_rel_error=0.01)], tmp_path)[0]["status"] == "gate failed"
