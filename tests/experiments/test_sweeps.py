"""The experiments with one recipe or one varying choice: their grids, ladder, timeline and fit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from experiments import contents
from experiments.batch import cells as batch
from experiments.scaling import cells as scaling
from experiments.steps import cells as steps
from experiments.workers import cells as workers
from harness.records import Record
from harness.spec import IMAGE_SETS, Cell, Recipe
from tests.experiments import made
from tests.experiments.conftest import Grid
from tests.experiments.made import MS, S
from tests.fixture_run import fixture_records
from wallclock.errors import UserError


def choices(recipe: Recipe) -> dict[str, Any]:
    return {name: value for name, value in vars(recipe).items() if name != "name"}


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
    """The paper's curve first, under the names that older records have; Pillow's beside it."""
    fidelity, *cells = grid("workers", "repeats=1")
    ours, pillow = cells[:5], cells[5:]
    for half, decoder, resizer in ((ours, "turbojpeg", "opencv"), (pillow, "pil", "pil")):
        assert [cell.recipe.workers for cell in half] == [0, 2, 4, 8, 16]
        choices = {(cell.recipe.decoder, cell.recipe.resizer) for cell in half}
        assert choices == {(decoder, resizer)}
    assert [cell.label for cell in ours] == [f"workers-{n}" for n in (0, 2, 4, 8, 16)]
    assert len({cell.label for cell in cells}) == 10
    assert {cell.recipe.batch_size for cell in cells} == {64}
    names = [recipe["name"] for recipe in fidelity.params["recipes"]]
    assert names == [cell.recipe.name for cell in ours], "Pillow is what they are compared with"


#: By decoder and workers: the rates of three blocks.
WORKER_RATES = {
    ("turbojpeg", 0): (100, 100, 100),
    ("turbojpeg", 2): (196, 200, 150),
    ("turbojpeg", 4): (200, 190, 200),
    ("pil", 0): (50, 50, 50),
    ("pil", 2): (90, 97, 90),
    ("pil", 4): (100, 100, 100),
}


def worker_records(rates: Mapping[tuple[str, int], Sequence[int]]) -> list[Record]:
    records = []
    for (decoder, count), blocks in rates.items():
        recipe = replace(made.RECIPE, name=f"{decoder}-{count}", decoder=decoder, workers=count)
        for repeat, rate in enumerate(blocks):
            samples = {"wall": [round(10 / rate * S)], "batch": [S], "forward": [S]}
            values = {"n_embedded": 10, "telemetry": {"throttle_reasons": []}}
            new = made.record("workers", "throughput", recipe.name, values, {}, samples, recipe)
            records.append(replace(new, cell=replace(new.cell, repeat=repeat)))
    return records


def needed(records: list[Record]) -> dict[object, tuple[object, ...]]:
    """By decoder: `workers_needed` and its limits, the same in each of its measured rows."""
    by_decoder: dict[object, set[tuple[object, ...]]] = {}
    for row in workers.tables(records)[workers.CSV]:
        if row["status"] == "ok":
            cells = tuple(row[f"workers_needed{end}"] for end in ("", "_min", "_max"))
            by_decoder.setdefault(row["decoder"], set()).add(cells)
    return {decoder: cells for decoder, (cells,) in by_decoder.items()}


def test_workers_needed_in_each_block() -> None:
    """196 of 200 is within 2 %, 190 of 200 is not."""
    records = worker_records(WORKER_RATES)
    assert needed(records) == {"turbojpeg": (2, 2, 4), "pil": (4, 4, 4)}
    failed = [
        replace(record, status="error", samples={}) if record.cell.label == "pil-4" else record
        for record in records
    ]
    assert needed(failed) == {"turbojpeg": (2, 2, 4), "pil": (2, 2, 2)}
    single = [record for record in records if record.cell.recipe.workers == 2]
    empty = (None, None, None)
    assert needed(single) == {"turbojpeg": empty, "pil": empty}


def swept(rates: dict[int, float], p99_ms: dict[int, int], bound: int | None) -> list[Record]:
    """A sweep over batch sizes with these rates; a latency's 99th percentile where there is one."""
    records = list[Record]()
    for size, rate in rates.items():
        recipe = replace(made.RECIPE, name=f"batch-{size}", batch_size=size)
        samples = {"wall": [round(10 / rate * S)], "batch": [S], "forward": [S]}
        samples |= {"latency": [p99_ms[size] * MS]} if size in p99_ms else {}
        values = {"n_embedded": 10, "telemetry": {"throttle_reasons": []}}
        params = {"latency_bound_ms": bound} if bound and not records else {}
        record = made.record("batch", "throughput", recipe.name, values, params, samples, recipe)
        records.append(record)
    return records


RATES = {1: 50.0, 64: 100.0, 32: 98.1, 16: 97.9}


@pytest.mark.parametrize(
    ("rates", "p99_ms", "bound", "knee", "largest"),
    [
        (RATES, {1: 20, 16: 249, 32: 250, 64: 900}, 250, [32], [16]),
        (RATES, {16: 300, 64: 200}, 250, [32], [64]),
        (RATES, {}, None, [32], []),
        ({32: 98.0}, {32: 1}, 250, [], [32]),
    ],
)
def test_knee_and_largest_batch_in_the_bound(
    rates: dict[int, float], p99_ms: dict[int, int], bound: Any, knee: Any, largest: Any
) -> None:
    rows = batch.tables(swept(rates, p99_ms, bound))[batch.CSV]
    marked = {
        column: [row["batch_size"] for row in rows if row[column]]
        for column in ("knee", "largest_in_bound")
    }
    assert marked == {"knee": knee, "largest_in_bound": largest}
    assert {row["latency_bound_ms"] for row in rows} == {bound}
    assert [row["latency_p50_ms"] for row in rows] == [p99_ms.get(size) for size in rates]


def on_both_sets(name: str, profile: str) -> list[Cell]:
    overrides = f"experiment=[{name}] corpus=abo device=cpu profile={profile}".split()
    plan = made.AboPlan(made.resolved(*overrides), lambda done, total, what: None)
    return contents.load(name).cells(plan, plan.settings.experiments[name])


@pytest.mark.parametrize(
    ("profile", "repeats"),
    [("paper", (3, 1)), ("long", (5, 5)), ("quick", (1, 1)), ("paper repeats=3", (3, 3))],
)
def test_originals_beside_the_small_images(profile: str, repeats: tuple[int, int]) -> None:
    """The paper's set first, repeated for its verdicts; originals as often as anything is."""
    *timed, mock = on_both_sets("opt", profile)
    assert (mock.images.image_set, mock.model.weights) == ("original", "none"), "for the timeline"
    sets = [(cell.protocol, cell.images.image_set) for cell in timed]
    small, original = ([("throughput", name)] for name in IMAGE_SETS)
    assert sets[:2] == [("fidelity", name) for name in IMAGE_SETS]
    assert sets[2:] == [*small * repeats[0], *original * repeats[1]]


def test_reverse_order_is_of_the_last_set() -> None:
    cells = on_both_sets("steps", "paper")
    reverse = [cell for cell in cells if cell.recipe.name.startswith("reverse-")]
    assert {cell.images.image_set for cell in reverse} == {"original"}
    paper = [cell for cell in cells if cell.recipe.name == "fp16"]
    assert choices(reverse[-1].recipe) == choices(paper[-1].recipe), "both ladders end alike"
    with pytest.raises(UserError, match="did you mean workers"):
        on_both_sets("steps", "paper experiment.steps.reverse=[worker]")


@pytest.mark.parametrize("name", ["t4", "opt"])
def test_beside_a_network_on_a_cpu_the_timeline_is_a_mocks(name: str) -> None:
    module: Any = contents.load(name)
    records = fixture_records(name)
    (timed,) = [record for record in records if record.spans]
    model = replace(timed.cell.model, weights="none", service_ms=8.0, service_ms_per_image=0.0)
    cell = replace(timed.cell, label=f"{timed.cell.label}-mock", model=model)
    filled = module.tables([*records, replace(timed, cell=cell, spans=timed.spans[:3])])
    shown = [(row["weights"], row["service_ms"]) for row in filled[module.TIMELINE_CSV]]
    assert shown == [("none", 8.0)] * 3
    assert filled[module.CSV] == module.tables(records)[module.CSV], "no row is about it"


def test_ladder_changes_one_choice_at_a_time(grid: Grid) -> None:
    fidelity, *cells = grid("steps", "repeats=1")
    ladder = [choices(cell.recipe) for cell in cells]
    reverse = [ladder[0], *ladder[len(steps._LADDER) :]]
    decode = {"decoder", "resizer", "interpolation"}
    expected = [decode, {"workers"}, {"batch_size"}, {"dtype"}]
    for climbed, changes in ((ladder[: len(steps._LADDER)], expected), (reverse, expected[::-1])):
        changed = [{name for name in a if a[name] != b[name]} for a, b in pairwise(climbed)]
        assert changed == changes
    names = [cell.recipe.name for cell in cells]
    assert [recipe["name"] for recipe in fidelity.params["recipes"]] == names[1:]
    options = made.resolved("experiment=[steps]").experiments["steps"]
    ends = [choices(options[name]) for name in ("baseline", "optimized")]
    recipes = steps._recipes(options["baseline"], options["optimized"])
    assert [choices(recipe) for recipe in (recipes[0], recipes[-1])] == ends


@pytest.mark.parametrize(("n_files", "files"), [(1000, "distinct"), (512, "repeated")])
def test_a_job_of_few_files_says_so(n_files: int, files: str) -> None:
    values: dict[str, Any] = {"n_loaded": 1000, "n_files": n_files, "deduplicate": True}
    values |= {"peak_memory_mib": 600.0, "sampled": {"n_done": [], "rss_mib": []}}
    (row,) = scaling.tables([made.record("scaling", "job", "job", values, {})])[scaling.CSV]
    assert (row["files"], row["deduplicate"]) == (files, True)


@pytest.mark.parametrize(("longest", "runs"), [(3000, 2), (100_000, 5), (1_000_000, 6)])
def test_the_million_is_run_on_request(grid: Grid, longest: int, runs: int) -> None:
    small = "corpus.image_set=small_256"
    cells = grid("scaling", "repeats=1", small, f"scaling_max_images={longest}")
    assert [cell.params["n"] for cell in cells][-1] == longest
    assert len(cells) == runs
    assert {cell.model.weights for cell in cells} == {"none"}
    assert {cell.params["files"] for cell in cells} == {"distinct"}
