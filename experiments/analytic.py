"""Which wall would bind: storage, transform, copy or accelerator? Formulas, not an end-to-end run.

Method. A batch takes the longer of its transform and its step; the slowest path bounds what the
accelerator gets (`harness.predict.analytic`). First the source's own case: "Starving the GPU", a
tutorial of mlsysim (github.com/harvard-edge/cs249r_book), trains ResNet-50 on an A100 with samples
of 500 KB from eight workers of 250 MB/s. Its step times are inputs, what it prints is in columns
`printed_*`. It names no storage: 7 GB/s is one PCIe 4.0 drive, 32 GB/s a direction of PCIe 4.0 x16,
as in mlsysim's hardware table. Then this machine, from parts measured apart by the protocols
`storage`, `contention` and `step`; batches not timed are on the fitted line (`step_origin`), bytes
are the files'. On a CPU the forward pass takes the cores that load, and the formulas let the two
overlap: an upper bound. `predict` has the model that shares the cores.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from experiments import _accelerators, _common
from experiments._common import Cell, Options, Plan, Record, Records, Row, Tables, cell, mock_model
from harness import provenance
from harness.predict.analytic import feed, overlap
from wallclock.predict import JobSetup, Machine, Pipeline, StageCosts, StepTime

RANK = 155
CSV = "analytic.csv"
WALLS_CSV = "analytic-walls.csv"
_WHERE = "corpus weights device device_kind n_images origin status reason note"
TABLES = {
    CSV: _common.columns(
        "what case scenario batch_size workers image_set sample_kb transform_gb_per_s",
        "transform_ms step_ms step_origin utilization slowdown demand_gb_per_s bottleneck",
        "utilization_all_walls storage_img_per_s interconnect_img_per_s transform_img_per_s",
        "accelerator_img_per_s crossover_batch workers_needed",
        f"printed_transform_ms printed_utilization {_WHERE}",
    ),
    WALLS_CSV: _common.columns(
        "what wall image_set kb_per_image gb_per_s img_per_s img_per_s_min img_per_s_max",
        "from_disk_share batch_size utilization workers_needed",
        f"fp16_tflops memory_gb_per_s pcie_gb_per_s pcie_img_per_s source {_WHERE}",
    ),
}
#: The wall of accelerators that are not here.
ELSEWHERE = "accelerator elsewhere"
#: What stands between a sample and the accelerator.
PATHS = ("transform", "storage", "interconnect")
#: The source's batch sizes.
_BATCHES = (32, 64, 128, 256, 512, 1024)
_CITED = ("fp16_tflops", "memory_gb_per_s", "pcie_gb_per_s")
#: Of a pixel of the device's input: float32 (3, h, w).
_PIXEL_BYTES = 12
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
    """The source's rows and this machine's; the walls, those of accelerators elsewhere too."""
    if not records:
        return {}
    parts = {(record.cell.protocol, _common.image_set_of(record)): record for record in records}
    rows: dict[str, list[Row]] = {CSV: list(source_rows()), WALLS_CSV: []}
    for image_set in dict.fromkeys(name for _, name in parts if name):
        storage = parts.get(("storage", image_set))
        loading = parts.get(("contention", image_set))
        step = parts.get(("step", ""))
        if storage and loading and step:
            walls = [
                *_paths(storage, "storage"),
                *_paths(loading, "transform"),
                *_device(step, loading),
            ]
            rows[WALLS_CSV] += walls
            if loading.ok:
                rows[CSV] += _sweep(walls, loading, step) if step.ok else ()
                rows[WALLS_CSV] += _elsewhere(loading)
    return {
        csv: [{name: row.get(name) for name in TABLES[csv]} for row in rows[csv]] for csv in rows
    }


def source_rows() -> Iterator[Row]:
    """The source's scenarios over batch sizes, with what it prints where it prints it."""
    lines = _read("resnet50-a100.csv")
    for scenario, group in groupby(lines, lambda line: line["scenario"]):
        case = list(group)
        steps = {int(line["batch_size"]): float(line["step_ms"]) / 1e3 for line in case}
        for line in case:
            size = int(line["batch_size"])
            sample = 1e3 * float(line["sample_kb"])
            given = {name: line[f"{name}_gb_per_s"] for name in PATHS}
            rates = {name: 1e9 * float(cell) / sample for name, cell in given.items() if cell}
            worker = rates["transform"] / int(line["workers"]) if line["workers"] else None
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
        "crossover_batch": pipeline.crossover_batch() if len(steps) > 1 else None,
    }


def _wall(record: Record, wall: str, what: str) -> Row:
    row = _common.new_row([record], TABLES[WALLS_CSV]) | {"weights": None, "batch_size": None}
    return row | {"wall": wall, "what": what}


def _paths(record: Record, wall: str) -> Iterator[Row]:
    """A row for each number of readers or processes: the median pass, the slowest, the fastest."""
    values = record.values
    passes = _storage_rates(record) if wall == "storage" else _transform_rates(record)
    if not passes:
        yield _wall(record, wall, wall)
    for what, rates in passes.items():
        row = _wall(record, wall, what)
        size = values["mean_bytes"]
        row |= _common.with_spread("img_per_s", rates)
        row |= {"kb_per_image": size / 1e3, "gb_per_s": row["img_per_s"] * size / 1e9}
        if "cold" in what:
            row["from_disk_share"] = values["from_disk_share"]
        yield row | {"n_images": record.cell.images.n}


def _transform_rates(record: Record) -> dict[str, list[float]]:
    """Images a second by number of loading processes."""
    rates = record.values.get("rates", {})
    return {f"transform, processes: {n}": [rate] for n, rate in rates.items()}


def _storage_rates(record: Record) -> dict[str, list[float]]:
    """Images a second of each pass, by number of readers."""
    passes = {}
    for name, samples in record.samples.items():
        n = record.values["n_warm" if name == "warm" else "n_loaded"]
        what = f"storage, {name.replace('cold-', 'cold, readers: ')}"
        passes[what] = [n / ns * 1e9 for ns in samples]
    return passes


def _device(step: Record, loading: Record) -> Iterator[Row]:
    """The copy to the device and the forward pass, each at its fastest batch size."""
    on_host = step.cell.recipe.device == "cpu"
    copied = _PIXEL_BYTES * step.cell.model.input_px**2
    for wall, stage in (("interconnect", "h2d"), ("accelerator", "forward")):
        row = _wall(step, wall, f"{wall}: {stage}")
        row |= {"image_set": _common.image_set_of(loading), "corpus": loading.cell.images.kind}
        if step.ok and on_host and stage == "h2d":
            row |= {"status": "unavailable", "reason": "the device is the host: nothing is copied"}
        elif step.ok:
            size, seconds = min(_times(step, stage).items(), key=lambda at: at[1] / at[0])
            row |= {"img_per_s": size / seconds, "batch_size": size}
            if stage == "h2d":
                row |= {"kb_per_image": copied / 1e3, "gb_per_s": copied * size / seconds / 1e9}
            else:
                row["weights"] = step.cell.model.weights
        yield row


def _times(step: Record, stage: str) -> dict[int, float]:
    """Batch size → seconds of a batch in that stage."""
    sizes = step.cell.params["batch_sizes"]
    return {size: _common.mean_ms(step, f"{stage}-{size}") / 1e3 for size in sizes}


def _sweep(walls: Sequence[Row], loading: Record, step: Record) -> Iterator[Row]:
    """The source's sweep on this machine, for each number of loading processes."""
    row = _wall(loading, "", "this machine") | {"case": "this machine", "origin": "computed"}
    shares = step.cell.recipe.device == "cpu" and step.cell.model.weights != "none"
    row |= {"weights": step.cell.model.weights, "n_images": loading.cell.images.n}
    row["note"] = _SHARES_CORES if shares else ""
    # Of the storage the fastest cold pass: what is in memory was on the disk before.
    cold = [wall for wall in walls if wall.get("img_per_s") and wall["what"] != "storage, warm"]
    cold.sort(key=lambda wall: wall["img_per_s"])
    fastest = {wall["wall"]: wall["img_per_s"] for wall in cold}
    paths = {name: fastest[name] for name in ("storage", "interconnect") if name in fastest}
    mean, rates = loading.values["mean_bytes"], loading.values["rates"]
    times = _times(step, "forward")
    for workers, rate in rates.items():
        for size in sorted({*times, *_BATCHES}):
            row |= bounds(size, mean, times, {"transform": rate, **paths}, rates["1"])
            row |= {"scenario": f"workers: {workers}", "workers": workers}
            row["step_origin"] = "measured" if size in times else "extrapolated"
            yield row | {"what": f"this machine, {row['scenario']}, batch {size}"}


def _elsewhere(loading: Record) -> Iterator[Row]:
    """DINOv2-small in FP16 on accelerators that are not here (`_accelerators`).

    `utilization` is this machine's transform, one process per core, over the lower estimate: an
    upper bound.
    """
    rates = loading.values["rates"]
    cores = str(loading.environment["machine"]["cores"])
    for name, accelerator in _accelerators.load().items():
        low, high = accelerator.rates("fp16")
        origin = "paper" if name == "T4" else "predicted"
        pixel_bytes = _PIXEL_BYTES * loading.cell.model.input_px**2
        pcie = 1e9 * accelerator.pcie_gb_per_s / pixel_bytes
        row = _wall(loading, ELSEWHERE, f"{name}, {origin}")
        row |= {name: getattr(accelerator, name) for name in (*_CITED, "source", "note")}
        row |= {"img_per_s": low, "img_per_s_min": low, "img_per_s_max": high, "origin": origin}
        row |= {"utilization": min(1.0, rates[cores] / low), "pcie_img_per_s": pcie}
        yield row | {"workers_needed": math.ceil(low / rates["1"])}


def _read(name: str) -> list[dict[str, str]]:
    with (provenance.ROOT / "data" / "paper" / name).open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))
