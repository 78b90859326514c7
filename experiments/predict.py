"""Do the costs of the parts tell what the whole will do?

Method. Three kinds of small cells measure costs one by one: loading an image, alone and with as many
processes beside it as there are cores, and twice as many (`contention`); a batch's way from a worker to the
main process (`batch_transfer`); the step by batch size (`step`). From these alone `wallclock.predict` says what
each end-to-end cell will reach: those of the other experiments, as far as they have run, and a proving set
of its own, over decoders, image sets, workers, batches and step times, whose accelerator is a mock model that
waits. No end-to-end time enters a prediction.

Beside them stand the paper's own end-to-end numbers, predicted from the paper's own serial ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from experiments import Row, _end_to_end, _paper_values, _rows
from experiments._costs import Costs, NoCostsError
from wallclock.predict import Prediction, predict, workers_to_saturate
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, ModelSpec
from wallclock.summary import median

CSV = "prediction.csv"
COLUMNS = (
    *(
        "experiment",
        "recipe",
        "assumption",
        "decoder",
        "resizer",
        "engine",
        "workers",
        "batch_size",
        "dtype",
    ),
    *(
        "image_set",
        "corpus",
        "weights",
        "service_ms",
        "device",
        "device_kind",
        "n_images",
        "repeats",
    ),
    *(
        "img_per_s",
        "img_per_s_low",
        "img_per_s_high",
        "measured_img_per_s",
        "measured_origin",
        "error",
    ),
    *(
        "bottleneck",
        "measured_bottleneck",
        "accelerator_utilization",
        "accelerator_bound",
        "workers_to_saturate",
    ),
    *(
        "storage_img_per_s",
        "transform_img_per_s",
        "h2d_img_per_s",
        "accelerator_img_per_s",
        "main_img_per_s",
    ),
    *("cores_img_per_s", "origin", "status", "reason"),
)
TABLES = {CSV: COLUMNS}
#: The experiments whose end-to-end cells are predicted too: `tables` is handed their records.
READS = ("t4", "opt", "fast", "steps", "workers", "batch", "frontier")
#: Of those, the protocols that a prediction is compared with.
_PREDICTED = ("throughput", "loading")

#: Share of the wall: how long a device may wait that is still what binds.
_WAITS = 0.2


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """The costs, then the proving set."""
    return [*_loading(plan, options), *_steps(plan, options), *_proving(plan, options)]


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row for each end-to-end cell that was measured, then those of the paper."""
    if not any(record.cell.experiment == "predict" for record in records):
        return {}
    costs = Costs([record for record in records if record.cell.experiment == "predict"])
    found = []
    for experiment in ("predict", *READS):
        own = [record for record in records if record.cell.experiment == experiment]
        for protocol in _PREDICTED:
            found += [_row(costs, repeats, own) for repeats in _rows.groups(own, protocol).values()]
    return {CSV: [*found, *(_rows.blank(COLUMNS) | row for row in _paper_values.rows())]}


def _loading(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    mock, found = _stand_in(plan), []
    for image_set, corpus in plan.slices(options["images"]).items():
        sizes = options["loading"]["batch_sizes"][image_set]
        for loader, size in product(options["loaders"], sizes):
            recipe = replace(options["recipe"], **loader, batch_size=size)
            params = {**plan.params, "seconds": options["loading"]["seconds"]}
            label = f"loading-{recipe.name}-{image_set}-b{size}"
            found.append(Cell("predict", "contention", label, 0, recipe, corpus, mock, params))
    return found


def _steps(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """The hand-over, the mock model's step and, where there is a network, its own for each dtype."""
    chosen, device = options["step"], plan.settings.recipe.device
    recipe = replace(options["recipe"], name="step")
    params = {"batch_sizes": chosen["batch_sizes"][device], "batches": chosen["batches"][device]}
    params["seconds"] = chosen["seconds"][device]
    handing = {name: options["batch_transfer"][name] for name in ("batch_sizes", "batches")}
    found = [
        Cell(
            "predict",
            "batch_transfer",
            "batch_transfer",
            0,
            recipe,
            None,
            _stand_in(plan),
            {**plan.params, **handing},
        ),
        Cell(
            "predict",
            "step",
            "step-mock model",
            0,
            recipe,
            None,
            _stand_in(plan, 1.0),
            {**params, "batches": 50},
        ),
    ]
    if plan.settings.model.weights != "none":
        for dtype in chosen["dtypes"]:
            in_dtype = replace(recipe, dtype=dtype)
            found.append(
                Cell(
                    "predict",
                    "step",
                    f"step-{dtype}",
                    0,
                    in_dtype,
                    None,
                    plan.settings.model,
                    params,
                )
            )
    return found


def _proving(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    loaders = {loader["name"]: loader for loader in options["loaders"]}
    corpora = plan.slices(options["images"])
    found = []
    for repeat in plan.repeats("predict"):
        for chosen in options["prove"]:
            if chosen["image_set"] not in corpora:
                continue
            loader = loaders[chosen["loader"]]
            recipe = replace(
                options["recipe"],
                **loader,
                workers=chosen["workers"],
                batch_size=chosen["batch_size"],
                device="cpu",
            )
            model = _stand_in(
                plan, float(chosen["service_ms"]), float(chosen["service_ms_per_image"])
            )
            step = f"{chosen['service_ms']:g}+{chosen['service_ms_per_image']:g}ms"
            label = f"{recipe.name}-w{recipe.workers}-b{recipe.batch_size}-{step}"
            cell = _end_to_end.cell(
                plan,
                "predict",
                label,
                replace(recipe, name=label),
                corpora[chosen["image_set"]],
                repeat,
            )
            found.append(replace(cell, model=model))
    return found


def _stand_in(plan: Plan, service_ms: float = 0.0, service_ms_per_image: float = 0.0) -> ModelSpec:
    model = plan.settings.model
    return ModelSpec(
        "null",
        "none",
        input_px=model.input_px,
        dim=model.dim,
        service_ms=service_ms,
        service_ms_per_image=service_ms_per_image,
    )


def _row(costs: Costs, repeats: Sequence[Record], records: Sequence[Record]) -> Row:
    loads_only = repeats[0].cell.protocol == "loading"
    measured = _loading_row(repeats) if loads_only else _end_to_end.row(repeats, records)
    row = _rows.blank(COLUMNS) | {name: measured[name] for name in COLUMNS if name in measured}
    row |= {
        "experiment": repeats[0].cell.experiment,
        "origin": "predicted",
        "measured_origin": "measured",
    }
    row |= {"img_per_s": None, "measured_img_per_s": measured["img_per_s"]}
    if measured["status"] == "ok" and not loads_only:
        row |= {"measured_bottleneck": measured_bottleneck(_rows.median_pass(repeats))}
    try:
        given = costs.inputs(repeats[0].cell)
    except NoCostsError as error:
        return row | {"status": "not predicted", "reason": str(error)}
    said = predict(given.costs, given.step, given.machine, given.setup, given.batch_transfer)
    enough = workers_to_saturate(
        given.costs, given.step, given.machine, given.setup, given.batch_transfer
    )
    row |= {"workers_to_saturate": enough, **said_columns(said)}
    return row | error_column(row)


def _loading_row(repeats: Sequence[Record]) -> Row:
    """What a loader without a consumer measured, in this table's columns."""
    recipe = repeats[0].cell.recipe
    status, reason = _rows.status_of(repeats)
    row = {
        name: getattr(recipe, name)
        for name in ("decoder", "resizer", "engine", "workers", "batch_size", "dtype")
    }
    row |= {
        "recipe": repeats[0].cell.label,
        "image_set": _rows.image_set_of(repeats[0]),
        **_rows.where(repeats[0]),
    }
    row |= {"status": status, "reason": reason, "img_per_s": None}
    if status != "ok":
        return row
    rates = [_rows.loading_rate(record) for record in repeats if record.ok]
    return row | {
        "img_per_s": median(rates),
        "repeats": len(rates),
        "n_images": repeats[0].values["n_loaded"],
    }


def said_columns(said: Prediction) -> Row:
    """A prediction in the table's columns."""
    return {
        "img_per_s": said.img_per_s,
        "img_per_s_low": said.low,
        "img_per_s_high": said.high,
        "bottleneck": said.bottleneck,
        "accelerator_utilization": said.accelerator_utilization,
        "accelerator_bound": said.accelerator_bound,
        **{f"{name}_img_per_s": rate for name, rate in said.supply.items()},
    }


def error_column(row: Row) -> Row:
    """Predicted over measured, less 1; none where nothing was measured."""
    said, measured = row["img_per_s"], row["measured_img_per_s"]
    if not isinstance(said, float) or not isinstance(measured, int | float):
        return {"error": None}
    return {"error": said / measured - 1}


def measured_bottleneck(record: Record) -> str:
    """What bound, as the main process saw it: waiting for batches, or one of its own stages.

    Beside workers a device that is kept busy hardly waits: a wait of more than a fifth of the wall is the
    loaders'. Without workers what took longest binds. Of loading, it is the storage's where reading took most.
    """
    spent = {name: record.seconds_in(name) for name in ("h2d", "forward", "wait")}
    wall = _rows.wall_s(record)
    spent["main"] = wall - sum(spent.values())
    waits = (
        spent["wait"] > _WAITS * wall
        if record.cell.recipe.workers
        else spent["wait"] == max(spent.values())
    )
    if not waits:
        del spent["wait"]
        largest = max(spent, key=spent.__getitem__)
        return "accelerator" if largest == "forward" else largest
    loading = {
        name: record.seconds_in(name)
        for name in ("read", "decode", "resize", "normalize", "assemble")
    }
    return "storage" if loading["read"] > sum(loading.values()) / 2 else "transform"
