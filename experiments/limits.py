"""What could each part do alone, how near does the pipeline come, and which part limits it?

Method. Ceilings, each in a process of its own: `decode_files` is read, decode and resize in one
pinned process a core, without a loader; `decode_memory` the same on bytes that are in memory;
`forward` the model on a batch that lies on the device; `h2d` the copy alone; `synthetic` everything
behind the loader on batches that cost nothing. Interleaved with them, the loader alone and the
end-to-end pass, whose `efficiency` is their rate over the lowest ceiling of the stages they contain
(`limited_by`). On a CPU a network would take the loader's cores, so mock models of a fixed time
replace it: a slow one, which must hide the loader, and a fast one, which the loader must keep
waiting. glibc's allocator keeps freed memory (`allocator=keep`) in all of them: otherwise one
process fetches its pages anew for each image and another does not, and the end-to-end pass seems
faster than its parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from experiments import _rows
from experiments._cells import cell, mock_model
from experiments._rows import Row
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, ModelSpec, Recipe, Slice
from wallclock.summary import median

RANK = 140
CSV = "limits.csv"
COLUMNS = _rows.columns(
    "what recipe engine decoder workers batch_size dtype image_set corpus weights",
    "service_ms_per_image device device_kind n_images n_unique repeats",
    "wall_s img_per_s img_per_s_min img_per_s_max core_img_per_s_min core_img_per_s_max",
    "ceiling_img_per_s efficiency limited_by median_kb median_megapixels origin status reason",
)
TABLES = {CSV: COLUMNS}

#: Ceiling → the stage it limits. `synthetic` spans several; `decode_memory` is decode_files' part.
_STAGES = {"decode_files": "decode and resize", "forward": "forward", "h2d": "h2d"}
_OF_LOADER = ("decode_files",)
_WITH_MODEL = ("forward", "synthetic", "end_to_end")
#: So much faster from memory, and reading is what limits decode.
_READ_BOUND = 1.1
#: Batches of each DataLoader worker in an end-to-end pass, at least.
_ROUNDS = 12


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """For each image set the ceilings, the loader and end to end, repeated.

    Of the paper's recipe only its end-to-end pass and the two ceilings that can limit it; its
    loader is in `frontier`.
    """
    grid: list[Cell] = []
    for repeat in plan.repeats("limits"):
        for image_set, corpus in plan.slices(options["images"]).items():
            size = options["batch_size"][image_set]
            ours = replace(options["fast"], batch_size=size)
            paper = replace(options["optimized"], batch_size=size, dtype=ours.dtype)
            models = _models(plan, options["mock_ms"][image_set])
            grid += _of_recipe(plan, options, ours, corpus, repeat, models)
            if "optimized" in options["recipes"]:
                measured = _of_recipe(plan, options, paper, corpus, repeat, models[-1:])
                wanted = ("decode_files", "forward", "end_to_end")
                grid += [one for one in measured if one.params["what"] in wanted]
    return grid


def _of_recipe(
    plan: Plan,
    options: Mapping[str, Any],
    recipe: Recipe,
    corpus: Slice,
    repeat: int,
    models: Sequence[ModelSpec],
) -> Iterator[Cell]:
    shared = {**plan.params, "seconds": plan.settings.loader_seconds, "allocator": "keep"}
    new = partial(cell, plan, "limits", recipe=recipe, corpus=corpus, repeat=repeat)

    def one(protocol: str, what: str, model: ModelSpec, **params: object) -> Cell:
        label = f"{what}-{recipe.name}"
        if what in _WITH_MODEL:
            label += f"-{_service(model)}"
        return new(protocol, label, model=model, params={**shared, "what": what, **params})

    for what in ("decode_files", "decode_memory", "h2d"):
        yield one("ceiling", what, models[0], kind=what)
    yield one("loading", "loader", models[0])
    for model in models:
        for what in ("forward", "synthetic"):
            yield one("ceiling", what, model, kind=what)
        batches = _batches(plan, options, recipe, corpus, model)
        yield one("throughput", "end_to_end", model, batches=batches)


def _models(plan: Plan, mock_ms: Mapping[str, float]) -> list[ModelSpec]:
    """The configured network on a GPU; else mock models, slower and faster than any loader here."""
    model = plan.settings.model
    if plan.settings.device == "cuda" and model.weights != "none":
        return [model]
    return [mock_model(plan, image_ms=ms) for ms in mock_ms.values()]


def _batches(
    plan: Plan, options: Mapping[str, Any], recipe: Recipe, corpus: Slice, model: ModelSpec
) -> int:
    """Enough for `seconds`, and for work in progress at either end to be negligible."""
    ms = max(model.service_ms_per_image, float(options["expected_ms"][corpus.image_set]))
    timed = math.ceil(plan.settings.loader_seconds * 1e3 / ms / recipe.batch_size)
    return max(timed, _ROUNDS * recipe.workers)


def _service(model: ModelSpec) -> str:
    return f"{model.service_ms_per_image:g}ms" if model.weights == "none" else model.name


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row per ceiling, loader and end-to-end pass."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        key = (record.cell.images.image_set, record.cell.label)
        groups.setdefault(key, []).append(record)
    rows = [_row(repeats) for repeats in groups.values()]
    for row in rows:
        if row["what"] in ("loader", "end_to_end") and row["status"] == "ok":
            row |= _efficiency(row, rows)
    return {CSV: rows}


def _row(repeats: Sequence[Record]) -> Row:
    timed = repeats[0].cell
    row = _rows.new_row(repeats, COLUMNS) | {"what": timed.params["what"]}
    if row["what"] not in _WITH_MODEL:
        row["weights"] = None
    elif timed.model.weights == "none":
        row["service_ms_per_image"] = timed.model.service_ms_per_image
    return row | _measured(repeats) if row["status"] == "ok" else row


def _measured(repeats: Sequence[Record]) -> Row:
    shown = _rows.median_repeat(repeats, _rate)
    rates = [_rate(record) for record in _rows.measured(repeats)]
    row: Row = {
        "n_images": _count(shown),
        "n_unique": shown.values["n_unique"],
        "repeats": len(rates),
        "wall_s": _rows.wall_s(shown),
        "img_per_s": median(rates),
        "img_per_s_min": min(rates),
        "img_per_s_max": max(rates),
        **_rows.size_columns(shown.values),
    }
    if cores := shown.values.get("core_img_per_s"):
        row |= {"core_img_per_s_min": min(cores), "core_img_per_s_max": max(cores)}
    return row


def _count(record: Record) -> int:
    values = record.values
    return int(values["n_loaded"] if "n_loaded" in values else values["n_embedded"])


def _rate(record: Record) -> float:
    """Images a second; of pinned processes, which do not end together, the sum of their own."""
    return float(record.values.get("img_per_s") or _count(record) / _rows.wall_s(record))


def _efficiency(row: Row, rows: Sequence[Row]) -> Row:
    """The rate over the lowest ceiling of the stages that the row contains, and that stage."""
    same = ("recipe", "image_set", "status")
    ceilings: dict[str, float] = {}
    for other in rows:
        fits = (
            other["what"] not in _WITH_MODEL
            or other["service_ms_per_image"] == row["service_ms_per_image"]
        )
        if fits and all(other[name] == row[name] for name in same):
            ceilings[str(other["what"])] = float(str(other["img_per_s"]))
    stages = _OF_LOADER if row["what"] == "loader" else tuple(_STAGES)
    present = [name for name in stages if name in ceilings]
    if not present:
        return {}
    lowest = min(present, key=ceilings.__getitem__)
    from_memory = ceilings.get("decode_memory", 0.0)
    reads = lowest == "decode_files" and from_memory > _READ_BOUND * ceilings[lowest]
    return {
        "ceiling_img_per_s": ceilings[lowest],
        "efficiency": float(str(row["img_per_s"])) / ceilings[lowest],
        "limited_by": "read" if reads else _STAGES[lowest],
    }
