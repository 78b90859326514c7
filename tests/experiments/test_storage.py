"""`storage` and `stage_fixes`: their grids, and their tables."""

from dataclasses import replace

import pytest

from experiments import stage_fixes, storage
from tests.experiments import made
from tests.experiments.conftest import Grid


def test_storage_grid(grid: Grid) -> None:
    cells = grid("storage", "repeats=3", "corpus.image_set=small_256")
    forms = ["files", "tar", "pixels"]
    assert [cell.label for cell in cells] == 3 * forms
    for cell in cells:
        remote = ["http-5"] if cell.label in ("files", "tar") else []
        assert cell.params["where"] == ["cold", "warm", *remote]
        assert (cell.recipe.decoder, cell.recipe.normalize_on) == ("native", "device")


def test_originals_also_smaller(grid: Grid) -> None:
    labels = [cell.label for cell in grid("storage")]
    assert labels[-2:] == ["pixels", "pixels_256"]


def test_storage_rows() -> None:
    rows = {row["what"]: row for row in storage.tables(made.storage())[storage.CSV]}
    cold = rows["tar cold/1/bytes"]
    names = ("img_per_s", "img_per_s_min", "img_per_s_max", "mb_per_s", "cpu_ms", "repeats")
    assert [cold[name] for name in names] == pytest.approx([100, 50, 200, 2, 0.5, 3])
    assert (cold["access"], cold["source"], cold["finish"]) == ("sequential", "cold", "bytes")
    assert (cold["kb_on_disk"], cold["cached_share"], cold["in_flight"]) == (24, 0.01, "1")
    partly = rows["tar cold/16/bytes"]
    assert (partly["status"], partly["access"]) == ("2 of 3", "ahead")
    assert partly["reason"] == "mincore finds 50% of them in memory"
    assert (partly["repeats"], partly["img_per_s_max"]) == (2, 100)
    failed = storage.tables([replace(made.storage()[0], status="error", values={})])[storage.CSV]
    assert [(row["what"], row["status"]) for row in failed] == [("tar", "error")]


def test_stage_fixes(grid: Grid) -> None:
    cells = grid("stage_fixes", "repeats=3")
    assert [cell.label for cell in cells] == 3 * [*stage_fixes.STAGES]
    rows = {row["stage"]: row for row in stage_fixes.tables(made.stage_fixes())[stage_fixes.CSV]}
    done, absent = rows["assemble"], rows["h2d"]
    names = ("plain_us", "fixed_us", "gain", "gain_min", "gain_max", "n_images")
    assert [done[name] for name in names] == pytest.approx([1000, 500, 2, 1, 4, 10])
    assert (absent["status"], absent["gain"]) == ("not applicable", None)
    assert absent["reason"] == "needs a GPU"
