"""`cpu`: its grid."""

from __future__ import annotations

from collections.abc import Callable

from wallclock.spec import Cell


def test_grid_is_one_thread_one_image(grid: Callable[..., list[Cell]]) -> None:
    cells = grid("cpu", "repeats=3")
    assert [(cell.protocol, cell.repeat) for cell in cells] == [("serial", n) for n in range(3)]
    recipe = cells[0].recipe
    assert (recipe.batch_size, recipe.torch_threads) == (1, 1)
    choices = (recipe.device, recipe.decoder, recipe.resizer, recipe.workers)
    assert choices == ("cpu", "pil", "pil", 0)
