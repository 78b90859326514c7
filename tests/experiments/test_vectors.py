"""Experiments on the network and on what follows it: their grids, and their tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.common import Row
from experiments.nms import cells as nms
from experiments.onnx import cells as onnx
from experiments.onnx.measure import VARIANTS
from experiments.serialization import cells as serialization
from harness.plan import Plan
from harness.records import Record
from harness.spec import Cell
from harness.table import read_table, write_table
from paper import claims
from paper.cited import select
from paper.claims import CLAIMS
from tests.experiments import made
from tests.fixture_run import fixture_records, fixture_tables

# --- onnx -----------------------------------------------------------------------------------------


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    network = ("model=dinov2-small", "model.weights=random")
    return made.plan(tmp_path, "experiment=[onnx]", "n=2", "corpus.image_set=small_256", *network)


def grid(plan: Plan, device: str) -> list[Cell]:
    """The grid for a device, which need not be present."""
    settings = plan.settings
    recipe = replace(settings.recipe, device=device)
    plan.settings = replace(settings, recipe=recipe, repeats=1, repeats_of={})
    return onnx.cells(plan, settings.experiments["onnx"])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_row_has_a_runtime_and_a_gate_and_every_claim_a_row(plan: Plan, device: str) -> None:
    rows = []
    for cell in grid(plan, device):
        assert cell.recipe.runtime in VARIANTS
        assert set(cell.params["gate"]) == {"min_cosine", "max_rel_error"}
        assert (cell.images.image_set, cell.images.n) == ("small_256", 2)
        row = {"device_kind": device, "status": "ok", "corpus": "abo", "weights": "pretrained"}
        row |= {"runtime": cell.recipe.runtime, "dtype": cell.recipe.dtype, "mean_ms": "1"}
        row |= {"model": cell.model.name, "pruned": f"{cell.model.pruned:g}"}
        rows.append(row | {"opset": str(cell.params["opset"])})
    mine = [claim for claim in claims.load(CLAIMS) if claim.experiment == "onnx"]
    assert mine
    for claim in mine:
        for _, selector, _ in claim.cells():
            assert select(rows, selector) is not None, f"{claim.id}: no row {selector}"


def row_of(label: str, *changes: dict[str, Any]) -> Row:
    """The row of a runtime of the fixture run, with a repeat for each change of its values."""
    (record,) = (r for r in fixture_records("onnx") if r.cell.label == label)
    records = [replace(record, values={**record.values, **change}) for change in changes]
    return onnx.tables(records)[onnx.CSV][0]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"max_rel_error": 0.04}, "max_rel_error 0.04 (at most 0.03)"),
        ({"cosine_min": 0.9}, "cosine_min 0.9 (at least 0.999)"),
        ({"cosine": None, "cosine_min": None, "max_rel_error": None}, "not finite"),
    ],
)
def test_one_repeat_with_other_vectors_withholds_all_times(
    values: dict[str, Any], why: str
) -> None:
    row = row_of("pytorch-fp16", {}, {}, values)
    assert (row["status"], row["gate"]) == ("gate failed", "failed")
    assert why in str(row["reason"])
    assert not any(row[name] for name in ("mean_ms", "p50_ms", "img_per_s", "n_batches"))


def test_reference_must_agree_with_itself() -> None:
    assert row_of("pytorch-fp32", {})["gate"] == "reference"
    assert row_of("pytorch-fp32", {"max_rel_error": 0.01})["status"] == "gate failed"
    row = row_of("onnxruntime-cpu-fp32", {})
    assert (row["gate"], row["opset"], row["attention"]) == ("passed", 23, "fused")
    eager = row_of("onnxruntime-cpu-fp32", {"operators": {"MatMul": 2}})
    assert eager["attention"] == "eager"


def test_neighbours_are_the_worst_repeats() -> None:
    kept = [{"n_neighbours": 60, "neighbours_kept": share} for share in (0.95, 0.9)]
    row = row_of("onnxruntime-cpu-int8", *kept)
    assert (row["model"], row["n_neighbours"], row["neighbours_kept"]) == ("dinov2-small", 60, 0.9)
    assert row_of("onnxruntime-cpu-int8", {}, kept[0])["neighbours_kept"] is None


# --- serialization --------------------------------------------------------------------------------


MINE = [claim for claim in claims.load(CLAIMS) if claim.experiment == "serialization"]


def test_fewer_vectors_back_no_claim(tmp_path: Path) -> None:
    rows = [{**row, "n_vectors": 1000} for row in read_table(fixture_tables() / serialization.CSV)]
    write_table(tmp_path / serialization.CSV, serialization.COLUMNS, rows)
    assert {verdict.verdict for verdict in claims.judge(MINE, tmp_path)} == {"not run"}


def test_vectors_that_do_not_read_back_get_no_time() -> None:
    records = [r for r in fixture_records("serialization") if r.cell.label == "npy"]
    records[1] = replace(records[1], values={**records[1].values, "read_back": False})
    (row,) = serialization.tables(records)[serialization.CSV]
    assert (row["status"], row["read_back"]) == ("gate failed", False)
    assert (row["write_s"], row["size_mib"]) == (None, None)


# --- nms ------------------------------------------------------------------------------------------


def rows_of(records: list[Record]) -> dict[tuple[object, object], dict[str, object]]:
    rows = nms.tables(records)[nms.CSV]
    return {(row["implementation"], row["boxes"]): row for row in rows}


def test_other_boxes_have_no_time() -> None:
    first, *others = made.nms()
    wrong = replace(first, values={**first.values, "different": {"python": 0, "numpy": 1}})
    rows = rows_of([wrong, *others])
    assert (rows["numpy", 100]["status"], rows["numpy", 100]["gain"]) == ("gate failed", None)
    assert "keeps other boxes" in str(rows["numpy", 100]["reason"])
    assert rows["python", 100]["status"] == rows["numpy", 300]["status"] == "ok"
