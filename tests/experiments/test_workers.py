"""`workers`: its grid."""

from __future__ import annotations

from collections.abc import Callable

from wallclock.spec import Cell


def test_grid(grid: Callable[..., list[Cell]]) -> None:
    fidelity, *cells = grid("workers", "repeats=1")
    assert [cell.recipe.workers for cell in cells] == [0, 2, 4, 8, 16]
    assert {cell.recipe.decoder for cell in cells} == {"turbojpeg"}
    names = [recipe["name"] for recipe in fidelity.params["recipes"]]
    assert names == [cell.recipe.name for cell in cells]
