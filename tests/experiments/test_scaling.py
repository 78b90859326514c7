"""`scaling`: its grid, and its table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from experiments import scaling
from tests.experiments import made
from tests.experiments.made import S
from wallclock.records import Record
from wallclock.spec import Cell, Recipe


def loaded(what: str, n: int, seconds: float, threads: int) -> Record:
    values = {"n_loaded": n, "n_unique": 4, "settings": "", "cores": 2, "peak_memory_mib": 300.0}
    recipe, label = Recipe("fast", engine="threads", workers=threads), f"{what}-{threads}-{n}"
    samples, params = {"wall": [round(seconds * S)]}, {"what": what}
    return made.record(
        "scaling", "load_n", label, recipe, samples=samples, values=values, params=params
    )


def test_fit_over_counts_and_speedup_of_threads() -> None:
    records = [loaded("images", n, 0.5 + 0.002 * n, 0) for n in (100, 1000, 10_000)]
    records += [loaded("threads", 1000, 4.0, 1), loaded("threads", 1000, 2.1, 2)]
    rows = scaling.tables(records)[scaling.CSV]
    assert tuple(rows[0]) == scaling.COLUMNS
    for row in rows[:3]:
        fit = (row["fit_startup_s"], row["fit_ms_per_image"], row["fit_r2"])
        assert fit == pytest.approx((0.5, 2.0, 1.0))
    assert rows[3]["fit_r2"] is None
    assert rows[4]["speedup_vs_one_thread"] == pytest.approx(4.0 / 2.1)


def test_grid_stops_at_the_longest_run(grid: Callable[..., list[Cell]]) -> None:
    cells = grid("scaling", "repeats=1", "scaling_max_images=1000")
    counts = [cell.params["n"] for cell in cells if cell.params["what"] == "images"]
    assert counts == [250, 500, 1000]
    threads = {cell.recipe.workers for cell in cells if cell.params["what"] == "threads"}
    assert 1 in threads
