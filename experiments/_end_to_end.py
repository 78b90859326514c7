"""What the end-to-end experiments share: their cells and the rows of their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Row, _rows
from wallclock.clock import STAGES
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, Recipe, Slice
from wallclock.summary import quantile

COLUMNS = (
    *(
        "recipe",
        "decoder",
        "resizer",
        "interpolation",
        "engine",
        "workers",
        "start_method",
        "batch_size",
        "dtype",
    ),
    *(
        "runtime",
        "dct_scale",
        "dct_margin",
        "normalize_on",
        "compile",
        "sink",
        "image_set",
        "corpus",
        "weights",
        "service_ms",
        "device",
        "device_kind",
    ),
    *(
        "n_images",
        "n_unique",
        "steady",
        "repeats",
        *_rows.STAGE_COLUMNS,
        "wait_s",
        "wait_share",
        "startup_s",
    ),
    *("wall_s", "wall_s_min", "wall_s_max", "img_per_s", "img_per_s_min", "img_per_s_max"),
    *(
        "seconds_per_100k",
        "seconds_per_100k_origin",
        "batch_p50_ms",
        "batch_p95_ms",
        "batch_p99_ms",
    ),
    *(
        "peak_gpu_mem_gib",
        "gpu_util_mean",
        "gpu_power_w",
        "sm_clock_mhz",
        "throttle_reasons",
        "cpu_cores_used",
    ),
    *(
        "limited_by",
        "usd_per_million",
        *_rows.FIDELITY_COLUMNS,
        "n_failed",
        "median_kb",
        "median_megapixels",
    ),
    *("origin", "status", "reason"),
)
TIMELINE_COLUMNS = (
    *(
        "lane",
        "stage",
        "batch",
        "start_ms",
        "duration_ms",
        "corpus",
        "weights",
        "device",
        "device_kind",
    ),
    *("n_images", "workers", "batch_size"),
)

_RECIPE_COLUMNS = (
    *(
        "decoder",
        "resizer",
        "interpolation",
        "engine",
        "workers",
        "start_method",
        "batch_size",
        "dtype",
    ),
    *("runtime", "dct_scale", "dct_margin", "normalize_on", "compile", "sink"),
)
_MILLION = 1_000_000


def corpus_of(plan: Plan, options: Mapping[str, Any]) -> Slice:
    """The slice of the first wanted image set that the corpus has."""
    return plan.first_slice(options["images"])


def cell(
    plan: Plan, experiment: str, label: str, recipe: Recipe, corpus: Slice, repeat: int
) -> Cell:
    """One timed end-to-end pass."""
    return Cell(
        experiment, "throughput", label, repeat, recipe, corpus, plan.settings.model, plan.params
    )


def one_recipe(plan: Plan, experiment: str, options: Mapping[str, Any]) -> list[Cell]:
    """Fidelity once, then one cell a repeat, of the experiment's one recipe."""
    recipe, corpus = options["recipe"], corpus_of(plan, options)
    timed = [
        cell(plan, experiment, recipe.name, recipe, corpus, repeat)
        for repeat in plan.repeats(experiment)
    ]
    return [fidelity_cell(plan, experiment, [recipe], options), *timed]


def fidelity_cell(
    plan: Plan, experiment: str, recipes: Sequence[Recipe], options: Mapping[str, Any]
) -> Cell:
    """The untimed comparison of these recipes' pixels and vectors with Pillow's in FP32."""
    corpus = corpus_of(plan, options)
    sample = plan.slice(corpus.image_set, min(options["fidelity"]["images"], corpus.n))
    reference = Recipe("reference", batch_size=32, device=plan.settings.device)
    choices = [
        {
            "name": recipe.name,
            "decoder": recipe.decoder,
            "resizer": recipe.resizer,
            "interpolation": recipe.interpolation,
            "dtype": recipe.dtype,
            **_scaling(recipe),
        }
        for recipe in recipes
    ]
    params = {**options["fidelity"], "recipes": choices}
    return Cell(
        experiment, "fidelity", "fidelity", 0, reference, sample, plan.settings.model, params
    )


def _scaling(recipe: Recipe) -> dict[str, object]:
    """What a fidelity cell needs to know of a recipe that scales while it decodes; others' cells stay as they were."""
    if recipe.dct_scale == "full":
        return {}
    return {"dct_scale": recipe.dct_scale, "dct_margin": recipe.dct_margin}


def table(records: Sequence[Record]) -> list[Row]:
    """One row a recipe, in plan order."""
    return [row(repeats, records) for repeats in _rows.groups(records, "throughput").values()]


def row(repeats: Sequence[Record], records: Sequence[Record]) -> Row:
    """What the repeats of one recipe measured, or why they did not."""
    first = repeats[0]
    recipe, model = first.cell.recipe, first.cell.model
    assert first.cell.corpus is not None
    status, reason = _rows.status_of(repeats)
    found = (
        _rows.blank(COLUMNS)
        | _rows.where(first)
        | {name: getattr(recipe, name) for name in _RECIPE_COLUMNS}
    )
    found |= {
        "recipe": recipe.name,
        "image_set": first.cell.corpus.image_set,
        **gate(records, recipe),
    }
    if recipe.dct_scale == "full":
        found["dct_margin"] = None
    if model.weights == "none":
        found["service_ms"] = model.service_ms + model.service_ms_per_image * recipe.batch_size
    found |= {"origin": "measured", "status": status, "reason": reason}
    if status == "ok" and found["gate"] == "failed":
        return found | {
            "status": "gate failed",
            "reason": "too far from the reference's pixels or vectors: no time counts",
        }
    return found | _measured(repeats) if status == "ok" else found


def gate(records: Sequence[Record], recipe: Recipe) -> Row:
    """PSNR and cosine against Pillow in FP32, and whether they are good enough."""
    if (recipe.decoder, recipe.resizer, recipe.dtype, recipe.dct_scale) == (
        "pil",
        "pil",
        "fp32",
        "full",
    ):
        return {"gate": "reference"}
    for record in records:
        if record.cell.protocol == "fidelity":
            found = record.values.get("fidelity", {}).get(recipe.name, {})
            return _rows.judge_fidelity(found, record.cell.params)
    return {"gate": "not checked"}


def timeline(records: Sequence[Record]) -> list[Row]:
    """The spans of the first repeat, in milliseconds from the start of the steady state."""
    for record in records:
        if record.cell.protocol == "throughput" and record.spans:
            recipe = record.cell.recipe
            on = {
                name: value
                for name, value in _rows.where(record).items()
                if name in TIMELINE_COLUMNS
            }
            on |= {
                "n_images": record.values["n_embedded"],
                "workers": recipe.workers,
                "batch_size": recipe.batch_size,
            }
            return [
                {
                    **on,
                    "lane": lane,
                    "stage": stage,
                    "batch": batch,
                    "start_ms": at / 1e6,
                    "duration_ms": took / 1e6,
                }
                for lane, stage, batch, at, took in record.spans
            ]
    return []


def _measured(repeats: Sequence[Record]) -> Row:
    chosen = _rows.median_pass(repeats)
    walls = [_rows.wall_s(record) for record in repeats if record.ok]
    rates = [record.values["n_embedded"] / _rows.wall_s(record) for record in repeats if record.ok]
    busy = {name: chosen.seconds_in(name) for name in STAGES}
    total, wait = sum(busy.values()), chosen.seconds_in("wait")
    found: Row = {f"{name}_s": seconds for name, seconds in busy.items()}
    found |= {f"{name}_share": seconds / total for name, seconds in busy.items()}
    wall = _rows.wall_s(chosen)
    found |= {
        "wait_s": wait,
        "wait_share": wait / wall,
        "startup_s": chosen.values["startup_s"],
        "n_unique": chosen.values["n_unique"],
        "steady": chosen.values["steady"],
        "limited_by": chosen.values.get("limited_by"),
        "wall_s_min": min(walls),
        "wall_s_max": max(walls),
        "img_per_s_min": min(rates),
        "img_per_s_max": max(rates),
        "repeats": len(walls),
        "n_failed": len(chosen.failures),
        **_rows.rate(int(chosen.values["n_embedded"]), wall),
        **_rows.shape(chosen.values),
        **_latency(chosen),
        **_telemetry(chosen),
    }
    price = chosen.environment.get("cost", {}).get("usd_per_hour")
    if price is not None:
        found["usd_per_million"] = _MILLION / chosen.values["n_embedded"] * wall / 3600 * price
    return found


def _latency(record: Record) -> Row:
    samples = record.samples["batch"]
    return {f"batch_p{q}_ms": quantile(samples, q / 100) / 1e6 for q in (50, 95, 99)}


def _telemetry(record: Record) -> Row:
    sampled = record.values["telemetry"]
    return {
        "peak_gpu_mem_gib": record.values.get("peak_gpu_mem_gib"),
        "gpu_util_mean": _mean(sampled.get("gpu_util")),
        "gpu_power_w": _mean(sampled.get("gpu_power_w")),
        "sm_clock_mhz": _mean(sampled.get("sm_mhz")),
        "throttle_reasons": "; ".join(sampled["throttle_reasons"]),
        "cpu_cores_used": _mean(sampled.get("cpu_cores")),
    }


def _mean(samples: Sequence[float] | None) -> float | None:
    return sum(samples) / len(samples) if samples else None
