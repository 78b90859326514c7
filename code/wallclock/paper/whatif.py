"""What would another machine bring? Answers from a run's serial tables, every assumption said."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wallclock.clock import STAGES
from wallclock.errors import UserError
from wallclock.paper.csvfile import number, ok_rows, read_table
from wallclock.paper.labels import DECODERS, SETS
from wallclock.predict import (
    UNCERTAINTY,
    JobSetup,
    Machine,
    Prediction,
    StageCosts,
    StepTime,
    predict,
    workers_to_saturate,
)

TABLES = {"small_256": "t4-serial-stages.csv", "original": "t4-serial-stages-original.csv"}

#: Images a second of DINOv2-small's forward pass in FP16: the paper's T4, and that times the ratio of the two
#: data sheets' dense FP16 tensor TFLOPS (NVIDIA: T4 65; H100 SXM 989), which no real network quite reaches.
ACCELERATORS: Mapping[str, tuple[float, str]] = {
    "T4": (1006.0, "the paper's T4 in FP16: 1,006 img/s"),
    "H100": (
        1006.0 * 989 / 65,
        "the paper's T4 in FP16 × 989/65, the data sheets' dense FP16 TFLOPS: at best",
    ),
}
_GBIT = 1e9 / 8


@dataclass(frozen=True)
class Case:
    """One scenario: all that a prediction takes, its name, and what is assumed in it."""

    name: str
    costs: StageCosts
    step: StepTime
    machine: Machine
    setup: JobSetup
    assumed: str = ""

    def answer(self) -> Prediction:
        """What to expect."""
        return predict(self.costs, self.step, self.machine, self.setup)


@dataclass(frozen=True)
class Changes:
    """What an own scenario changes; None leaves a thing as it was measured."""

    cores: int | None = None
    workers: int | None = None
    batch: int | None = None
    storage_gbit: float | None = None
    image_mb: float | None = None
    accelerator: str | None = None

    @property
    def any(self) -> bool:
        """Whether there is anything to ask."""
        return any(value is not None for value in vars(self).values())


def cases(out: Path, image_set: str, decoder: str, own: Changes) -> list[Case]:
    """The run's own machine, then the scenarios, each against it.

    Raises:
        UserError: the run has no serial pass of these images with this decoder, or a change makes no sense.
    """
    now = _as_it_is(out, image_set, decoder)
    asked = {
        "twice the cores": Changes(cores=2 * now.machine.cores, workers=2 * now.machine.cores),
        "an H100": Changes(accelerator="H100"),
        "1 Gbit/s storage": Changes(storage_gbit=1),
        "H100, 1 Gbit/s": Changes(accelerator="H100", storage_gbit=1),
    }
    if image_set == "original":
        asked["images of 5 MB"] = Changes(image_mb=5)
    if own.any:
        asked["yours"] = own
    return [now, *(change(now, name, changes) for name, changes in asked.items())]


def change(case: Case, name: str, changes: Changes) -> Case:
    """A scenario with some things changed, and what that assumes.

    Raises:
        UserError: a change that makes no sense.
    """
    costs, step, machine, setup, assumed = case.costs, case.step, case.machine, case.setup, []
    try:
        if changes.cores is not None:
            machine = replace(machine, cores=changes.cores)
            if machine.shares_cores:
                step = StepTime(0.0, step.per_image_s * case.machine.cores / changes.cores)
                machine = replace(machine, forward_cores=changes.cores)
            assumed.append(
                "cores as fast, all of them usable" + ", forward too" * machine.shares_cores
            )
        setup = replace(
            setup,
            workers=_or(changes.workers, setup.workers),
            batch_size=_or(changes.batch, setup.batch_size),
        )
        if changes.storage_gbit is not None:
            machine = replace(machine, storage_bytes_per_s=changes.storage_gbit * _GBIT)
            assumed.append("every image is read once, at the full rate of the link")
        if changes.image_mb is not None:
            factor = changes.image_mb * 1e6 / costs.image_bytes
            grown = {
                f"{stage}_s": getattr(costs, f"{stage}_s") * factor
                for stage in ("read", "decode", "resize")
            }
            costs = replace(costs, image_bytes=changes.image_mb * 1e6, **grown)
            assumed.append(f"read, decode and resize cost {factor:.3g} times as much, as bytes do")
        if changes.accelerator is not None:
            rate, source = _accelerator(changes.accelerator, case)
            step, machine = (
                StepTime(0.0, 1 / rate),
                replace(machine, shares_cores=False, forward_cores=1),
            )
            assumed.append(source)
        return Case(name, costs, step, machine, setup, "; ".join(assumed))
    except (ValueError, ZeroDivisionError) as error:
        raise UserError(f"whatif: {error}") from error


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _accelerator(name: str, case: Case) -> tuple[float, str]:
    if name in ACCELERATORS:
        return ACCELERATORS[name]
    try:
        factor = float(name)
    except ValueError:
        raise UserError(
            f"whatif: --accelerator {name}: one of {', '.join(ACCELERATORS)}, or a factor"
        ) from None
    if not factor > 0:
        raise UserError(f"whatif: --accelerator {name}: a factor above 0")
    return (
        factor / case.step.per_image_s,
        f"a forward pass {factor:g} times as fast, on a device of its own",
    )


def _as_it_is(out: Path, image_set: str, decoder: str) -> Case:
    if image_set not in TABLES:
        raise UserError(f"whatif: --image-set {image_set}: one of {', '.join(TABLES)}")
    path = out / TABLES[image_set]
    run = "run python code/main.py --experiment serial"
    if not path.is_file():
        raise UserError(f"whatif: no {path}; {run}")
    measured = [row for row in ok_rows(read_table(path)) if row["recipe"] != "floor"]
    row = next((row for row in measured if row["decoder"] == decoder), None)
    if row is None:
        known = ", ".join(row["decoder"] for row in measured) or "none"
        raise UserError(
            f"whatif: no row with decoder={decoder} in {path.name} (there: {known}); {run}"
        )
    about = json.loads(path.with_suffix(".meta.json").read_text(encoding="utf-8"))
    cores = int(about["machine"]["cores"])
    n, per_image = _number(row, "n_images"), {}
    for stage in STAGES:
        per_image[f"{stage}_s"] = _number(row, f"{stage}_s") / n
    step = StepTime(0.0, per_image.pop("forward_s"))
    costs = StageCosts(**per_image, image_bytes=1e3 * _number(row, "median_kb"))
    shares = row["device_kind"] == "cpu" and row["weights"] != "none"
    machine = Machine(cores, None, shares, cores if shares else 1)
    setup = JobSetup(cores, int(_number(row, "batch_size")))
    return Case(
        "as it is", costs, step, machine, setup, f"{row['device']}; files in the page cache"
    )


def _number(row: Mapping[str, str], column: str) -> float:
    value = number(row[column])
    if value is None:
        raise UserError(f"whatif: the cell {column} is empty; run the experiment serial again")
    return value


def show(found: Sequence[Case], image_set: str, decoder: str, console: Console) -> None:
    """Print the answers, then what they rest on."""
    now = found[0]
    base = now.answer().img_per_s
    console.print(
        f"{SETS.get(image_set, image_set)}, {DECODERS.get(decoder, decoder)}, {now.setup.workers} DataLoader workers "
        f"(one a core), batch {now.setup.batch_size}: predicted, not measured",
        highlight=False, markup=False, style="bold", soft_wrap=True,
    )  # fmt: skip
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("what if", "img/s", "interval", "", "is_bottleneck", "busy", "workers"):
        table.add_column(
            heading,
            justify="left" if heading in ("what if", "is_bottleneck") else "right",
            overflow="fold",
        )
    for case in found:
        said = case.answer()
        enough = workers_to_saturate(case.costs, case.step, case.machine, case.setup)
        cells = (
            *(case.name, f"{said.img_per_s:,.1f}", f"{said.low:,.0f} – {said.high:,.0f}"),
            *(
                f"× {said.img_per_s / base:.2f}",
                said.bottleneck,
                f"{said.accelerator_utilization:.0%}",
            ),
            str(enough) if enough else "–",
        )
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    console.print(
        "\nAssumed throughout:", *_common(), sep="\n", highlight=False, markup=False, soft_wrap=True
    )
    for case in found:
        if case.assumed:
            console.print(
                f"- {case.name}: {case.assumed}", highlight=False, markup=False, soft_wrap=True
            )


def _common() -> Iterable[str]:
    return (
        "- busy: the accelerator's share of the time; workers: as many feed it, – where no number would",
        "- costs of the stages as this run's serial pass measured them, on one core, nothing beside it",
        "- loaders share the cores without slowing one another down, and a batch's hand-over costs nothing:",
        "  the experiment `predict` measures both, and its prediction.csv says how far such figures are off here",
        f"- the interval is what ± {UNCERTAINTY:.0%} on every cost does",
    )
