"""What would another machine bring? Predictions from a run's serial tables, with assumptions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from experiments import serial
from wallclock.clock import STAGES
from wallclock.errors import UserError
from wallclock.paper.csvfile import Row, number, ok_rows, read_table
from wallclock.paper.format import digits, factor, percent
from wallclock.paper.labels import DECODERS, SETS
from wallclock.paper.terminal import print_line, print_table
from wallclock.predict.costs import JobSetup, Machine, StageCosts, StepTime
from wallclock.predict.model import UNCERTAINTY, Pipeline

#: Images a second of DINOv2-small's forward pass in FP16: the paper's T4, and that times the ratio
#: of the data sheets' dense FP16 tensor TFLOPS (NVIDIA: T4 65; H100 SXM 989), an upper bound.
_SCALED = "the paper's T4 in FP16 × 989/65, the data sheets' dense FP16 TFLOPS: an upper bound"
ACCELERATORS: Mapping[str, tuple[float, str]] = {
    "T4": (1006.0, "the paper's T4 in FP16: 1,006 img/s"),
    "H100": (1006.0 * 989 / 65, _SCALED),
}
_GBIT = 1e9 / 8
_RUN = "run python code/main.py --experiment serial"
_ASSUMED_THROUGHOUT = (
    "busy: utilization of the accelerator; workers: how many saturate it (– if none can)",
    "stage costs: this run's serial pass, on one core, with nothing else running",
    "loaders share the cores without slowing one another, and transferring a batch between",
    "  processes is free: the experiment `predict` measures both, and prediction.csv the error",
    f"interval: the effect of ± {percent(UNCERTAINTY, 0)} on every cost",
)


@dataclass(frozen=True)
class Case(Pipeline):
    """One scenario: a pipeline, and what it assumes."""

    name: str = ""
    assumed: str = ""


@dataclass(frozen=True)
class Changes:
    """What a scenario changes; None leaves a value as it was measured."""

    cores: int | None = None
    workers: int | None = None
    batch: int | None = None
    storage_gbit: float | None = None
    image_mb: float | None = None
    accelerator: str | None = None


def cases(out: Path, image_set: str, decoder: str, changes: Changes) -> list[Case]:
    """The run's own machine, the standard scenarios, and `yours` if anything is to change.

    Raises UserError if the run has no serial pass of these images with this decoder, or a change is
    invalid.
    """
    now = _baseline_case(out, image_set, decoder)
    scenarios = {
        "twice the cores": Changes(cores=2 * now.machine.cores, workers=2 * now.machine.cores),
        "an H100": Changes(accelerator="H100"),
        "1 Gbit/s storage": Changes(storage_gbit=1),
        "H100, 1 Gbit/s": Changes(accelerator="H100", storage_gbit=1),
    }
    if image_set == "original":
        scenarios["images of 5 MB"] = Changes(image_mb=5)
    if changes != Changes():
        scenarios["yours"] = changes
    return [now, *(_change(now, name, scenario) for name, scenario in scenarios.items())]


def print_cases(answers: Sequence[Case], image_set: str, decoder: str, console: Console) -> None:
    """Print the predictions, then their assumptions."""
    setup = answers[0].setup
    job = f"{setup.workers} DataLoader workers (one a core), batch {setup.batch_size}"
    title = f"{SETS[image_set]}, {DECODERS[decoder]}, {job}: predicted, not measured"
    print_line(title, console)
    base = answers[0].predict().img_per_s
    rows = []
    for case in answers:
        new = case.predict()
        workers = case.workers_to_saturate()
        rate, interval = digits(new.img_per_s), f"{digits(new.low)} to {digits(new.high)}"
        gain, busy = factor(new.img_per_s / base), percent(new.accelerator_utilization, 0)
        cells = (case.name, rate, interval, gain, new.bottleneck, busy, digits(workers or None))
        rows.append(cells)
    headings = ("what if", "img/s", "interval", "gain", "bottleneck", "busy", "workers")
    print_table(headings, rows, console, right={*headings} - {"what if", "bottleneck"})
    own = [f"{case.name}: {case.assumed}" for case in answers if case.assumed]
    print_line("\nAssumed:", console)
    for line in (*_ASSUMED_THROUGHOUT, *own):
        print_line(line if line.startswith(" ") else f"- {line}", console)


def _change(case: Case, name: str, changes: Changes) -> Case:
    costs, step, machine, setup, assumed = case.costs, case.step, case.machine, case.setup, []
    try:
        if changes.cores is not None:
            machine = replace(machine, cores=changes.cores)
            if machine.shares_cores:
                step = StepTime(0.0, step.per_image_s * case.machine.cores / changes.cores)
                machine = replace(machine, forward_cores=changes.cores)
            also = ", forward too" if machine.shares_cores else ""
            assumed.append(f"cores as fast, all of them usable{also}")
        if changes.workers is not None:
            setup = replace(setup, workers=changes.workers)
        if changes.batch is not None:
            setup = replace(setup, batch_size=changes.batch)
        if changes.storage_gbit is not None:
            machine = replace(machine, storage_bytes_per_s=changes.storage_gbit * _GBIT)
            assumed.append("every image is read once, at the full rate of the link")
        if changes.image_mb is not None:
            growth = changes.image_mb * 1e6 / costs.image_bytes
            scaled = ("read_s", "decode_s", "resize_s")
            grown = {stage: getattr(costs, stage) * growth for stage in scaled}
            costs = replace(costs, image_bytes=changes.image_mb * 1e6, **grown)
            assumed.append(f"read, decode and resize cost {growth:.3g} times as much, like bytes")
        if changes.accelerator is not None:
            rate, source = _accelerator(changes.accelerator, case)
            step = StepTime(0.0, 1 / rate)
            machine = replace(machine, shares_cores=False, forward_cores=1)
            assumed.append(source)
        return Case(costs, step, machine, setup, name=name, assumed="; ".join(assumed))
    except (ValueError, ZeroDivisionError) as error:
        raise UserError(f"whatif: {error}") from error


def _accelerator(name: str, case: Case) -> tuple[float, str]:
    """Images a second, and where the number comes from."""
    if name in ACCELERATORS:
        return ACCELERATORS[name]
    speedup = float(name) if re.fullmatch(r"\d*\.?\d+", name) else 0.0
    if not speedup > 0:
        known = ", ".join(ACCELERATORS)
        raise UserError(f"--accelerator {name}: one of {known}, or a factor above 0")
    rate = speedup / case.step.per_image_s
    return rate, f"a forward pass {speedup:g} times as fast, on a separate device"


def _baseline_case(out: Path, image_set: str, decoder: str) -> Case:
    if image_set not in serial.CSVS:
        raise UserError(f"whatif: --image-set {image_set}: one of {', '.join(serial.CSVS)}")
    path = out / serial.CSVS[image_set]
    if not path.is_file():
        raise UserError(f"whatif: no {path}; {_RUN}")
    rows = {r["decoder"]: r for r in reversed(ok_rows(read_table(path))) if r["recipe"] != "floor"}
    if decoder not in rows:
        missing = f"no row with decoder={decoder} in {path.name}"
        raise UserError(f"whatif: {missing} (present: {', '.join(reversed(rows))}); {_RUN}")
    row = rows[decoder]
    about = json.loads(path.with_suffix(".meta.json").read_text(encoding="utf-8"))
    cores = int(about["machine"]["cores"])
    n = _number(row, "n_images")
    per_image = {f"{stage}_s": _number(row, f"{stage}_s") / n for stage in STAGES}
    step = StepTime(0.0, per_image.pop("forward_s"))
    costs = StageCosts(**per_image, image_bytes=1e3 * _number(row, "median_kb"))
    shares = row["device_kind"] == "cpu" and row["weights"] != "none"
    machine = Machine(cores, None, shares, cores if shares else 1)
    setup = JobSetup(cores, int(_number(row, "batch_size")))
    assumed = f"{row['device']}; files in the page cache"
    return Case(costs, step, machine, setup, name="as it is", assumed=assumed)


def _number(row: Row, column: str) -> float:
    if (value := number(row[column])) is None:
        raise UserError(f"whatif: the cell {column} is empty; {_RUN}")
    return value
