"""What could each part do alone, how near does the pipeline come, and which part limits it?

Method. Ceilings, each in a process of its own: `decode_files` is read, decode and resize in one
pinned process per core, without a loader; `decode_memory` the same on bytes that are in memory;
`engine` the threads engine when decode and resize return at once: what one process can read and
hand on; `forward` the model on a batch that lies on the device; `h2d` the copy alone; `synthetic`
everything behind the loader on batches that cost nothing. Interleaved with them, the loader alone
and the end-to-end pass, whose `efficiency` is their rate over the lowest ceiling of the stages they
contain (`limited_by`); above 1, the row says so. On a CPU a network would take the loader's cores,
so mock models of a fixed time replace it: a slow one, which must hide the loader, and a fast one,
which the loader must keep waiting. glibc's allocator keeps freed memory (`allocator=keep`) in all
of them: otherwise one process fetches its pages anew for each image and another does not, and the
end-to-end pass seems faster than its parts.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from experiments import common
from experiments.common import Cell, Options, Plan, Recipe, Records, Row, Tables, cell, mock_model
from harness.spec import Slice
from wallclock.recipe import ModelSpec

RANK = 140
CSV = "limits.csv"
COLUMNS = common.columns(
    "what recipe engine decoder workers batch_size dtype image_set corpus weights",
    "service_ms_per_image device device_kind n_images n_unique repeats",
    "wall_s img_per_s img_per_s_min img_per_s_max",
    common.LATENCY_COLUMNS,
    "ceiling_img_per_s efficiency limited_by median_kb median_megapixels origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
service_ms_per_image | ms | setting | time per image of the mock model
ceiling_img_per_s | images/s | measured | the lowest ceiling of the stages that the row contains
efficiency | 0 to 1 | measured | rate over that ceiling
limited_by | | status | the stage of that ceiling
"""

#: Ceiling → the stage it limits. `synthetic` spans several; `decode_memory` is decode_files' part.
_STAGES = {
    "decode_files": "decode and resize",
    "engine": "the loader itself",
    "forward": "forward",
    "h2d": "h2d",
}
_WITH_MODEL = ("forward", "synthetic", "end_to_end")
#: So much faster from memory, and reading is what limits decode.
_READ_BOUND = 1.1
#: Batches of each DataLoader worker in an end-to-end pass, at least.
_ROUNDS = 12


def cells(plan: Plan, options: Options) -> list[Cell]:
    """For each image set the ceilings, the loader and end to end, repeated.

    Of the paper's recipe only its end-to-end pass and the two ceilings that can limit it; its
    loader is in `frontier`.
    """
    grid: list[Cell] = []
    for repeat in plan.repeats("limits"):
        for image_set, corpus in plan.slices(options["images"]).items():
            ours = replace(options["fast"], batch_size=options["batch_size"][image_set])
            models = _models(plan, options["mock_ms"][image_set])
            new = partial(_cells, plan, corpus, repeat, float(options["expected_ms"][image_set]))
            grid += new(ours, models)
            if "optimized" in options["recipes"]:
                paper = replace(options["optimized"], batch_size=ours.batch_size, dtype=ours.dtype)
                wanted = ("decode_files", "forward", "end_to_end")
                candidates = new(paper, models[-1:])
                grid += [planned for planned in candidates if planned.params["what"] in wanted]
    return grid


def _models(plan: Plan, mock_ms: Mapping[str, float]) -> list[ModelSpec]:
    """The configured network on a GPU; else mock models, slower and faster than any loader here."""
    model = plan.settings.model
    if plan.settings.device == "cuda" and model.weights != "none":
        return [model]
    return [mock_model(plan, image_ms=ms) for ms in mock_ms.values()]


def _cells(
    plan: Plan, corpus: Slice, repeat: int, load_ms: float, recipe: Recipe, models: list[ModelSpec]
) -> Iterator[Cell]:
    seconds = plan.settings.loader_seconds
    new_cell = partial(cell, plan, "limits", recipe=recipe, corpus=corpus, repeat=repeat)

    def new(protocol: str, what: str, model: ModelSpec, **params: object) -> Cell:
        label = f"{what}-{recipe.name}"
        if what in _WITH_MODEL:
            mock_ms = f"{model.service_ms_per_image:g}ms"
            label += f"-{mock_ms if model.weights == 'none' else model.name}"
        params |= {**plan.params, "seconds": seconds, "allocator": "keep", "what": what}
        return new_cell(protocol, label, model=model, params=params)

    for what in ("decode_files", "decode_memory", "engine", "h2d"):
        yield new("ceiling", what, models[0], kind=what)
    yield new("loading", "loader", models[0])
    for model in models:
        for what in ("forward", "synthetic"):
            yield new("ceiling", what, model, kind=what)
        # Enough for `seconds`, and for work in progress at either end to be negligible.
        ms = max(model.service_ms_per_image, load_ms)
        timed = math.ceil(seconds * 1e3 / ms / recipe.batch_size)
        batches = max(timed, _ROUNDS * recipe.workers)
        yield new("throughput", "end_to_end", model, batches=batches)


def tables(records: Records) -> Tables:
    """One row per ceiling, loader and end-to-end pass."""
    rows = common.table_rows(records, COLUMNS, _measured, about=_about)
    for row in rows:
        if row["what"] in ("loader", "end_to_end") and row["status"] == "ok":
            row |= _efficiency(row, rows)
    return {CSV: rows}


def _about(timed: Cell) -> Row:
    what = timed.params["what"]
    if what not in _WITH_MODEL:
        return {"what": what, "weights": None}
    is_mock = timed.model.weights == "none"
    image_ms = timed.model.service_ms_per_image if is_mock else None
    return {"what": what, "service_ms_per_image": image_ms}


def _measured(repeats: Records) -> Row:
    median_repeat = common.median_repeat(repeats, common.seconds_an_image)
    row = common.value_columns(median_repeat, "n_unique") | common.spread_columns(repeats)
    row |= {"n_images": common.count(median_repeat), "wall_s": common.wall_s(median_repeat)}
    return row | common.percentile_columns(median_repeat, "latency")


def _efficiency(row: Row, rows: Sequence[Row]) -> Row:
    """The rate over the lowest ceiling of the stages that the row contains, and that stage."""
    ceilings = {str(other["what"]): _rates(other) for other in rows if _is_alike(other, row)}
    contained = ("decode_files", "engine") if row["what"] == "loader" else tuple(_STAGES)
    present = [name for name in contained if name in ceilings]
    if not present:
        return {}
    lowest = min(present, key=lambda name: ceilings[name])
    ceiling, rate = ceilings[lowest], _rates(row)
    limited_by = _STAGES[lowest]
    from_memory = ceilings.get("decode_memory", _NO_RATES).median
    if lowest == "decode_files" and from_memory > _READ_BOUND * ceiling.median:
        limited_by = "read"
    columns: Row = {
        "ceiling_img_per_s": ceiling.median,
        "efficiency": rate.median / ceiling.median,
        "limited_by": limited_by,
    }
    if rate.median > ceiling.median:
        is_apart = rate.low > ceiling.high and row["repeats"] != 1
        why = "the ceiling is not one" if is_apart else "within the spread of the repeats"
        columns["reason"] = f"above its ceiling: {why}"
    return columns


def _is_alike(ceiling: Row, row: Row) -> bool:
    """Whether a ceiling is one of the row's: of its recipe and images, and of its model."""
    names = ["recipe", "image_set", "status"]
    if ceiling["what"] in _WITH_MODEL:
        names.append("service_ms_per_image")
    return all(ceiling[name] == row[name] for name in names)


class _Rates(NamedTuple):
    """Images a second: the median repeat's, the lowest and the highest."""

    median: float
    low: float
    high: float


_NO_RATES = _Rates(0.0, 0.0, 0.0)


def _rates(row: Row) -> _Rates:
    return _Rates(*(row[f"img_per_s{end}"] for end in ("", "_min", "_max")))
