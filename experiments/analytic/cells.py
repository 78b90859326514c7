"""Which wall would bind: storage, transform, copy or accelerator? Formulas, not an end-to-end run.

Method. A batch takes the longer of its transform and its step; the slowest path bounds what the
accelerator gets (`harness.analytic`). First the source's own case: "Starving the GPU", a
tutorial of mlsysim (github.com/harvard-edge/cs249r_book), trains ResNet-50 on an A100 with samples
of 500 KB from eight workers of 250 MB/s. Its step times are inputs, what it prints is in columns
`printed_*`. It names no storage: 7 GB/s is one PCIe 4.0 drive, 32 GB/s a direction of PCIe 4.0 x16,
as in mlsysim's hardware table. Then this machine, from parts measured apart by the protocols
`storage`, `contention` and `step`; batches not timed are on the fitted line (`step_origin`), bytes
are the files'. On a CPU the forward pass takes the cores that load, and the formulas let the two
overlap: an upper bound. `predict` has the model that shares the cores.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from experiments import common
from experiments.common import Cell, Options, Plan, Record, Records, Row, Tables, cell, mock_model
from harness import provenance
from harness.analytic import feed, overlap
from harness.measures import median
from harness.pipeline_model import JobSetup, Machine, Pipeline, StageCosts, StepTime
from harness.table import read_table

RANK = 155
CSV = "analytic.csv"
COLUMNS = common.columns(
    "what case scenario batch_size workers image_set sample_kb transform_gb_per_s",
    "transform_ms step_ms step_origin utilization slowdown demand_gb_per_s bottleneck",
    "utilization_all_walls storage_img_per_s interconnect_img_per_s transform_img_per_s",
    "accelerator_img_per_s crossover_batch workers_needed printed_transform_ms",
    "printed_utilization corpus weights device device_kind n_images origin status reason note",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
case | | setting | source: the cited tutorial; this machine
scenario | | setting | the tutorial's scenario, or the number of loading processes
sample_kb | kB | fact | bytes of a sample
transform_gb_per_s | GB/s | measured | what the workers transform
transform_ms | ms | measured | time of a batch's transform
step_ms | ms | measured | time of a batch's step
step_origin | | status | measured, or extrapolated from the fitted line
utilization | 0 to 1 | measured | step over the longer of transform and step
slowdown | x | measured | the longer of transform and step, over the step
demand_gb_per_s | GB/s | measured | what the step consumes
bottleneck | | status | the slowest path, or accelerator
utilization_all_walls | 0 to 1 | measured | utilization with every path counted
storage_img_per_s | images/s | measured | what the storage delivers
interconnect_img_per_s | images/s | measured | what the copy to the device delivers
transform_img_per_s | images/s | measured | what the workers deliver
accelerator_img_per_s | images/s | measured | what the step consumes
workers_needed | count | measured | workers that feed the step, each with a core
printed_transform_ms | ms | fact | the tutorial's own figure for transform_ms
printed_utilization | % | fact | the tutorial's own figure for utilization
"""
#: What stands between a sample and the accelerator.
PATHS = ("transform", "storage", "interconnect")
#: The source's batch sizes.
_BATCHES = (32, 64, 128, 256, 512, 1024)
_SHARES_CORES = "the forward pass takes the cores that load: an upper bound"


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Storage and loading of each image set, then the step."""
    recipe = options["recipe"]
    mock = mock_model(plan)
    grid: list[Cell] = []
    for name, corpus in plan.slices(options["images"]).items():
        for protocol in ("storage", "contention"):
            params = {**plan.params, **options[protocol]}
            new = cell(plan, "analytic", protocol, f"{protocol}-{name}", recipe, corpus, model=mock)
            grid.append(replace(new, params=params))
    params = {name: value[plan.settings.device] for name, value in options["step"].items()}
    on_host = replace(recipe, name="step", normalize_on="host")
    return [*grid, cell(plan, "analytic", "step", "step", on_host, None, params=params)]


def tables(records: Records) -> Tables:
    """The source's rows and this machine's."""
    if not records:
        return {}
    parts = {(record.cell.protocol, common.image_set_of(record)): record for record in records}
    rows = list(source_rows())
    for (protocol, image_set), loading in parts.items():
        step = parts.get(("step", ""))
        if protocol == "contention" and step:
            failed = [part for part in (loading, step) if not part.ok]
            storage = parts.get(("storage", image_set))
            rows += [_unmeasured(failed[0], loading)] if failed else _sweep(storage, loading, step)
    return {CSV: [{name: row.get(name) for name in COLUMNS} for row in rows]}


def source_rows() -> Iterator[Row]:
    """The source's scenarios over batch sizes, with what it prints where it prints it."""
    lines = _read("resnet50-a100.csv")
    for scenario, group in groupby(lines, lambda line: line["scenario"]):
        case = list(group)
        steps = {line["batch_size"]: line["step_ms"] / 1e3 for line in case}
        for line in case:
            size = line["batch_size"]
            sample = 1e3 * line["sample_kb"]
            given = {name: line[f"{name}_gb_per_s"] for name in PATHS}
            rates = {name: 1e9 * rate / sample for name, rate in given.items() if rate}
            worker = rates["transform"] / line["workers"] if line["workers"] else None
            row: Row = {**line, "what": f"source, {scenario}, batch {size}", "case": "source"}
            row |= {"origin": "computed", "status": "ok"}
            yield row | bounds(size, sample, steps, rates, worker)


def bounds(
    size: int,
    sample_bytes: float,
    steps: Mapping[int, float],
    rates: Mapping[str, float],
    worker: float | None,
) -> Row:
    """What follows for a batch of `size` samples of `sample_bytes` each.

    `utilization` is the source's: transform against step. `utilization_all_walls` counts every
    path. `workers_needed`: if each has a core, and none slows another.

    Args:
        size: samples of the batch.
        sample_bytes: bytes of a sample.
        steps: seconds of a step by batch size; a size that is missing is on the fitted line.
        rates: samples a second of the paths that are there, of `PATHS`; at least one.
        worker: samples a second of one worker of the transform; None where it has none.

    Raises ValueError: a number is zero, negative, infinite or NaN.
    """
    line = StepTime.fit(steps.items())
    paths = {name: rates[name] * sample_bytes for name in rates}
    step_s = steps.get(size) or line.batch_s(size)
    supply = feed(size * sample_bytes / step_s, **paths)
    row: Row = {
        "batch_size": size,
        "sample_kb": sample_bytes / 1e3,
        "step_ms": 1e3 * step_s,
        "demand_gb_per_s": supply.demand_bytes_per_s / 1e9,
        "utilization_all_walls": min(1.0, 1 / supply.utilization),
        "bottleneck": supply.bottleneck if supply.is_stalled else "accelerator",
        **{f"{name}_img_per_s": rate for name, rate in rates.items()},
        "accelerator_img_per_s": size / step_s,
        "workers_needed": math.ceil(size / step_s / worker - 1e-9) if worker else None,
    }
    if "transform" not in paths:
        return row
    result = overlap(size, sample_bytes, paths["transform"], step_s)
    # Its cost an image is that of a single worker as fast as all of them.
    transform = StageCosts(decode_s=1 / rates["transform"])
    pipeline = Pipeline(transform, line, Machine(cores=1), JobSetup(workers=1))
    return row | {
        "transform_gb_per_s": paths["transform"] / 1e9,
        "transform_ms": 1e3 * result.transform_s,
        "utilization": result.utilization,
        "slowdown": result.slowdown,
        "crossover_batch": _crossover(pipeline) if len(steps) > 1 else None,
    }


def _crossover(pipeline: Pipeline) -> float | None:
    """The batch size above which loading is the bottleneck, not the accelerator; None if never.

    Loading takes B × t, the step takes a + B × s: they cross at B = a / (t - s).
    """
    more_s = 1 / pipeline.supply()["transform"] - pipeline.step.per_image_s
    return pipeline.step.fixed_s / more_s if more_s > 0 else None


def _unmeasured(part: Record, loading: Record) -> Row:
    """Why there is nothing of this machine."""
    row = common.new_row([part], COLUMNS) | {"what": "this machine", "case": "this machine"}
    return row | {"image_set": common.image_set_of(loading), "workers": None, "batch_size": None}


def _storage(record: Record | None) -> Iterator[tuple[str, float]]:
    """The fastest cold pass, images a second: what is in memory was on the disk before."""
    if record and record.ok:
        cold = [ns for name, ns in record.samples.items() if name != "warm"]
        n = record.values["n_loaded"]
        yield "storage", max(median([n / each * 1e9 for each in samples]) for samples in cold)


def _interconnect(step: Record) -> Iterator[tuple[str, float]]:
    """The copy to the device at its fastest batch size, images a second."""
    if step.cell.recipe.device != "cpu":
        yield "interconnect", max(size / s for size, s in _times(step, "h2d").items())


def _times(step: Record, stage: str) -> dict[int, float]:
    """Batch size → seconds of a batch in that stage."""
    sizes = step.cell.params["batch_sizes"]
    return {size: common.mean_ms(step, f"{stage}-{size}") / 1e3 for size in sizes}


def _sweep(storage: Record | None, loading: Record, step: Record) -> Iterator[Row]:
    """The source's sweep on this machine, for each number of loading processes."""
    row = common.new_row([loading], COLUMNS) | {"case": "this machine", "origin": "computed"}
    shares = step.cell.recipe.device == "cpu" and step.cell.model.weights != "none"
    row |= {"weights": step.cell.model.weights, "n_images": loading.cell.images.n}
    row["note"] = _SHARES_CORES if shares else ""
    paths = dict([*_storage(storage), *_interconnect(step)])
    mean, rates = loading.values["mean_bytes"], loading.values["rates"]
    times = _times(step, "forward")
    for workers, rate in rates.items():
        for size in sorted({*times, *_BATCHES}):
            row |= bounds(size, mean, times, {"transform": rate, **paths}, rates["1"])
            row |= {"scenario": f"workers: {workers}", "workers": workers}
            row["step_origin"] = "measured" if size in times else "extrapolated"
            yield row | {"what": f"this machine, {row['scenario']}, batch {size}"}


def _read(name: str) -> list[Row]:
    return read_table(provenance.ROOT / "data" / "paper" / name)
