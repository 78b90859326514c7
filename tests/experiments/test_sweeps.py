"""The experiments with one recipe or one varying choice: their grids, ladder, timeline and fit."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import experiments
from experiments import scaling, steps
from tests.experiments import made
from tests.experiments.conftest import Grid
from tests.experiments.made import S
from tests.fixture_run import fixture_records
from wallclock.spec import Recipe


def choices(recipe: Recipe) -> dict[str, Any]:
    return {name: value for name, value in vars(recipe).items() if name != "name"}


def test_cpu_grid_is_one_thread_one_image(grid: Grid) -> None:
    cells = grid("cpu", "repeats=3")
    assert [(cell.protocol, cell.repeat) for cell in cells] == [("serial", n) for n in range(3)]
    recipe = cells[0].recipe
    assert (recipe.batch_size, recipe.torch_threads) == (1, 1)
    assert (recipe.device, recipe.decoder, recipe.workers) == ("cpu", "pil", 0)


@pytest.mark.parametrize(
    ("overrides", "sizes"),
    [
        (["repeats=1"], [1, 8, 16, 32, 64, 128, 256]),
        (["profile=quick"], [1, 32]),
        (["profile=quick", "experiment.batch.batch_sizes=[256]"], [256]),
    ],
    ids=["paper", "quick", "a setting beats the profile"],
)
def test_batch_grid(overrides: list[str], sizes: list[int], grid: Grid) -> None:
    cells = grid("batch", *overrides)
    assert [cell.recipe.batch_size for cell in cells] == sizes
    assert {(cell.protocol, cell.recipe.decoder) for cell in cells} == {("throughput", "pil")}


def test_workers_grid(grid: Grid) -> None:
    fidelity, *cells = grid("workers", "repeats=1")
    assert [cell.recipe.workers for cell in cells] == [0, 2, 4, 8, 16]
    assert {cell.recipe.decoder for cell in cells} == {"turbojpeg"}
    names = [recipe["name"] for recipe in fidelity.params["recipes"]]
    assert names == [cell.recipe.name for cell in cells]


@pytest.mark.parametrize(("name", "compared"), [("t4", 0), ("opt", 1), ("fast", 1)])
def test_grid_of_one_recipe(name: str, compared: int, grid: Grid) -> None:
    cells = grid(name, "repeats=3")
    assert [cell.protocol for cell in cells] == ["fidelity"] * compared + ["throughput"] * 3
    assert [cell.repeat for cell in cells[compared:]] == [0, 1, 2]
    assert len({cell.recipe for cell in cells[compared:]}) == 1
    for cell in cells[:compared]:
        assert [recipe["name"] for recipe in cell.params["recipes"]] == [cells[-1].recipe.name]


@pytest.mark.parametrize("name", ["t4", "opt", "fast"])
def test_timeline_is_of_the_first_repeat_with_spans(name: str) -> None:
    module: Any = experiments.load(name)
    records = fixture_records(name)
    (spans,) = [record.spans for record in records if record.spans]
    rows = module.tables(records)[module.TIMELINE_CSV]
    assert len(rows) == len(spans)
    lane, stage, _, start_ns, duration_ns = spans[0]
    assert (rows[0]["lane"], rows[0]["stage"]) == (lane, stage)
    assert (rows[0]["start_ms"], rows[0]["duration_ms"]) == (start_ns / 1e6, duration_ns / 1e6)


def test_ladder_changes_one_choice_at_a_time(grid: Grid) -> None:
    fidelity, *cells = grid("steps", "repeats=1")
    ladder = [choices(cell.recipe) for cell in cells]
    changed = [{name for name in a if a[name] != b[name]} for a, b in pairwise(ladder)]
    decode = {"decoder", "resizer", "interpolation"}
    assert changed == [decode, {"workers"}, {"batch_size"}, {"dtype"}]
    names = [cell.recipe.name for cell in cells]
    assert [recipe["name"] for recipe in fidelity.params["recipes"]] == names[1:]
    options = made.resolved("experiment=[steps]").experiments["steps"]
    ends = [choices(options[name]) for name in ("baseline", "optimized")]
    recipes = steps._recipes(options["baseline"], options["optimized"])
    assert [choices(recipe) for recipe in (recipes[0], recipes[-1])] == ends


def test_a_row_per_step() -> None:
    rows = steps.tables(fixture_records("steps"))[steps.CSV]
    assert [row["step"] for row in rows] == [row["recipe"] for row in rows] == list(steps._LADDER)


def test_fit_over_counts_and_speedup_of_threads() -> None:
    """A run takes 0.5 s and 2 ms an image; a single thread, 4 ms."""
    records = []
    for record in fixture_records("scaling"):
        ms = 4 if record.cell.recipe.workers == 1 else 2
        wall_s = 0.5 + ms / 1e3 * record.values["n_loaded"]
        records.append(replace(record, samples={"wall": [round(wall_s * S)]}))
    for row in scaling.tables(records)[scaling.CSV]:
        counts, fit = row["what"] == "images", (row["fit_startup_s"], row["fit_ms_per_image"])
        assert fit == (pytest.approx((0.5, 2.0)) if counts else (None, None))
        assert row["fit_r2"] == (pytest.approx(1.0) if counts else None)
        if row["threads"] == 2 and not counts:
            n = int(str(row["n_images"]))
            speedup = (0.5 + 0.004 * n) / (0.5 + 0.002 * n)
            assert row["speedup_vs_one_thread"] == pytest.approx(speedup)


def test_scaling_grid_stops_at_the_longest_run(grid: Grid) -> None:
    cells = grid("scaling", "repeats=1", "scaling_max_images=1000")
    counts = [cell.params["n"] for cell in cells if cell.params["what"] == "images"]
    assert counts == [250, 500, 1000]
    assert 1 in {cell.recipe.workers for cell in cells if cell.params["what"] == "threads"}
