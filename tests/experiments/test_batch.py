"""`batch`: its grid."""

from __future__ import annotations

from collections.abc import Callable

from wallclock.spec import Cell


def test_grid(grid: Callable[..., list[Cell]]) -> None:
    cells = grid("batch", "repeats=1")
    assert [cell.recipe.batch_size for cell in cells] == [1, 8, 16, 32, 64, 128, 256]
    assert {(cell.protocol, cell.recipe.decoder) for cell in cells} == {("throughput", "pil")}


def test_quick_grid_on_a_cpu_is_shorter(grid: Callable[..., list[Cell]]) -> None:
    assert [cell.recipe.batch_size for cell in grid("batch", "profile=quick")] == [1, 8, 32]


def test_a_setting_beats_the_quick_profile(grid: Callable[..., list[Cell]]) -> None:
    cells = grid("batch", "profile=quick", "experiment.batch.batch_sizes=[256]")
    assert [cell.recipe.batch_size for cell in cells] == [256]
