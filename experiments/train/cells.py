"""Does the loader keep a training step busy, and if not, which stage is it?

Method. ResNet-50 trains on augmented images with random labels: the loader alone, the step alone on
noise, and both together; a base job, then each of batch, workers, place of the augmentation and
dtype changed alone. `utilization` is the step's time alone over its share of the wall time in the
job.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from experiments import common
from experiments.common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from harness.measures import median
from wallclock.clock import LOADING_STAGES
from wallclock.recipe import ModelSpec

RANK = 165
CSV = "train.csv"
#: Of a step, by the names of `measure.PARTS`.
_PARTS = ("h2d", "augment", "forward", "backward", "optimizer")
COLUMNS = common.columns(
    "what part batch_size workers augment dtype decoder resizer interpolation dct_scale engine",
    "image_set corpus weights device device_kind n_images repeats",
    "img_per_s img_per_s_min img_per_s_max",
    "utilization wait_share slowed_share limited_by",
    *(f"{part}_ms" for part in _PARTS),
    "step_ms other_cores origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
part | | setting | loader alone, step alone, or together
augment | | setting | where images are augmented: cpu, device or none
utilization | 0 to 1 | measured | the step's time alone over its share of the wall time
wait_share | 0 to 1 | measured | wall time for which the step waited for the loader
slowed_share | 0 to 1 | measured | wall time by which the step takes longer than alone
limited_by | | status | step, the loading stage that takes longest, main, or other processes
h2d_ms | ms | measured | copy to the device, per batch
augment_ms | ms | measured | augmentation on the device, per batch
forward_ms | ms | measured | forward pass, per batch
backward_ms | ms | measured | backward pass, per batch
optimizer_ms | ms | measured | optimizer, per batch
step_ms | ms | measured | the complete step alone, per batch
"""
TIMED = ("harness.protocols.costs", "harness.protocols.network")
_OF_LOADERS = ("workers", "engine", "decoder", "resizer", "interpolation", "dct_scale")
#: From this utilization on, the step is the limit.
_BUSY = 0.9
#: From this share of the cores on, other processes are.
_OTHERS = 0.2


def cells(plan: Plan, options: Options) -> list[Cell]:
    """In each repeat the step, the loaders and the jobs."""
    corpus = plan.first_slice(options["images"])
    jobs = _jobs(options)
    weights = "none" if plan.settings.model.weights == "none" else "random"
    model = ModelSpec("resnet-50", weights, seed=plan.settings.model.seed, dim=2048)
    new = partial(cell, plan, "train", model=model)
    sizes = sorted({job.batch_size for job in jobs})
    together = plan.params | options["together"]
    alone = {"batch_sizes": sizes, **options["step"]}
    seconds = {**plan.params, "seconds": plan.settings.loader_seconds}
    steps = [
        replace(jobs[0], name=f"step-{dtype}-augment-{place}", dtype=dtype, augment=place)
        for dtype, place in dict.fromkeys(map(_step_of, jobs))
    ]
    # Loaders do not depend on the dtype of the step.
    loaders = dict.fromkeys(
        replace(job, dtype=jobs[0].dtype, name=f"loader-{_loader(job)}") for job in jobs
    )
    grid = []
    for repeat in plan.repeats("train"):
        again = partial(new, repeat=repeat)
        for step in steps:
            grid.append(again("train_step", step.name, step, None, params=alone))
        for loader in loaders:
            grid.append(again("loading", loader.name, loader, corpus, params=seconds))
        for job in jobs:
            grid.append(again("train", job.name, job, corpus, params=together))
    return grid


def _jobs(options: Options) -> list[Recipe]:
    """The base job, of the first of each list, then each other choice alone."""
    choices = {
        "batch_size": options["batch_sizes"],
        "workers": options["workers"],
        "augment": options["augment"],
        "dtype": options["dtypes"],
    }
    first = {name: values[0] for name, values in choices.items()}
    base = replace(options["recipe"], **first)
    jobs = [base]
    for name, values in choices.items():
        jobs += [replace(base, **{name: value}) for value in values[1:]]
    return [replace(job, name=f"{job.dtype}-{_loader(job)}") for job in jobs]


def _loader(recipe: Recipe) -> str:
    return f"b{recipe.batch_size}-w{recipe.workers}-augment-{recipe.augment}"


def _step_of(recipe: Recipe) -> tuple[str, str]:
    """What of a job its step depends on, the batch size apart: dtype, and whether it augments."""
    return recipe.dtype, "device" if recipe.augment == "device" else "none"


def tables(records: Records) -> Tables:
    """A row for each loader, each step and batch size, and each job."""
    if not records:
        return {}
    loading, stepping, training = (
        common.groups(records, protocol).values() for protocol in ("loading", "train_step", "train")
    )
    alone = [_row(repeats, "loader") for repeats in loading]
    alone += [row for repeats in stepping for row in _steps(repeats)]
    parts = {str(row["what"]): row for row in alone if row["img_per_s"]}
    return {CSV: [*alone, *(_job(repeats, parts) for repeats in training)]}


def _row(repeats: Records, part: str) -> Row:
    """What loads images."""
    timed = repeats[0].cell
    row = common.new_row(repeats, COLUMNS) | {"part": part, "what": f"{part}, {timed.label}"}
    row |= {"n_images": timed.images.n, "augment": timed.recipe.augment}
    if part == "loader":
        row |= {"dtype": None, "weights": None, "what": f"loader, {_loader(timed.recipe)}"}
    return common.complete(row, repeats, common.spread_columns)


def _step_name(recipe: Recipe, size: int) -> str:
    there = "-augmented there" if recipe.augment == "device" else ""
    return f"step, {recipe.dtype}-b{size}{there}"


def _steps(repeats: Records) -> list[Row]:
    """A row for each batch size of a step."""
    timed = repeats[0].cell
    rows = []
    for size in timed.params["batch_sizes"]:
        row = common.new_row(repeats, COLUMNS) | dict.fromkeys(_OF_LOADERS)
        row |= {"part": "step", "batch_size": size, "what": _step_name(timed.recipe, size)}
        rows.append(common.complete(row, repeats, partial(_step_columns, size=size)))
    return rows


def _step_columns(repeats: Records, size: int) -> Row:
    measured = common.measured(repeats)
    step_s = median([_step_s(record, size) for record in measured])
    walls = [_step_s(record, size) for record in measured]
    row: Row = {
        "repeats": len(measured),
        "step_ms": 1e3 * step_s,
        "other_cores": max(record.values.get("other_cores", 0.0) for record in measured),
        "img_per_s": size / step_s,
        "img_per_s_min": size / max(walls),
        "img_per_s_max": size / min(walls),
    }
    nearest = min(measured, key=lambda record: abs(_step_s(record, size) - step_s))
    for part in _PARTS:
        if f"{part}-{size}" in nearest.samples:
            row[f"{part}_ms"] = common.mean_ms(nearest, f"{part}-{size}")
    return row


def _step_s(record: Record, size: int) -> float:
    """Seconds of a batch, copied and computed."""
    parts = [f"{part}-{size}" for part in _PARTS]
    return sum(common.mean_ms(record, part) for part in parts if part in record.samples) / 1e3


def _job(repeats: Records, parts: Mapping[str, dict[str, Any]]) -> Row:
    """A job: how busy its step was, where the rest of the time went, and to which stage."""
    row = _row(repeats, "together")
    recipe = repeats[0].cell.recipe
    step = parts.get(_step_name(recipe, recipe.batch_size))
    rate = row["img_per_s"]
    if step is None or not isinstance(rate, float):
        return row
    alone: float = step["img_per_s"]
    median_repeat = common.median_repeat(repeats, common.seconds_an_image)
    waits = median_repeat.seconds_in("wait") / common.wall_s(median_repeat)
    busy = rate / alone
    row |= {"utilization": busy, "wait_share": waits, "slowed_share": max(0.0, 1 - busy - waits)}
    # A step alone that others slowed down makes a job look busier than it can be.
    others = max(median_repeat.values["other_cores"], step["other_cores"])
    row["other_cores"] = others
    row["step_ms"] = 1e3 * recipe.batch_size / alone
    cores = median_repeat.environment["machine"]["cores"]
    if others > _OTHERS * cores:
        return row | {"limited_by": "other processes"}
    if busy >= _BUSY:
        return row | {"limited_by": "step"}
    # On a CPU the loaders also take cores from the step; a GPU may lack what its host is to do.
    starved = recipe.device == "cpu" or waits >= 1 - busy - waits
    stage = max(LOADING_STAGES, key=median_repeat.seconds_in)
    return row | {"limited_by": stage if starved else "main"}
