"""`nms`: its grid, its rows, and what is said at the end."""

from dataclasses import replace

import pytest

from experiments import nms
from harness import peers
from harness.records import Record
from tests.experiments import made
from tests.experiments.conftest import Grid


def rows_of(records: list[Record]) -> dict[tuple[object, object], dict[str, object]]:
    rows = nms.tables(records)[nms.CSV]
    return {(row["implementation"], row["boxes"]): row for row in rows}


def test_cells(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "installed", lambda names: f"no {names[0]}")
    cells = grid("nms", "repeats=3", "experiment.nms.boxes=[30,300]")
    assert [(cell.label, cell.repeat) for cell in cells[:3]] == [
        ("boxes-30", 0),
        ("boxes-300", 0),
        ("boxes-30", 1),
    ]
    assert len(cells) == 6
    assert {cell.params["installed"] for cell in cells} == {"no torchvision"}
    assert {(cell.corpus, cell.model.weights) for cell in cells} == {(None, "none")}


def test_rows() -> None:
    rows = rows_of(made.nms())
    assert len(rows) == 6
    plain, fast = rows["python", 300], rows["numpy", 300]
    assert (plain["mean_ms"], plain["mean_ms_min"], plain["mean_ms_max"]) == (5, 3, 5)
    assert (plain["gain"], plain["repeats"], plain["n_images"]) == (None, 2, 8)
    assert (fast["gain"], fast["gain_min"], fast["gain_max"]) == (4, 3, 5)
    assert (fast["p90_ms"], fast["n_kept"], fast["iou_threshold"]) == (1, 12.5, 0.5)
    absent = rows["torchvision", 100]
    assert (absent["status"], absent["mean_ms"]) == ("unavailable", None)
    assert str(absent["reason"]).startswith("torchvision is not installed")


def test_other_boxes_have_no_time() -> None:
    first, *others = made.nms()
    wrong = replace(first, values={**first.values, "different": {"python": 0, "numpy": 1}})
    rows = rows_of([wrong, *others])
    assert (rows["numpy", 100]["status"], rows["numpy", 100]["gain"]) == ("gate failed", None)
    assert "keeps other boxes" in str(rows["numpy", 100]["reason"])
    assert rows["python", 100]["status"] == rows["numpy", 300]["status"] == "ok"


def test_a_repeat_that_crashed() -> None:
    first, *others = made.nms()
    rows = rows_of([replace(first, status="error", values={}, samples={}), *others])
    assert (rows["numpy", 100]["status"], rows["numpy", 100]["gain"]) == ("1 of 2", 4)
