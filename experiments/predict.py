"""Do the costs of the parts predict the throughput of the pipeline?

Method. Three kinds of small cells measure costs one by one: loading an image, in one process and in
as many concurrent ones as there are cores, and twice as many (`contention`); a batch's IPC from a
worker to the main process (`batch_transfer`); the step by batch size (`step`). From these alone
`wallclock.predict` predicts each end-to-end cell: those of the other experiments, as far as they
have run, and a proving set of its own, over decoders, image sets, workers, batches and step times,
whose accelerator is a mock model that sleeps. No end-to-end time enters a prediction.

The paper's own end-to-end numbers follow, predicted from the paper's own serial ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from experiments import _end_to_end, _paper_values, _rows
from experiments._cells import cell, mock_model
from experiments._costs import Costs, NoCostsError
from experiments._rows import Row
from wallclock.clock import LOADING_STAGES
from wallclock.predict import predict, workers_to_saturate
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell
from wallclock.summary import median

RANK = 160
#: The experiments whose end-to-end cells are predicted too.
ALSO_READS = ("t4", "opt", "fast", "steps", "workers", "batch", "frontier")
CSV = "prediction.csv"
COLUMNS = _rows.columns(
    "experiment recipe assumption decoder resizer engine workers batch_size dtype",
    "image_set corpus weights service_ms device device_kind n_images repeats",
    "img_per_s img_per_s_low img_per_s_high measured_img_per_s measured_origin error",
    "bottleneck measured_bottleneck accelerator_utilization accelerator_bound",
    "workers_to_saturate storage_img_per_s transform_img_per_s h2d_img_per_s",
    "accelerator_img_per_s main_img_per_s cores_img_per_s origin status reason",
)
TABLES = {CSV: COLUMNS}

#: Of those experiments, the protocols that a prediction is compared with.
_PREDICTED = ("throughput", "loading")

#: Share of the wall time that a device may wait and still be the bottleneck.
_WAITS = 0.2


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """The costs, then the proving set."""
    return [*_loading(plan, options), *_steps(plan, options), *_proving(plan, options)]


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row for each end-to-end cell that was measured, then those of the paper."""
    own = [record for record in records if record.cell.experiment == "predict"]
    if not own:
        return {}
    rows = []
    for experiment in ("predict", *ALSO_READS):
        others = [record for record in records if record.cell.experiment == experiment]
        for protocol in _PREDICTED:
            for repeats in _rows.groups(others, protocol).values():
                rows.append(_row(Costs(own), repeats, others))
    return {CSV: [*rows, *(_rows.empty_row(COLUMNS) | row for row in _paper_values.rows())]}


def _loading(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    params = {**plan.params, "seconds": options["loading"]["seconds"]}
    new = partial(cell, plan, "predict", "contention", model=mock_model(plan), params=params)
    grid = []
    for image_set, corpus in plan.slices(options["images"]).items():
        sizes = options["loading"]["batch_sizes"][image_set]
        for loader, size in product(options["loaders"], sizes):
            recipe = replace(options["recipe"], **loader, batch_size=size)
            grid.append(new(f"loading-{recipe.name}-{image_set}-b{size}", recipe, corpus))
    return grid


def _steps(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """The batch transfer, the mock model's step and, of a network, its own for each dtype."""
    device = plan.settings.recipe.device
    step = {name: options["step"][name][device] for name in ("batch_sizes", "batches", "seconds")}

    def one(protocol: str, label: str, params: Mapping[str, Any], **choices: Any) -> Cell:
        model = choices.pop("model", None)
        recipe = replace(options["recipe"], name="step", **choices)
        return cell(plan, "predict", protocol, label, recipe, None, model=model, params=params)

    transfer = {**plan.params, **options["batch_transfer"]}
    grid = [
        one("batch_transfer", "batch_transfer", transfer, model=mock_model(plan)),
        one("step", "step-mock model", {**step, "batches": 50}, model=mock_model(plan, 1.0)),
    ]
    if plan.settings.model.weights != "none":
        dtypes = options["step"]["dtypes"]
        grid += [one("step", f"step-{dtype}", step, dtype=dtype) for dtype in dtypes]
    return grid


def _proving(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    loaders = {loader["name"]: loader for loader in options["loaders"]}
    corpora = plan.slices(options["images"])
    jobs = [job for job in options["prove"] if job["image_set"] in corpora][: options["n_prove"]]
    new = partial(cell, plan, "predict", "throughput")
    grid = []
    for repeat, job in product(plan.repeats("predict"), jobs):
        sizes = {name: job[name] for name in ("workers", "batch_size")}
        choices = {**loaders[job["loader"]], **sizes, "device": "cpu"}
        service = (float(job["service_ms"]), float(job["service_ms_per_image"]))
        label = f"{job['loader']}-w{job['workers']}-b{job['batch_size']}"
        label += f"-{service[0]:g}+{service[1]:g}ms"
        recipe = replace(options["recipe"], **{**choices, "name": label})
        model, corpus = mock_model(plan, *service), corpora[job["image_set"]]
        grid.append(new(label, recipe, corpus, repeat=repeat, model=model))
    return grid


def _row(costs: Costs, repeats: Sequence[Record], records: Sequence[Record]) -> Row:
    timed = repeats[0].cell
    loads_only = timed.protocol == "loading"
    measured = _loading_row(repeats) if loads_only else _end_to_end.row(repeats, records)
    row = {name: measured.get(name) for name in COLUMNS}
    row |= {
        "experiment": timed.experiment,
        "origin": "predicted",
        "measured_origin": "measured",
        "img_per_s": None,
        "measured_img_per_s": measured["img_per_s"],
    }
    if measured["status"] == "ok" and not loads_only:
        row["measured_bottleneck"] = measured_bottleneck(_rows.median_pass(repeats))
    try:
        inputs = costs.inputs(timed)
    except NoCostsError as error:
        return row | {"status": "not predicted", "reason": str(error)}
    row |= _paper_values.prediction_columns(predict(*inputs))
    row["workers_to_saturate"] = workers_to_saturate(*inputs)
    rate = row["measured_img_per_s"]
    if isinstance(rate, int | float):
        row["error"] = float(str(row["img_per_s"])) / rate - 1
    return row


def _loading_row(repeats: Sequence[Record]) -> Row:
    """What a loader without a consumer measured, in this table's columns."""
    row = _rows.new_row(repeats, COLUMNS) | {"recipe": repeats[0].cell.label}
    if row["status"] != "ok":
        return row
    rates = [_rows.loading_rate(record) for record in _rows.measured(repeats)]
    row |= {"img_per_s": median(rates), "repeats": len(rates)}
    return row | {"n_images": repeats[0].values["n_loaded"]}


def measured_bottleneck(record: Record) -> str:
    """The bottleneck as the main process saw it: waiting for batches, or one of its own stages.

    With workers a busy device hardly waits: a wait of more than a fifth of the wall time means that
    loading is the bottleneck. Without workers it is what took longest. Of loading, it is the
    storage where reading took most.
    """
    spent = {name: record.seconds_in(name) for name in ("h2d", "forward", "wait")}
    wall = _rows.wall_s(record)
    spent["main"] = wall - sum(spent.values())
    longest = max(spent.values())
    waits = (
        spent["wait"] > _WAITS * wall if record.cell.recipe.workers else spent["wait"] == longest
    )
    if not waits:
        del spent["wait"]
        largest = max(spent, key=spent.__getitem__)
        return "accelerator" if largest == "forward" else largest
    loading = sum(record.seconds_in(name) for name in LOADING_STAGES)
    return "storage" if record.seconds_in("read") > loading / 2 else "transform"
