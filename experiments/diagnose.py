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
from typing import Any

from experiments import _accelerators, _common
from experiments._common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from experiments._costs import Costs, NoCostsError, step_recipes, worker_count
from experiments._end_to_end import WRONG_VECTORS, judge_sink
from experiments._fixes import ADVICE, Scenario, cold, loaders, scenarios
from harness import provenance
from harness.corpora import copies
from harness.corpora.manifest import Item
from wallclock.clock import STAGES
from wallclock.errors import UserError, check_name
from wallclock.predict import Pipeline

ON_REQUEST = True
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

#: How the device of a box ends that is not here.
ELSEWHERE = ", not here"
#: A smaller speedup does nothing for its stage.
_MIN_SPEEDUP = 1.005
#: The storage is slow if it leaves less of the rate.
_SLOW = 0.95
#: Few images get less time and smaller batches: their share of those asked for, at least this.
_LEAST_SHARE = 1 / 6


def cells(plan: Plan, options: Options) -> list[Cell]:
    """The images; loading, batch transfer and steps; with `prove`, every prediction end to end."""
    elsewhere = _elsewhere(plan, options)
    recipe, device = options["recipe"], options["recipe"].device
    corpus = plan.sample(options["images"])
    there = replace(recipe, device="cuda") if elsewhere else recipe
    cores = elsewhere.get("cores", provenance.machine()["cores"])
    sound = plan.manifest(corpus).valid
    planned = scenarios(options, there, cores, _worthwhile(options, sound))
    planned += [] if elsewhere else cold(recipe, cores)
    share = max(_LEAST_SHARE, min(1.0, len(sound) / options["images"][corpus.image_set]))

    def one(protocol: str, label: str, of: Recipe, params: Options, kind: str = "") -> Cell:
        params, of = {**plan.params, **params}, replace(of, device=device)
        images = plan.copies(corpus, kind) if kind else corpus
        return cell(plan, "diagnose", protocol, label, of, images, params=params)

    # The tables are made from records alone: the first cell carries the scenarios.
    described = {"setups": [asdict(scenario) for scenario in planned], "elsewhere": elsewhere}
    grid = [one("image_stats", "images", recipe, described)]
    for loader in loaders(planned):
        params, label = _reduced(options["loading"], share), f"loading-{loader.recipe.name}"
        grid.append(one("contention", label, loader.recipe, params, loader.copies))
    for kind in sorted({scenario.copies for scenario in planned} - {""}):
        params = {**_reduced(options["loading"], share), "copies": kind}
        grid.append(one("copies", f"copies-{kind}", recipe, params))
    transfer = _reduced(options["batch_transfer"], share)
    grid.append(one("batch_transfer", "batch_transfer", recipe, transfer))
    if elsewhere:
        counted = replace(recipe, name="step-flops", dtype="fp32", normalize_on="host")
        return [*grid, one("step", counted.name, counted, options["step_elsewhere"])]
    counts = sorted({1, *(worker_count(one.recipe, cores) for one in planned if one.cold)} - {0})
    grid.append(one("storage", "storage", recipe, {**options["storage"], "readers": counts}))
    step = {name: options["step"][name][device] for name in ("batch_sizes", "batches", "seconds")}
    dtypes, sized = dict.fromkeys(one.recipe.dtype for one in planned), _reduced(step, share)
    grid += [one("step", timed.name, timed, sized) for timed in step_recipes(recipe, dtypes)]
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
    counts, grid = dict.fromkeys(options["images"], options["prove_images"][device]), []
    for scenario in proved:
        proof, recipe = plan.sample(counts), replace(scenario.recipe, device=device)
        images = plan.copies(proof, scenario.copies) if scenario.copies else proof
        params = {**plan.params, **({"page_cache": "cold"} if scenario.cold else {})}
        args = (plan, "diagnose", "throughput", recipe.name, recipe, images)
        grid.append(cell(*args, params=params))
    return grid


def _worthwhile(options: Options, sound: Sequence[Item]) -> list[str]:
    """The kinds of copies that replace enough of these images."""
    least = options["copies"] if len(sound) >= options["copies_from"] else {}
    counts = {kind: sum(copies.replaced(kind, item) for item in sound) for kind in least}
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
    there, cost = _accelerators.load()[name], plan.settings.cost
    cores = options["accelerator_cores"] or there.vcpus
    known = cost.usd_per_hour if (name, cores) == (cost.device, there.vcpus) else None
    price = (
        known
        if options["accelerator_usd_per_hour"] is None
        else options["accelerator_usd_per_hour"]
    )
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
    costs, predicted = Costs(records), list[Row]()
    for scenario in planned:
        row = _new_row(described, PREDICTIONS_CSV) | {"kind": scenario.kind, "origin": "predicted"}
        row |= {name: getattr(scenario.recipe, name) for name in _CHOICES}
        row |= {"fix": scenario.title, "fix_cost": scenario.cost, "faithful": scenario.faithful}
        try:
            expected = _pipelines(costs, described, scenario)
        except NoCostsError as error:
            predicted.append(row | {"status": "unavailable", "reason": str(error)})
            continue
        before = predicted[-1 if scenario.cold and predicted[-1]["kind"] == "cold" else 0 :]
        row |= _prediction(expected, before[0] if before else {})
        row["usd_per_million"] = _usd_per_million(described, row)
        if scenario.copies:
            row["fix_cost"] = _cost_of_copies(scenario.copies, records, predicted[0], row)
        predicted.append(row | _proof(scenario.recipe, row, records))
    return {
        STAGES_CSV: _stages(planned, costs, predicted, described),
        IMAGES_CSV: [_images(described)],
        PREDICTIONS_CSV: predicted,
    }


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
        one = _accelerators.load()[there["accelerator"]]
        return _accelerators.pipelines(costs, cell, one, there["cores"])
    return [costs.pipeline(cell)]


def _cost_of_copies(kind: str, records: Records, present: Row, row: Row) -> str:
    """Bytes, CPU time and pixels; after how many runs the copies have paid for their making."""
    made = next((r for r in records if r.ok and r.cell.params.get("copies") == kind), None)
    if made is None:
        return "a copy of the images"
    values, cores = made.values, made.environment["machine"]["cores"]
    ms = _common.mean_ms(made, "encode")
    kb, before = values["mean_bytes"] / 1e3, values["mean_bytes_before"] / 1e3
    kept = f"{kb:.3g} kB instead of {before:.3g}, {ms:.3g} ms of CPU to make, "
    kept += f"{values['psnr_db']:.0f} dB"
    rates = [float(str(one["predicted_img_per_s"])) for one in (present, row)]
    saved = 1 / rates[0] - 1 / rates[1]
    if saved <= 0:
        return kept
    runs = ceil(values["share"] * ms / 1e3 / cores / saved)
    return f"{kept}; pays after {runs:,} more run{'s' * (runs > 1)}"


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
    seconds, bottleneck = pipeline.stage_seconds(), pipeline.bottleneck_stage()
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
    speedup, cost, title = max(candidates, key=lambda found: found[0], default=(0.0, "", ""))
    if speedup < _MIN_SPEEDUP:
        return (*ADVICE[stage], None)
    return title, cost, speedup


def _images(described: Record) -> Row:
    values, stats = described.values, described.values["image_stats"]
    formats = sorted(values["formats"].items(), key=lambda pair: -pair[1])
    shares = [f"{100 * count / values['n_sound']:.0f} % {name}" for name, count in formats]
    return _new_row(described, IMAGES_CSV) | {
        "source": "yours",
        **{f"median_{name}": stats[f"{name}_p50"] for name in ("kb", "megapixels", "longest_px")},
        **{f"p90_{name}": stats[f"{name}_p90"] for name in ("kb", "megapixels")},
        **{name: stats[f"{name}_p50"] for name in ("bytes_per_pixel", "brightness")},
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
    for record in records:
        if record.cell.protocol == "throughput" and record.cell.label == recipe.name:
            if not record.ok:
                return {"status": record.status, "reason": record.reason}
            if fault := judge_sink(record):
                reason = f"{WRONG_VECTORS} ({fault}): no time counts"
                return {"status": "gate failed", "reason": reason}
            rate, others = _common.rate(record), record.values["telemetry"].get("other_cores")
            low, predicted, high = (
                float(str(row[f"{name}_img_per_s"])) for name in ("low", "predicted", "high")
            )
            return {
                "measured_img_per_s": rate,
                "error": predicted / rate - 1,
                "within_interval": low <= rate <= high,
                "other_cores": sum(others) / len(others) if others else None,
            }
    return {}
