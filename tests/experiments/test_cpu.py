"""`cpu`: one row, from made records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from experiments import cpu
from tests.experiments import made
from wallclock.clock import STAGES
from wallclock.records import Record
from wallclock.spec import Recipe

RECIPE = Recipe("cpu", batch_size=1, torch_threads=1)


def passed(wall_ms: int, repeat: int) -> Record:
    samples = {**{name: [made.MS] * 4 for name in STAGES}, "wall": [wall_ms * made.MS]}
    return made.record(
        "cpu", "serial", "cpu-small_256", RECIPE, repeat, samples=samples, values={"n_embedded": 4}
    )


def test_the_grid_is_one_thread_one_image_no_gpu(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[cpu]", "repeats=3")
    cells = cpu.cells(plan, plan.settings.experiments["cpu"])
    assert [(cell.protocol, cell.repeat) for cell in cells] == [
        ("serial", 0),
        ("serial", 1),
        ("serial", 2),
    ]
    recipe = cells[0].recipe
    assert recipe is not None
    assert (recipe.batch_size, recipe.torch_threads) == (1, 1)
    assert (recipe.device, recipe.decoder, recipe.resizer, recipe.workers) == (
        "cpu",
        "pil",
        "pil",
        0,
    )


def test_one_row_of_the_median_pass() -> None:
    (row,) = cpu.tables([passed(300, 0), passed(100, 1), passed(200, 2)])[cpu.CSV]
    assert tuple(row) == cpu.COLUMNS
    assert (row["wall_s"], row["wall_s_min"], row["wall_s_max"]) == (0.2, 0.1, 0.3)
    assert (row["img_per_s"], row["n_images"], row["batch_size"]) == (20, 4, 1)
    assert row["forward_s"] == 0.004
    assert (row["status"], row["origin"], row["median_kb"]) == ("ok", "measured", 7.4)


def test_a_crash_is_a_row_without_numbers() -> None:
    (row,) = cpu.tables([replace(passed(300, 0), status="error", reason="killed")])[cpu.CSV]
    assert (row["status"], row["reason"], row["wall_s"], row["forward_share"]) == (
        "error",
        "killed",
        None,
        None,
    )
