"""The user's own job: where does the wall time go, what to fix first, and what will that bring?

Method. A seeded sample of the images passes the stages before the device, with the present recipe's
libraries and with each alternative's, in one process and in several concurrently. A batch's IPC,
and the step from h2d to the sink at a few batch sizes, are timed separately. From these alone
`wallclock.predict` predicts what the recipe, each fix alone and the fixes stacked bring end to end.
With `prove=true` every one of them is then run, as `t4` is; one whose vectors are wrong has failed.
A cold pass over the sample says what the storage allows for images that are not in memory, and
what more workers bring there. With `accelerator`, predictions are for a box that is not here
(`_accelerators`): its forward pass and its bus are cited, not measured. Fixes that keep copies of
the images are predicted from loading real copies of the sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import ceil
from operator import itemgetter
from typing import Any

from experiments import _accelerators, _common
from experiments._common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from experiments._costs import Costs, NoCostsError, step_recipes, worker_count
from experiments._diagnosis import (
    ELSEWHERE,
    bottleneck_of,
    device_name,
    first_fix,
    is_elsewhere,
    without_fix,
)
from experiments._end_to_end import WRONG_VECTORS, judge_sink
from experiments._fixes import ADVICE, Scenario, cold, loaders, scenarios
from experiments._sentences import MeasuredRows, ratio
from experiments._words import factor
from harness import provenance
from harness.corpora import copies
from harness.corpora.manifest import Item
from wallclock.clock import STAGES
from wallclock.errors import UserError, check_name
from wallclock.predict import Pipeline

ON_REQUEST = True
SENTENCE_RANK = 1
STAGES_CSV = "diagnosis.csv"
IMAGES_CSV = "diagnosis-images.csv"
PREDICTIONS_CSV = "diagnosis-predictions.csv"

_SHARED = "image_set corpus weights model device device_kind n_images origin status reason"
_CHOICES = _common.columns("decoder resizer interpolation engine workers batch_size dtype")
TABLES = {
    STAGES_CSV: _common.columns(
        "stage ms_per_image share is_bottleneck at_most_speedup fix predicted_speedup fix_cost",
        _SHARED,
    ),
    IMAGES_CSV: _common.columns(
        "source n_images median_kb p90_kb median_megapixels p90_megapixels bytes_per_pixel",
        "median_longest_px brightness formats corpus origin status reason",
    ),
    PREDICTIONS_CSV: _common.columns(
        "kind fix",
        _CHOICES,
        "predicted_img_per_s low_img_per_s high_img_per_s predicted_speedup bottleneck",
        "faithful accelerator_utilization faster_accelerator_speedup workers_to_saturate",
        "crossover_batch usd_per_million measured_img_per_s error within_interval other_cores",
        "fix_cost",
        _SHARED,
    ),
}

#: A smaller speedup does nothing for its stage.
_MIN_SPEEDUP = 1.005
#: The storage is slow if it leaves less of the rate.
_SLOW = 0.95
#: Few images get less time and smaller batches: their share of those asked for, at least this.
_LEAST_SHARE = 1 / 6


def cells(plan: Plan, options: Options) -> list[Cell]:
    """The images; loading, batch transfer and steps; with `prove`, every prediction end to end."""
    elsewhere = _elsewhere(plan, options)
    recipe = options["recipe"]
    device = recipe.device
    corpus = plan.sample(options["images"])
    there = replace(recipe, device="cuda") if elsewhere else recipe
    cores = elsewhere.get("cores", provenance.machine()["cores"])
    sound = plan.manifest(corpus).valid
    planned = scenarios(options, there, cores, _worthwhile(options, sound))
    if not elsewhere:
        planned += cold(recipe, cores)
    share = max(_LEAST_SHARE, min(1.0, len(sound) / options["images"][corpus.image_set]))

    def new(protocol: str, label: str, timed: Recipe, params: Options, kind: str = "") -> Cell:
        params = {**plan.params, **params}
        images = plan.copies(corpus, kind) if kind else corpus
        timed = replace(timed, device=device)
        return cell(plan, "diagnose", protocol, label, timed, images, params=params)

    # The tables are made from records alone: the first cell carries the scenarios.
    described = {"setups": [asdict(scenario) for scenario in planned], "elsewhere": elsewhere}
    grid = [new("image_stats", "images", recipe, described)]
    for loader in loaders(planned):
        params = _reduced(options["loading"], share)
        label = f"loading-{loader.recipe.name}"
        grid.append(new("contention", label, loader.recipe, params, loader.copies))
    for kind in sorted({scenario.copies for scenario in planned} - {""}):
        params = {**_reduced(options["loading"], share), "copies": kind}
        grid.append(new("copies", f"copies-{kind}", recipe, params))
    transfer = _reduced(options["batch_transfer"], share)
    grid.append(new("batch_transfer", "batch_transfer", recipe, transfer))
    if elsewhere:
        counted = replace(recipe, name="step-flops", dtype="fp32", normalize_on="host")
        return [*grid, new("step", counted.name, counted, options["step_elsewhere"])]
    counts = {worker_count(scenario.recipe, cores) for scenario in planned if scenario.cold}
    readers = sorted({1, *counts} - {0})
    grid.append(new("storage", "storage", recipe, {**options["storage"], "readers": readers}))
    step = {name: options["step"][name][device] for name in ("batch_sizes", "batches", "seconds")}
    step = dict(_reduced(step, share))
    dtypes = dict.fromkeys(scenario.recipe.dtype for scenario in planned)
    grid += [new("step", timed.name, timed, step) for timed in step_recipes(recipe, dtypes)]
    proved = [scenario for scenario in planned if options["prove"] and not scenario.cold]
    return grid + _proofs(plan, options, proved)


def second_round(plan: Plan, options: Options, records: Records) -> list[Cell]:
    """With `prove`, the passes over images that are not in memory, if the storage is slow."""
    if not options["prove"] or not is_slow(tables(records).get(PREDICTIONS_CSV, ())):
        return []
    first = next(r for r in records if r.cell.protocol == "image_stats")
    planned = [Scenario.from_json(plain) for plain in first.cell.params["setups"]]
    return _proofs(plan, options, [scenario for scenario in planned if scenario.cold])


def is_slow(predictions: Sequence[Mapping[str, object]]) -> bool:
    """Whether images that are not in memory slow the present recipe down noticeably."""
    left = [row["predicted_speedup"] for row in predictions if row["kind"] == "cold"]
    return bool(left and left[0]) and float(str(left[0])) < _SLOW


def _proofs(plan: Plan, options: Options, proved: Sequence[Scenario]) -> list[Cell]:
    device = options["recipe"].device
    counts = dict.fromkeys(options["images"], options["prove_images"][device])
    grid = []
    for scenario in proved:
        recipe = replace(scenario.recipe, device=device)
        images = plan.sample(counts)
        if scenario.copies:
            images = plan.copies(images, scenario.copies)
        params = plan.params
        if scenario.cold:
            params = {**params, "page_cache": "cold"}
        new = cell(plan, "diagnose", "throughput", recipe.name, recipe, images, params=params)
        grid.append(new)
    return grid


def _worthwhile(options: Options, sound: Sequence[Item]) -> list[str]:
    """The kinds of copies that replace enough of these images."""
    least = options["copies"] if len(sound) >= options["copies_from"] else {}
    counts = {kind: sum(copies.is_replaced(kind, item) for item in sound) for kind in least}
    return [kind for kind, count in counts.items() if count and count >= least[kind] * len(sound)]


def _elsewhere(plan: Plan, options: Options) -> dict[str, Any]:
    """The box that the predictions are for; empty for this one.

    Raises UserError: an unknown accelerator, a mock model, or a proof of what is not here.
    """
    if not options["accelerator"]:
        return {}
    name = check_name(options["accelerator"], _accelerators.load(), "accelerator")
    if options["prove"]:
        raise UserError(f"a proof runs on this machine, not on a {name}: leave out one of the two")
    if plan.settings.model.weights == "none":
        raise UserError(f"a mock model has a time of its own: name a network for the {name}")
    there = _accelerators.load()[name]
    cost = plan.settings.cost
    cores = options["accelerator_cores"] or there.vcpus
    price = options["accelerator_usd_per_hour"]
    if price is None and (name, cores) == (cost.device, there.vcpus):
        price = cost.usd_per_hour
    return {"accelerator": name, "cores": cores, "usd_per_hour": price}


def _reduced(params: Options, share: float) -> Options:
    """So much less of `seconds`, and of `batch_sizes` at least the first two."""
    reduced = dict(params)
    if "seconds" in params:
        reduced["seconds"] *= share
    if sizes := params.get("batch_sizes"):
        reduced["batch_sizes"] = [n for n in sizes if n <= max(sizes[1], share * sizes[-1])]
    return reduced


def tables(records: Records) -> Tables:
    """The nine stages, the images, the predictions; empty where the sample was not measured."""
    described = next((r for r in records if r.cell.protocol == "image_stats" and r.ok), None)
    if described is None:
        return {}
    planned = [Scenario.from_json(plain) for plain in described.cell.params["setups"]]
    costs = Costs(records)
    predicted: list[Row] = []
    for scenario in planned:
        row = _new_row(described, PREDICTIONS_CSV) | {"kind": scenario.kind, "origin": "predicted"}
        row |= {name: getattr(scenario.recipe, name) for name in _CHOICES}
        row |= {"fix": scenario.title, "fix_cost": scenario.cost, "faithful": scenario.faithful}
        try:
            expected = _pipelines(costs, described, scenario)
        except NoCostsError as error:
            predicted.append(row | {"status": "unavailable", "reason": str(error)})
            continue
        row |= _prediction(expected, _base_of(scenario, predicted))
        row["usd_per_million"] = _usd_per_million(described, row)
        if scenario.copies:
            row["fix_cost"] = _cost_of_copies(scenario.copies, records, predicted[0], row)
        predicted.append(row | _proof(scenario.recipe, row, records))
    return {
        STAGES_CSV: _stages(planned, costs, predicted, described),
        IMAGES_CSV: [_images(described)],
        PREDICTIONS_CSV: predicted,
    }


def _base_of(scenario: Scenario, predicted: Sequence[Row]) -> Row:
    """What a scenario's speedup is over: the present recipe; of a second cold one, the first."""
    if not predicted:
        return {}
    if scenario.cold and predicted[-1]["kind"] == "cold":
        return predicted[-1]
    return predicted[0]


def _new_row(described: Record, csv: str) -> Row:
    row = _common.new_row([described], TABLES[csv]) | {"n_images": described.values["n_sound"]}
    if (there := described.cell.params.get("elsewhere")) and csv != IMAGES_CSV:
        row["device"] = f"{there['accelerator']} beside {there['cores']} cores{ELSEWHERE}"
        row |= {"device_kind": "cuda", "origin": "predicted"}
    return row


def _pipelines(costs: Costs, described: Record, scenario: Scenario) -> list[Pipeline]:
    """The end-to-end pipeline; elsewhere two, at the lower and at the higher rate cited."""
    images = described.cell.images
    if scenario.copies:
        images = replace(images, storage=f"files:{scenario.copies}")
    cell = replace(described.cell, recipe=scenario.recipe, corpus=images)
    if scenario.cold:
        cell = replace(cell, params={**cell.params, "page_cache": "cold"})
    if there := described.cell.params.get("elsewhere"):
        accelerator = _accelerators.load()[there["accelerator"]]
        return _accelerators.pipelines(costs, cell, accelerator, there["cores"])
    return [costs.pipeline(cell)]


def _cost_of_copies(kind: str, records: Records, present: Row, row: Row) -> str:
    """Bytes, CPU time and pixels; after how many runs the copies have paid for their making."""
    made = next((r for r in records if r.ok and r.cell.params.get("copies") == kind), None)
    if made is None:
        return "a copy of the images"
    values = made.values
    cores = made.environment["machine"]["cores"]
    ms = _common.mean_ms(made, "encode")
    kb, kb_before = values["mean_bytes"] / 1e3, values["mean_bytes_before"] / 1e3
    size = f"{kb:.3g} kB instead of {kb_before:.3g}"
    price = f"{size}, {ms:.3g} ms of CPU to make, {values['psnr_db']:.0f} dB"
    now_s = 1 / float(str(present["predicted_img_per_s"]))
    then_s = 1 / float(str(row["predicted_img_per_s"]))
    saved_s = now_s - then_s
    if saved_s <= 0:
        return price
    runs = ceil(values["share"] * ms / 1e3 / cores / saved_s)
    return f"{price}; pays after {runs:,} more {'run' if runs == 1 else 'runs'}"


def _usd_per_million(described: Record, row: Row) -> float | None:
    price = (described.cell.params.get("elsewhere") or {}).get("usd_per_hour")
    return None if price is None else price / 3600 * 1e6 / float(str(row["predicted_img_per_s"]))


def _stages(
    planned: Sequence[Scenario], costs: Costs, predicted: Sequence[Row], described: Record
) -> list[Row]:
    """One row per stage, in their order."""
    base = _new_row(described, STAGES_CSV)
    if predicted[0]["predicted_img_per_s"] is None:
        base |= {name: predicted[0][name] for name in ("status", "reason")}
        return [base | {"stage": stage} for stage in STAGES]
    pipeline = _pipelines(costs, described, planned[0])[0]
    seconds = pipeline.stage_seconds()
    bottleneck = pipeline.bottleneck_stage()
    rows = []
    for stage in STAGES:
        fix, cost, speedup = _best_fix(stage, planned, predicted)
        row = base | {"stage": stage, "fix": fix, "fix_cost": cost, "predicted_speedup": speedup}
        row |= {"ms_per_image": 1e3 * seconds[stage], "is_bottleneck": stage == bottleneck}
        row["share"] = seconds[stage] / sum(seconds.values())
        rows.append(row | {"at_most_speedup": pipeline.speedup_without(stage)})
    return rows


def _best_fix(
    stage: str, planned: Sequence[Scenario], predicted: Sequence[Row]
) -> tuple[str, str, Any]:
    """The fix of a stage with the largest speedup; else advice, without a prediction."""
    candidates = [
        (float(str(row["predicted_speedup"])), str(row["fix_cost"]), scenario.title)
        for scenario, row in zip(planned, predicted, strict=True)
        if (scenario.kind, scenario.faithful, row["status"]) == ("alone", True, "ok")
        and stage in scenario.stages
    ]
    speedup, cost, title = max(candidates, key=itemgetter(0), default=(0.0, "", ""))
    if speedup < _MIN_SPEEDUP:
        return (*ADVICE[stage], None)
    return title, cost, speedup


def _images(described: Record) -> Row:
    values = described.values
    stats = values["image_stats"]
    formats = sorted(values["formats"].items(), key=itemgetter(1), reverse=True)
    shares = [f"{100 * count / values['n_sound']:.0f} % {name}" for name, count in formats]
    return _new_row(described, IMAGES_CSV) | {
        "source": "yours",
        "median_kb": stats["kb_p50"],
        "p90_kb": stats["kb_p90"],
        "median_megapixels": stats["megapixels_p50"],
        "p90_megapixels": stats["megapixels_p90"],
        "bytes_per_pixel": stats["bytes_per_pixel_p50"],
        "median_longest_px": stats["longest_px_p50"],
        "brightness": stats["brightness_p50"],
        "formats": ", ".join(shares),
    }


def _prediction(pipelines: Sequence[Pipeline], present: Row) -> Row:
    """Of the first; the interval ends with the last one's."""
    pipeline = pipelines[0]
    expected = pipeline.predict()
    now = present["predicted_img_per_s"] if present else expected.img_per_s
    return {
        "predicted_img_per_s": expected.img_per_s,
        "low_img_per_s": expected.low,
        "high_img_per_s": pipelines[-1].predict().high,
        "predicted_speedup": expected.img_per_s / now if isinstance(now, float) else None,
        "bottleneck": expected.bottleneck,
        "accelerator_utilization": expected.accelerator_utilization,
        "faster_accelerator_speedup": expected.accelerator_bound,
        "workers_to_saturate": pipeline.workers_to_saturate(),
        "crossover_batch": pipeline.crossover_batch(),
    }


def _proof(recipe: Recipe, row: Row, records: Records) -> Row:
    """What the recipe measured end to end, if it has run."""
    record = next(
        (
            record
            for record in records
            if (record.cell.protocol, record.cell.label) == ("throughput", recipe.name)
        ),
        None,
    )
    if record is None:
        return {}
    if not record.ok:
        return {"status": record.status, "reason": record.reason}
    if fault := judge_sink(record):
        return {"status": "gate failed", "reason": f"{WRONG_VECTORS} ({fault}): no time counts"}
    rate = _common.rate(record)
    others = record.values["telemetry"].get("other_cores")
    low, high = float(str(row["low_img_per_s"])), float(str(row["high_img_per_s"]))
    return {
        "measured_img_per_s": rate,
        "error": float(str(row["predicted_img_per_s"])) / rate - 1,
        "within_interval": low <= rate <= high,
        "other_cores": sum(others) / len(others) if others else None,
    }


def sentence(rows: MeasuredRows) -> str:
    """The fix to begin with; without one, what takes the time."""
    stages, predictions = rows[STAGES_CSV], rows[PREDICTIONS_CSV]
    if not stages or not rows[IMAGES_CSV]:
        return ""
    fix = first_fix(predictions)
    if fix is None:
        return without_fix(bottleneck_of(stages))
    where = f", on a {device_name(fix)}" if is_elsewhere(fix) else ""
    text = f"fix first{where}: {fix['fix']}, {factor(fix['predicted_speedup'])} predicted"
    column = "measured_img_per_s"
    present = rows.first(PREDICTIONS_CSV, kind="present")
    if present is None or not present[column] or not fix[column]:
        return text
    return f"{text}, {ratio(fix, present, column)} measured"
