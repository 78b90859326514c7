"""Do the costs of the parts predict the throughput of the pipeline?

Method. Three kinds of small cells measure costs one by one: loading an image, in one process and in
as many concurrent ones as there are cores, and twice as many (`contention`); a batch's IPC from a
worker to the main process (`batch_transfer`); the step by batch size (`step`). From these alone
`harness.pipeline_model` predicts each end-to-end cell: those of the other experiments, as far as
they have run, and a proving set of its own, over decoders, image sets, workers, batches and step
times, whose accelerator is a mock model that sleeps. No end-to-end time enters a prediction.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from experiments import common, end_to_end
from experiments.common import Cell, Options, Plan, Records, Row, Tables, cell, mock_model
from experiments.predict import accuracy
from experiments.predict.accuracy import Outcome, measured_bottleneck
from experiments.predict.costs import Costs, NoCostsError, step_recipes, workers_to_saturate

RANK = 160
#: The experiments whose end-to-end cells are predicted too.
ALSO_READS = ("t4", "opt", "fast", "steps", "workers", "batch")
CSV = "prediction.csv"
COLUMNS = common.columns(
    "experiment recipe decoder resizer engine workers batch_size dtype",
    "image_set corpus weights service_ms device device_kind n_images repeats",
    "img_per_s img_per_s_low img_per_s_high measured_img_per_s error",
    "bottleneck measured_bottleneck accelerator_utilization accelerator_bound",
    "workers_to_saturate storage_img_per_s transform_img_per_s h2d_img_per_s",
    "accelerator_img_per_s main_img_per_s cores_img_per_s",
    "origin status reason",
)
ACCURACY_CSV = "prediction-accuracy.csv"
TABLES = {CSV: COLUMNS, ACCURACY_CSV: accuracy.COLUMNS}
MEANINGS = """
[prediction.csv]
experiment | | setting | experiment of the cell
img_per_s | images/s | measured | predicted images per second
img_per_s_low | images/s | measured | lower end of the interval
img_per_s_high | images/s | measured | upper end of the interval
accelerator_bound | x | measured | speed-up if the device took no time
storage_img_per_s | images/s | measured | what the storage alone delivers
transform_img_per_s | images/s | measured | what the loaders alone deliver
h2d_img_per_s | images/s | measured | what the copy to the device alone delivers
accelerator_img_per_s | images/s | measured | what the device alone consumes
main_img_per_s | images/s | measured | what the main process alone handles
cores_img_per_s | images/s | measured | what the cores allow for all CPU work
[prediction-accuracy.csv diagnosis-accuracy.csv accuracy.csv]
predictions | | setting | all, or the group that the row is of
n_rates | count | fact | rates that were predicted and measured
rate_error_median | relative | measured | median error of a rate
rate_error_p90 | relative | measured | 90th percentile of that error
rate_error_worst | relative | measured | largest error of a rate
rate_bias | relative | measured | median error with its sign
n_gains | count | fact | gains that were predicted and measured
gain_error_median | relative | measured | median error of a gain
gain_error_p90 | relative | measured | 90th percentile of that error
gain_error_worst | relative | measured | largest error of a gain
n_changes | count | fact | measured gains or losses of more than 5 %
changes_right_share | 0 to 1 | measured | of these, predicted in the right direction
changes_right_share_low | 0 to 1 | measured | lower end of its 90 % interval (Wilson)
changes_right_share_high | 0 to 1 | measured | upper end of that interval
n_bottlenecks | count | fact | cells whose bottleneck was measured
bottleneck_right_share | 0 to 1 | measured | of these, named right
bottleneck_right_share_low | 0 to 1 | measured | lower end of its 90 % interval (Wilson)
bottleneck_right_share_high | 0 to 1 | measured | upper end of that interval
bottleneck_right_unchanged | 0 to 1 | measured | the same if the bottleneck of the recipe as it is
  is named for all
skill_unchanged | up to 1 | measured | 1 - the median error over that of predicting that nothing
  changes
skill_unchanged_low | up to 1 | measured | lower end of its 90 % interval, by bootstrap
skill_unchanged_high | up to 1 | measured | upper end of its 90 % interval
n_decided_by_sleep | count | fact | cells left out, because a mock model's sleep decides them
"""
#: What cells of an experiment have in common whose rates are compared.
_OF_A_KIND = ("experiment", "image_set", "weights", "service_ms")


def cells(plan: Plan, options: Options) -> list[Cell]:
    """The costs, then the proving set."""
    return [*_loading(plan, options), *_steps(plan, options), *_proving(plan, options)]


def tables(records: Records) -> Tables:
    """One row for each end-to-end cell that was measured; how far off the predictions are."""
    parts = [record for record in records if record.cell.experiment == "predict"]
    if not parts:
        return {}
    costs = Costs(parts)
    rows = []
    for experiment in ("predict", *ALSO_READS):
        same = [record for record in records if record.cell.experiment == experiment]
        for repeats in common.groups(same, "throughput").values():
            rows.append(_row(costs, repeats, same))
    made = {CSV: rows} if rows else {}
    if judged := outcomes(rows):
        made[ACCURACY_CSV] = accuracy.rows(judged)
    return made


def outcomes(rows: Iterable[Mapping[str, Any]]) -> list[Outcome]:
    """Of rows of `prediction.csv`: the cells that were predicted and measured."""
    return accuracy.outcomes(rows, "img_per_s", "experiment", _OF_A_KIND)


def _loading(plan: Plan, options: Options) -> list[Cell]:
    params = {**plan.params, "seconds": options["loading"]["seconds"]}
    new = partial(cell, plan, "predict", "contention", model=mock_model(plan), params=params)
    grid = []
    for image_set, corpus in plan.slices(options["images"]).items():
        sizes = options["loading"]["batch_sizes"][image_set]
        for loader, size in product(options["loaders"], sizes):
            recipe = replace(options["recipe"], **loader, batch_size=size)
            grid.append(new(f"loading-{recipe.name}-{image_set}-b{size}", recipe, corpus))
    return grid


def _steps(plan: Plan, options: Options) -> list[Cell]:
    """The batch transfer, the mock model's step and, of a network, its own for each dtype."""
    device = plan.settings.recipe.device
    step = {name: options["step"][name][device] for name in ("batch_sizes", "batches", "seconds")}
    transfer = {**plan.params, **options["batch_transfer"]}
    mock_step = {**step, "batches": 50}
    recipe = replace(options["recipe"], name="step")
    new = partial(cell, plan, "predict", corpus=None)
    grid = [
        new("batch_transfer", "batch_transfer", recipe, model=mock_model(plan), params=transfer),
        new("step", "step-mock model", recipe, model=mock_model(plan, 1.0), params=mock_step),
    ]
    if plan.settings.model.weights != "none":
        for timed in step_recipes(recipe, options["step"]["dtypes"]):
            grid.append(new("step", timed.name, timed, params=step))
    return grid


def _proving(plan: Plan, options: Options) -> list[Cell]:
    loaders = {loader["name"]: loader for loader in options["loaders"]}
    corpora = plan.slices(options["images"])
    jobs = [job for job in options["prove"] if job["image_set"] in corpora][: options["n_prove"]]
    new = partial(cell, plan, "predict", "throughput")
    grid = []
    for repeat, job in product(plan.repeats("predict"), jobs):
        service = (float(job["service_ms"]), float(job["service_ms_per_image"]))
        label = f"{job['loader']}-w{job['workers']}-b{job['batch_size']}"
        label += f"-{service[0]:g}+{service[1]:g}ms"
        choices = {
            **loaders[job["loader"]],
            "workers": job["workers"],
            "batch_size": job["batch_size"],
            "device": "cpu",
            "name": label,
        }
        recipe = replace(options["recipe"], **choices)
        model = mock_model(plan, *service)
        grid.append(new(label, recipe, corpora[job["image_set"]], repeat=repeat, model=model))
    return grid


def _row(costs: Costs, repeats: Records, records: Records) -> Row:
    timed = repeats[0].cell
    measured = end_to_end.row(repeats, records)
    if measured["status"] == "ok":
        measured["measured_bottleneck"] = measured_bottleneck(common.median_repeat(repeats))
    rate = measured.pop("img_per_s")
    row = {name: measured.get(name) for name in COLUMNS}
    row |= {"experiment": timed.experiment, "origin": "predicted", "measured_img_per_s": rate}
    try:
        pipeline = costs.pipeline(timed)
    except NoCostsError as error:
        return row | {"status": "not predicted", "reason": str(error)}
    expected = pipeline.predict()
    names = ("img_per_s", "bottleneck", "accelerator_utilization", "accelerator_bound")
    row |= {name: getattr(expected, name) for name in names}
    row |= {"img_per_s_low": expected.low, "img_per_s_high": expected.high}
    row |= {f"{name}_img_per_s": rate for name, rate in expected.supply.items()}
    row["workers_to_saturate"] = workers_to_saturate(pipeline)
    if isinstance(rate, int | float):
        row["error"] = expected.img_per_s / rate - 1
    return row
