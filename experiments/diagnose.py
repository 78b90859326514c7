"""The user's own job: where does the wall time go, what to fix first, and what will that bring?

Method. A seeded sample of the images passes the stages before the device, with the present recipe's
libraries and with each alternative's, in one process and in several concurrently. A batch's IPC,
and the step from h2d to the sink at a few batch sizes, are timed separately. From these alone
`wallclock.predict` predicts what the recipe, each fix alone and the fixes stacked bring end to end.
With `prove=true` every one of them is then run, as `t4` is; one whose vectors are wrong has failed.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from experiments import _common
from experiments._common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from experiments._costs import Costs, NoCostsError, step_recipes
from experiments._end_to_end import WRONG_VECTORS, judge_sink
from experiments._fixes import ADVICE, Scenario, loaders, scenarios
from wallclock import provenance
from wallclock.clock import STAGES
from wallclock.predict.model import Pipeline

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
        "crossover_batch measured_img_per_s error within_interval other_cores fix_cost",
        _SHARED,
    ),
}

#: A smaller speedup does nothing for its stage.
_MIN_SPEEDUP = 1.005
#: Few images get less time and smaller batches: their share of those asked for, at least this.
_LEAST_SHARE = 1 / 6


def cells(plan: Plan, options: Options) -> list[Cell]:
    """The images; loading, batch transfer and steps; with `prove`, every prediction end to end."""
    recipe, device = options["recipe"], options["recipe"].device
    corpus = plan.sample(options["images"])
    planned = scenarios(options, recipe, provenance.machine()["cores"])
    wanted = options["images"][corpus.image_set]
    share = max(_LEAST_SHARE, min(1.0, len(plan.manifest(corpus).valid) / wanted))

    def one(protocol: str, label: str, of: Recipe, params: Options) -> Cell:
        params = {**plan.params, **params}
        return cell(plan, "diagnose", protocol, label, of, corpus, params=params)

    # The tables are made from records alone: the first cell carries the scenarios.
    described = {"setups": [asdict(scenario) for scenario in planned]}
    grid = [one("image_stats", "images", recipe, described)]
    for loader in loaders(planned):
        params = _reduced(options["loading"], share)
        grid.append(one("contention", f"loading-{loader.name}", loader, params))
    transfer = _reduced(options["batch_transfer"], share)
    grid.append(one("batch_transfer", "batch_transfer", recipe, transfer))
    step = {name: options["step"][name][device] for name in ("batch_sizes", "batches", "seconds")}
    dtypes, sized = dict.fromkeys(one.recipe.dtype for one in planned), _reduced(step, share)
    grid += [one("step", timed.name, timed, sized) for timed in step_recipes(recipe, dtypes)]
    if options["prove"]:
        proof = plan.sample(dict.fromkeys(options["images"], options["prove_images"][device]))
        for scenario in planned:
            timed = one("throughput", scenario.recipe.name, scenario.recipe, {})
            grid.append(replace(timed, corpus=proof))
    return grid


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
            pipeline = costs.pipeline(replace(described.cell, recipe=scenario.recipe))
        except NoCostsError as error:
            predicted.append(row | {"status": "unavailable", "reason": str(error)})
            continue
        row |= _prediction(pipeline, predicted[0] if predicted else {})
        predicted.append(row | _proof(scenario.recipe, row, records))
    return {
        STAGES_CSV: _stages(planned, costs, predicted, described),
        IMAGES_CSV: [_images(described)],
        PREDICTIONS_CSV: predicted,
    }


def _new_row(described: Record, csv: str) -> Row:
    return _common.new_row([described], TABLES[csv]) | {"n_images": described.values["n_sound"]}


def _stages(
    planned: Sequence[Scenario], costs: Costs, predicted: Sequence[Row], described: Record
) -> list[Row]:
    """One row per stage, in their order."""
    base = _new_row(described, STAGES_CSV)
    if predicted[0]["predicted_img_per_s"] is None:
        base |= {name: predicted[0][name] for name in ("status", "reason")}
        return [base | {"stage": stage} for stage in STAGES]
    pipeline = costs.pipeline(replace(described.cell, recipe=planned[0].recipe))
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
        (float(str(row["predicted_speedup"])), scenario)
        for scenario, row in zip(planned, predicted, strict=True)
        if (scenario.kind, scenario.faithful, row["status"]) == ("alone", True, "ok")
        and stage in scenario.stages
    ]
    speedup, best = max(candidates, key=lambda pair: pair[0], default=(0.0, planned[0]))
    if speedup < _MIN_SPEEDUP:
        return (*ADVICE[stage], None)
    return best.title, best.cost, speedup


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


def _prediction(pipeline: Pipeline, present: Row) -> Row:
    expected = pipeline.predict()
    now = present["predicted_img_per_s"] if present else expected.img_per_s
    return {
        "predicted_img_per_s": expected.img_per_s,
        "low_img_per_s": expected.low,
        "high_img_per_s": expected.high,
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
