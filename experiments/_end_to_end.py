"""What the end-to-end experiments share: their cells and the rows of their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments import _rows
from experiments._cells import cell
from experiments._rows import Row
from wallclock.clock import STAGES
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, Recipe, Slice
from wallclock.summary import quantile

COLUMNS = _rows.columns(
    "recipe decoder resizer interpolation engine workers start_method batch_size dtype",
    "runtime dct_scale dct_margin normalize_on compile sink",
    "image_set corpus weights service_ms device device_kind n_images n_unique steady repeats",
    _rows.STAGE_COLUMNS,
    "wait_s wait_share startup_s",
    "wall_s wall_s_min wall_s_max img_per_s img_per_s_min img_per_s_max",
    "seconds_per_100k seconds_per_100k_origin batch_p50_ms batch_p95_ms batch_p99_ms",
    "peak_gpu_mem_gib gpu_util_mean gpu_power_w sm_clock_mhz throttle_reasons cpu_cores_used",
    "limited_by usd_per_million",
    _rows.FIDELITY_COLUMNS,
    "n_failed median_kb median_megapixels origin status reason",
)
TIMELINE_COLUMNS = _rows.columns(
    "lane stage batch start_ms duration_ms corpus weights device device_kind",
    "n_images workers batch_size",
)

_MILLION = 1_000_000

Cells = Callable[[Plan, Mapping[str, Any]], list[Cell]]
Tables = Callable[[Sequence[Record]], dict[str, list[Row]]]


def one_recipe(experiment: str) -> Cells:
    """The `cells` of an experiment with a single recipe."""
    return lambda plan, options: cells(plan, experiment, [options["recipe"]], options)


def tables(csv: str, timeline_csv: str = "") -> Tables:
    """The `tables` of an experiment: a row per recipe and, with a name for it, the timeline."""

    def fill(records: Sequence[Record]) -> dict[str, list[Row]]:
        rows = {
            csv: [row(repeats, records) for repeats in _rows.groups(records, "throughput").values()]
        }
        return {**rows, timeline_csv: timeline(records)} if timeline_csv else rows

    return fill


def cells(
    plan: Plan, experiment: str, recipes: Sequence[Recipe], options: Mapping[str, Any]
) -> list[Cell]:
    """Fidelity once, where the options ask for it; then every recipe end to end, repeated."""
    corpus = plan.first_slice(options["images"])
    timed = [
        cell(plan, experiment, "throughput", recipe.name, recipe, corpus, repeat=repeat)
        for repeat in plan.repeats(experiment)
        for recipe in recipes
    ]
    if "fidelity" not in options:
        return timed
    return [_fidelity(plan, experiment, recipes, corpus, options["fidelity"]), *timed]


def _fidelity(
    plan: Plan,
    experiment: str,
    recipes: Sequence[Recipe],
    corpus: Slice,
    options: Mapping[str, Any],
) -> Cell:
    """The untimed comparison of these recipes' pixels and vectors with Pillow's in FP32."""
    sample = plan.slice(corpus.image_set, min(options["images"], corpus.n))
    reference = Recipe("reference", batch_size=32, device=plan.settings.device)
    compared = [_choices(recipe) for recipe in recipes if not _is_reference(recipe)]
    params = {**options, "recipes": compared}
    return cell(plan, experiment, "fidelity", "fidelity", reference, sample, params=params)


def _choices(recipe: Recipe) -> dict[str, object]:
    names = ["name", "decoder", "resizer", "interpolation", "dtype"]
    if recipe.dct_scale != "full":
        names += ["dct_scale", "dct_margin"]
    return {name: getattr(recipe, name) for name in names}


def _is_reference(recipe: Recipe) -> bool:
    choices = (recipe.decoder, recipe.resizer, recipe.dtype, recipe.dct_scale)
    return choices == ("pil", "pil", "fp32", "full")


def row(repeats: Sequence[Record], records: Sequence[Record]) -> Row:
    """What the repeats of one recipe measured, or why they did not."""
    recipe, model = repeats[0].cell.recipe, repeats[0].cell.model
    row = _rows.new_row(repeats, COLUMNS)
    compared = not _is_reference(recipe)
    row |= _rows.fidelity_gate(records, repeats[0].cell) if compared else {"gate": "reference"}
    if recipe.dct_scale == "full":
        row["dct_margin"] = None
    if model.weights == "none":
        row["service_ms"] = model.service_ms + model.service_ms_per_image * recipe.batch_size
    if row["status"] != "ok":
        return row
    if row["gate"] == "failed":
        return row | _rows.withheld("too far from the reference's pixels or vectors")
    return row | _measured(repeats)


def timeline(records: Sequence[Record]) -> list[Row]:
    """The spans of the first repeat, in milliseconds from the start of the steady state."""
    for record in records:
        if record.cell.protocol == "throughput" and record.spans:
            shared = _rows.new_row([record], TIMELINE_COLUMNS)
            shared["n_images"] = record.values["n_embedded"]
            return [
                shared
                | {"lane": lane, "stage": stage, "batch": batch}
                | {"start_ms": start_ns / 1e6, "duration_ms": duration_ns / 1e6}
                for lane, stage, batch, start_ns, duration_ns in record.spans
            ]
    return []


def _measured(repeats: Sequence[Record]) -> Row:
    shown = _rows.median_pass(repeats)
    values, wall = shown.values, _rows.wall_s(shown)
    n_images = int(values["n_embedded"])
    rates = [
        record.values["n_embedded"] / _rows.wall_s(record) for record in _rows.measured(repeats)
    ]
    busy = {name: shown.seconds_in(name) for name in STAGES}
    wait = shown.seconds_in("wait")
    row: Row = {f"{name}_s": seconds for name, seconds in busy.items()}
    row |= {f"{name}_share": seconds / sum(busy.values()) for name, seconds in busy.items()}
    row |= {name: values[name] for name in ("startup_s", "n_unique", "steady")}
    row |= {
        "wait_s": wait,
        "wait_share": wait / wall,
        "limited_by": values.get("limited_by"),
        "img_per_s_min": min(rates),
        "img_per_s_max": max(rates),
        "n_failed": len(shown.failures),
        **_rows.wall_columns(repeats),
        **_rows.rate_columns(n_images, wall),
        **_rows.size_columns(values),
        **_latency(shown),
        **_telemetry(shown),
    }
    price = shown.environment.get("cost", {}).get("usd_per_hour")
    if price is not None:
        row["usd_per_million"] = _MILLION / n_images * wall / 3600 * price
    return row


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
