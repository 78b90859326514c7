"""`cpu`: its grid, and its row."""

from __future__ import annotations

from collections.abc import Callable

from experiments import cpu
from tests.experiments import made
from tests.experiments.made import MS
from wallclock.clock import STAGES
from wallclock.records import Record
from wallclock.spec import Cell, Recipe


def passed(wall_ms: int, repeat: int) -> Record:
    samples = {**{name: [MS] * 4 for name in STAGES}, "wall": [wall_ms * MS]}
    recipe = Recipe("cpu", batch_size=1, torch_threads=1)
    values = {"n_embedded": 4}
    return made.record("cpu", "serial", "cpu", recipe, repeat, samples=samples, values=values)


def test_grid_is_one_thread_one_image(grid: Callable[..., list[Cell]]) -> None:
    cells = grid("cpu", "repeats=3")
    assert [(cell.protocol, cell.repeat) for cell in cells] == [("serial", n) for n in range(3)]
    recipe = cells[0].recipe
    assert (recipe.batch_size, recipe.torch_threads) == (1, 1)
    choices = (recipe.device, recipe.decoder, recipe.resizer, recipe.workers)
    assert choices == ("cpu", "pil", "pil", 0)


def test_row_of_the_median_pass() -> None:
    (row,) = cpu.tables([passed(300, 0), passed(100, 1), passed(200, 2)])[cpu.CSV]
    assert tuple(row) == cpu.COLUMNS
    assert (row["wall_s"], row["wall_s_min"], row["wall_s_max"]) == (0.2, 0.1, 0.3)
    assert (row["img_per_s"], row["n_images"], row["batch_size"]) == (20, 4, 1)
    assert row["forward_s"] == 0.004
    assert (row["status"], row["origin"], row["median_kb"]) == ("ok", "measured", 7.4)
