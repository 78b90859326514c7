"""t4, opt, steps, batch, workers: their grids, and their tables from made records."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

import experiments
from experiments import _end_to_end
from wallclock import settings
from wallclock.clock import STAGES
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, ModelSpec, Recipe, Slice

NAMES = ("t4", "opt", "steps", "batch", "workers")
MACHINE = {"cpu": "Test CPU", "cores": 4, "gpus": [], "memory_gib": 8}
MODEL = ModelSpec("m", weights="random")
CORPUS = Slice("synthetic", "small_256", 10, "digest", "")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    with initialize_config_dir(str(settings.CONF), version_base="1.3"):
        config = compose(
            "config",
            overrides=[
                f"experiment=[{','.join(NAMES)}]",
                "profile=quick",
                "n=3",
                f"out={tmp_path}",
            ],
        )
    return Plan(settings.resolve(config), lambda done, total, what: None)


def record(
    recipe: Recipe, repeat: int = 0, wall_ms: int = 1000, n: int = 10, **changes: Any
) -> Record:
    cell = Cell(
        "t4", "throughput", recipe.name, repeat, recipe, CORPUS, changes.pop("model", MODEL)
    )
    samples = {name: [10_000_000] * 5 for name in STAGES}
    samples |= {"wait": [1_000_000] * 5, "batch": [20_000_000] * 5, "wall": [wall_ms * 1_000_000]}
    values: dict[str, Any] = {
        "n_embedded": n,
        "n_unique": n,
        "steady": True,
        "startup_s": 2.0,
        "median_kb": 7.0,
        "median_megapixels": 0.06,
    }
    values |= {"telemetry": {"cpu_cores": [1.0, 3.0], "throttle_reasons": ["power cap"]}}
    environment = {"machine": MACHINE, "cost": {"usd_per_hour": 3.6}}
    return Record(cell, samples=samples, values=values, environment=environment, **changes)


def fidelity(found: Mapping[str, Any]) -> Record:
    params = {"min_psnr_db": 25.0, "min_cosine": 0.9}
    cell = Cell("opt", "fidelity", "fidelity", 0, Recipe("reference"), CORPUS, MODEL, params)
    return Record(cell, values={"fidelity": found}, environment={"machine": MACHINE})


def test_grids(plan: Plan) -> None:
    cells = {
        name: experiments.load(name).cells(plan, plan.settings.experiments[name]) for name in NAMES
    }
    timed = {
        name: [cell for cell in some if cell.protocol == "throughput"]
        for name, some in cells.items()
    }
    assert {name: len(some) for name, some in timed.items()} == {
        "t4": 1,
        "opt": 1,
        "steps": 5,
        "batch": 7,
        "workers": 5,
    }
    assert [cell.recipe.batch_size for cell in timed["batch"] if cell.recipe] == [
        1,
        8,
        16,
        32,
        64,
        128,
        256,
    ]
    assert [cell.recipe.workers for cell in timed["workers"] if cell.recipe] == [0, 2, 4, 8, 16]
    assert all(
        cell.corpus and cell.corpus.image_set == "small_256"
        for some in cells.values()
        for cell in some
    )


def test_the_ladder_goes_from_baseline_to_optimized_one_choice_at_a_time(plan: Plan) -> None:
    cells = experiments.load("steps").cells(plan, plan.settings.experiments["steps"])
    ladder = [cell.recipe for cell in cells if cell.protocol == "throughput" and cell.recipe]
    first, last = (
        plan.settings.experiments["t4"]["recipe"],
        plan.settings.experiments["opt"]["recipe"],
    )

    def choices(recipe: Recipe) -> dict[str, Any]:
        return {name: value for name, value in vars(recipe).items() if name != "name"}

    assert choices(ladder[0]) == choices(first)
    assert choices(ladder[-1]) == choices(last)
    changed = [
        {name for name in choices(a) if choices(a)[name] != choices(b)[name]}
        for a, b in pairwise(ladder)
    ]
    assert changed == [
        {"decoder", "resizer", "interpolation"},
        {"workers"},
        {"batch_size"},
        {"dtype"},
    ]


def test_a_row_is_the_median_pass_with_its_spread() -> None:
    recipe = Recipe("baseline", workers=4)
    row = _end_to_end.table(
        [record(recipe, repeat, wall) for repeat, wall in enumerate((3000, 1000, 2000))]
    )[0]
    assert tuple(row) == _end_to_end.COLUMNS
    assert (row["wall_s"], row["wall_s_min"], row["wall_s_max"], row["repeats"]) == (
        2.0,
        1.0,
        3.0,
        3,
    )
    assert (row["img_per_s"], row["img_per_s_min"], row["img_per_s_max"]) == (5.0, 10 / 3, 10.0)
    assert sum(float(str(row[f"{name}_share"])) for name in STAGES) == pytest.approx(1)
    assert row["wait_share"] == pytest.approx(0.0025)
    assert row["usd_per_million"] == pytest.approx(1e6 / 5 / 3600 * 3.6)
    assert row["cpu_cores_used"] == 2.0
    assert row["throttle_reasons"] == "power cap"
    assert (row["gate"], row["status"], row["seconds_per_100k_origin"]) == (
        "reference",
        "ok",
        "extrapolated",
    )


def test_a_recipe_that_fails_its_gate_gets_no_time() -> None:
    recipe = Recipe("optimized", decoder="turbojpeg", resizer="opencv", interpolation="linear")
    good, bad = {"psnr_db": 30.0, "cosine": 0.99}, {"psnr_db": 30.0, "cosine": 0.5}
    assert _end_to_end.table([fidelity({"optimized": good}), record(recipe)])[0]["status"] == "ok"
    row = _end_to_end.table([fidelity({"optimized": bad}), record(recipe)])[0]
    assert (row["status"], row["img_per_s"], row["cosine"]) == ("gate failed", None, 0.5)
    assert _end_to_end.table([record(recipe)])[0]["gate"] == "not checked"


def test_out_of_memory_is_a_row_and_the_others_stay() -> None:
    small, large = Recipe("batch-1", batch_size=1), Recipe("batch-256", batch_size=256)
    lost = Record(record(large).cell, "oom", "CUDA out of memory", environment={"machine": MACHINE})
    rows = _end_to_end.table([record(small), lost])
    assert [(row["batch_size"], row["status"]) for row in rows] == [(1, "ok"), (256, "oom")]
    assert rows[1]["img_per_s"] is None


def test_a_stand_in_model_says_how_long_it_waits() -> None:
    mock = ModelSpec("null", weights="none", service_ms=8.0, service_ms_per_image=2.0)
    row = _end_to_end.table([record(Recipe("baseline", batch_size=32), model=mock)])[0]
    assert (row["weights"], row["service_ms"]) == ("none", 72.0)


def test_the_timeline_is_the_first_repeats_spans_in_milliseconds() -> None:
    spans = [("worker 0", "read", 0, -2_000_000, 1_500_000), ("main", "forward", 0, 0, 3_000_000)]
    rows = _end_to_end.timeline(
        [record(Recipe("baseline")), record(Recipe("baseline"), spans=spans)]
    )
    assert [(row["lane"], row["stage"], row["start_ms"], row["duration_ms"]) for row in rows] == [
        ("worker 0", "read", -2.0, 1.5),
        ("main", "forward", 0.0, 3.0),
    ]
    assert set(rows[0]) == set(_end_to_end.TIMELINE_COLUMNS)
