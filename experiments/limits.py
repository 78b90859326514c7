"""What could each part do alone, how near does the whole come, and which part holds it back?

Method. Ceilings, each in a process of its own: `decode_files` is read, decode and resize in one pinned
process a core, without a loader; `decode_memory` the same on bytes that are in memory; `forward` the
model on a batch that lies on the device; `h2d` the copy alone; `synthetic` everything behind the loader on
batches that cost nothing. Then, interleaved with them, the loader alone and the whole pass, whose
`efficiency` is their rate over the lowest ceiling of the stages they contain (`limited_by`). On a CPU a
network would take the loader's cores, so mock models of a fixed time take its place: a slow one, which must
hide the loader, and a fast one, which the loader must keep waiting. glibc's allocator keeps what is freed
(`allocator=keep`) in all of them: else one process fetches its pages anew for each picture and another
does not, and the whole seems faster than its parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import Row, _rows
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, ModelSpec, Recipe, Slice
from wallclock.summary import median

CSV = "limits.csv"
COLUMNS = (
    *(
        "what",
        "recipe",
        "engine",
        "decoder",
        "workers",
        "batch_size",
        "dtype",
        "image_set",
        "corpus",
        "weights",
    ),
    *("service_ms_per_image", "device", "device_kind", "n_images", "n_unique", "repeats"),
    *(
        "wall_s",
        "img_per_s",
        "img_per_s_min",
        "img_per_s_max",
        "core_img_per_s_min",
        "core_img_per_s_max",
    ),
    *("ceiling_img_per_s", "efficiency", "limited_by", "median_kb", "median_megapixels"),
    *("origin", "status", "reason"),
)
TABLES = {CSV: COLUMNS}

#: Ceiling → the stage that it is of. `synthetic` is of several, and `decode_memory` is the first without its reads.
_STAGES = {"decode_files": "decode and resize", "forward": "forward", "h2d": "h2d"}
_OF_LOADER = ("decode_files",)
#: So much faster from memory, and it is the reading that holds decode back.
_READ_BOUND = 1.1

#: Batches of each DataLoader worker in an end-to-end pass, at least.
_ROUNDS = 12

_RECIPE_COLUMNS = ("engine", "decoder", "workers", "batch_size", "dtype")


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """For each image set the ceilings, the loader and the whole, of ours and of the paper's recipe, repeated."""
    found = []
    for repeat in plan.repeats("limits"):
        for image_set, corpus in plan.slices(options["images"]).items():
            size = options["batch_size"][image_set]
            ours = replace(options["fast"], batch_size=size)
            paper = replace(options["optimized"], batch_size=size, dtype=ours.dtype)
            models = _models(plan, options["mock_ms"][image_set])
            found += _of_recipe(plan, options, ours, corpus, repeat, models)
            # The paper's recipe: its whole, and the two ceilings that can hold it back. Its loader is in `frontier`.
            beside = _of_recipe(plan, options, paper, corpus, repeat, models[-1:])
            found += [
                cell
                for cell in beside
                if cell.params["what"] in ("decode_files", "forward", "end_to_end")
            ]
    return found


def _of_recipe(
    plan: Plan,
    options: Mapping[str, Any],
    recipe: Recipe,
    corpus: Slice,
    repeat: int,
    models: Sequence[ModelSpec],
) -> list[Cell]:
    params = {**plan.params, "seconds": plan.settings.loader_seconds, "allocator": "keep"}

    def cell(protocol: str, what: str, model: ModelSpec, **more: object) -> Cell:
        label = f"{what}-{recipe.name}-{_service(model) if what in _WITH_MODEL else ''}".rstrip("-")
        return Cell(
            "limits",
            protocol,
            label,
            repeat,
            recipe,
            corpus,
            model,
            {**params, "what": what, **more},
        )

    found = [
        cell("ceiling", kind, models[0], kind=kind)
        for kind in ("decode_files", "decode_memory", "h2d")
    ]
    found.append(cell("loading", "loader", models[0]))
    for model in models:
        found += [cell("ceiling", kind, model, kind=kind) for kind in ("forward", "synthetic")]
        found.append(
            cell(
                "throughput",
                "end_to_end",
                model,
                batches=_batches(plan, options, recipe, corpus, model),
            )
        )
    return found


_WITH_MODEL = ("forward", "synthetic", "end_to_end")


def _models(plan: Plan, mock_ms: Mapping[str, float]) -> list[ModelSpec]:
    """The configured network on a GPU; else a mock model that is slower than any loader here, and one that is faster."""
    model = plan.settings.model
    if plan.settings.device == "cuda" and model.weights != "none":
        return [model]
    mock = ModelSpec("null", weights="none", input_px=model.input_px, dim=model.dim)
    return [replace(mock, service_ms_per_image=ms) for ms in mock_ms.values()]


def _batches(
    plan: Plan, options: Mapping[str, Any], recipe: Recipe, corpus: Slice, model: ModelSpec
) -> int:
    """As many as take about `seconds`, and so many that what workers have half done at either end is little."""
    ms = max(model.service_ms_per_image, float(options["expected_ms"][corpus.image_set]))
    return max(
        math.ceil(plan.settings.loader_seconds * 1e3 / ms / recipe.batch_size), _ROUNDS * recipe.workers
    )


def _service(model: ModelSpec) -> str:
    return f"{model.service_ms_per_image:g}ms" if model.weights == "none" else model.name


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row a ceiling, a loader, an end-to-end pass."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        assert record.cell.corpus is not None
        groups.setdefault((record.cell.corpus.image_set, record.cell.label), []).append(record)
    made = [_row(repeats) for repeats in groups.values()]
    for row in made:
        if row["what"] in ("loader", "end_to_end") and row["status"] == "ok":
            row |= _efficiency(row, made)
    return {CSV: made}


def _row(repeats: Sequence[Record]) -> Row:
    first = repeats[0]
    recipe, model, corpus = first.cell.recipe, first.cell.model, first.cell.corpus
    assert corpus is not None
    status, reason = _rows.status_of(repeats)
    row = _rows.blank(COLUMNS) | {
        name: value for name, value in _rows.where(first).items() if name in COLUMNS
    }
    row |= {name: getattr(recipe, name) for name in _RECIPE_COLUMNS}
    row |= {"what": first.cell.params["what"], "recipe": recipe.name, "image_set": corpus.image_set}
    row |= {"origin": "measured", "status": status, "reason": reason}
    if row["what"] not in _WITH_MODEL:
        row["weights"] = None
    elif model.weights == "none":
        row["service_ms_per_image"] = model.service_ms_per_image
    return row | _measured(repeats) if status == "ok" else row


def _measured(repeats: Sequence[Record]) -> Row:
    done = sorted((record for record in repeats if record.ok), key=_rate)
    chosen, rates = done[(len(done) - 1) // 2], [_rate(record) for record in done]
    cores = chosen.values.get("core_img_per_s")
    return {
        **{"n_images": _count(chosen), "n_unique": chosen.values["n_unique"], "repeats": len(done)},
        **{"wall_s": _rows.wall_s(chosen), "img_per_s": median(rates)},
        **{"img_per_s_min": rates[0], "img_per_s_max": rates[-1]},
        **({"core_img_per_s_min": min(cores), "core_img_per_s_max": max(cores)} if cores else {}),
        **_rows.shape(chosen.values),
    }


def _count(record: Record) -> int:
    return int(
        record.values["n_loaded"] if "n_loaded" in record.values else record.values["n_embedded"]
    )


def _rate(record: Record) -> float:
    """Images a second; of pinned processes, which do not end together, the sum of their own."""
    return float(record.values.get("img_per_s") or _count(record) / _rows.wall_s(record))


def _efficiency(row: Row, made: Sequence[Row]) -> Row:
    """The rate over the lowest ceiling of the stages that the row contains, and that stage's name."""
    ceilings: dict[str, float] = {}
    for other in made:
        same = other["recipe"] == row["recipe"] and other["image_set"] == row["image_set"]
        fits = (
            other["what"] not in _WITH_MODEL
            or other["service_ms_per_image"] == row["service_ms_per_image"]
        )
        if same and fits and other["status"] == "ok" and isinstance(other["img_per_s"], float):
            ceilings[str(other["what"])] = other["img_per_s"]
    contained = [
        name for name in (_OF_LOADER if row["what"] == "loader" else _STAGES) if name in ceilings
    ]
    if not contained:
        return {}
    lowest = min(contained, key=ceilings.__getitem__)
    stage = _STAGES[lowest]
    if (
        lowest == "decode_files"
        and ceilings.get("decode_memory", 0.0) > _READ_BOUND * ceilings[lowest]
    ):
        stage = "read"
    rate = row["img_per_s"]
    assert isinstance(rate, float)
    return {
        "ceiling_img_per_s": ceilings[lowest],
        "efficiency": rate / ceilings[lowest],
        "limited_by": stage,
    }
