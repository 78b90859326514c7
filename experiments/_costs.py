"""From records of small, separate measurements to the inputs of `wallclock.predict`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import NamedTuple

from experiments import _rows
from wallclock.clock import LOADING_STAGES
from wallclock.predict import BatchTransfer, JobSetup, Machine, StageCosts, StepTime, fit_step_time
from wallclock.predict.costs import interpolate
from wallclock.records import Record
from wallclock.spec import ENGINES, Cell, ModelSpec, Recipe

#: The choices of a recipe that the cost of loading an image depends on.
LOADER_FIELDS = ("decoder", "resizer", "interpolation", "dct_scale", "normalize_on")


class NoCostsError(Exception):
    """A cost that a prediction needs was not measured. The message says which."""


class Inputs(NamedTuple):
    """The arguments of `wallclock.predict`'s functions for one cell."""

    costs: StageCosts
    step: StepTime
    machine: Machine
    setup: JobSetup
    batch_transfer: BatchTransfer


@dataclass(frozen=True)
class Costs:
    """The costs of a run: records of the protocols `contention`, `batch_transfer` and `step`."""

    records: Sequence[Record]

    def inputs(self, cell: Cell) -> Inputs:
        """The inputs for an end-to-end cell, or a cell that only loads (protocol `loading`).

        Raises:
            NoCostsError: a cost was not measured.
        """
        recipe, model = cell.recipe, cell.model
        loading = self._loading(cell)
        cores = int(loading.environment["machine"]["cores"])
        costs, contention = _loading_costs(loading)
        step_time, forward_cores = StepTime(), 0
        if cell.protocol != "loading":
            step = self._step(recipe, model)
            costs = replace(costs, **_around_forward(step))
            step_time = _step_time(step, model, recipe.batch_size)
            if recipe.device == "cpu" and model.weights != "none":
                forward_cores = int(step.values.get("torch_threads", 1))
        machine = Machine(cores, None, forward_cores > 0, max(forward_cores, 1), contention)
        engine = "threads" if recipe.engine == "threads" else "dataloader"
        # Without a number, the threads engine takes one worker for each core.
        workers = recipe.workers or (cores if engine == "threads" else 0)
        batch_transfer, assemble_s = self._batch_transfer(recipe.batch_size)
        if recipe.engine == "dataloader" and recipe.workers:
            costs = replace(costs, assemble_s=assemble_s)
        setup = JobSetup(workers, recipe.batch_size, engine)
        return Inputs(costs, step_time, machine, setup, batch_transfer)

    def _loading(self, cell: Cell) -> Record:
        """The loading costs of this loader on these images, at the nearest batch size."""
        recipe, images = cell.recipe, cell.images
        if recipe.engine not in ENGINES:
            raise NoCostsError(
                f"{recipe.engine} is one call: its parts cannot be measured separately"
            )
        if cell.params.get("subset", "all") != "all":
            raise NoCostsError(f"no cost of the {cell.params['subset']} images alone was measured")
        # With larger batches the heap of a process gives its pages back and faults them in again.
        same = [
            record
            for record in self._of("contention")
            if _corpus(record.cell) == _corpus(cell)
            and _loader(record.cell.recipe) == _loader(recipe)
        ]
        if not same:
            loader = "/".join(_loader(recipe))
            raise NoCostsError(f"no cost of loading {images.image_set} with {loader} was measured")
        size = recipe.batch_size
        return min(same, key=lambda record: abs(log2(record.cell.recipe.batch_size / size)))

    def _step(self, recipe: Recipe, model: ModelSpec) -> Record:
        wanted = (model, recipe.dtype, recipe.device)
        for record in self._of("step"):
            timed = record.cell
            if timed.model.weights == model.weights and (
                model.weights == "none"
                or (timed.model, timed.recipe.dtype, timed.recipe.device) == wanted
            ):
                return record
        raise NoCostsError(
            f"no step time of {model.name} in {recipe.dtype} on {recipe.device} was measured"
        )

    def _batch_transfer(self, size: int) -> tuple[BatchTransfer, float]:
        """A batch's IPC cost, and seconds an image of assembling it in a worker, at this size."""
        for record in self._of("batch_transfer"):
            assembled, sent, received = (
                _between([(n, record.seconds_in(f"{end}-{n}")) for n in _sizes(record)], size)
                for end in ("assemble", "worker", "main")
            )
            return BatchTransfer(StepTime(sent), StepTime(received)), assembled / size
        raise NoCostsError("no cost of transferring a batch between processes was measured")

    def _of(self, protocol: str) -> list[Record]:
        return [record for record in self.records if record.cell.protocol == protocol and record.ok]


def _corpus(cell: Cell) -> tuple[str, str, str]:
    return cell.images.kind, cell.images.image_set, cell.images.storage


def _loader(recipe: Recipe) -> tuple[str, ...]:
    return tuple(getattr(recipe, name) for name in LOADER_FIELDS)


def _sizes(record: Record) -> list[int]:
    return sorted(record.cell.params["batch_sizes"])


def _loading_costs(record: Record) -> tuple[StageCosts, tuple[tuple[int, float], ...]]:
    """An image's stages in one process alone, and the slowdown with several.

    With a warm page cache nothing waits but for a core: the stages then share out the CPU time
    instead of the wall time, in which other processes' work would count.
    """
    values = record.values
    costs = StageCosts.of(record.samples, int(values["n_embedded"]), values["mean_bytes"])
    cpu_s = {int(count): float(seconds) for count, seconds in values["cpu_s"].items()}
    if values["page_cache"] == "warm":
        share = cpu_s[1] / costs.load_s
        names = [f"{stage}_s" for stage in LOADING_STAGES]
        costs = replace(costs, **{name: getattr(costs, name) * share for name in names})
    return costs, tuple((count, seconds / cpu_s[1]) for count, seconds in sorted(cpu_s.items()))


def _between(points: Sequence[tuple[int, float]], size: int) -> float:
    """Seconds of a batch of that size: on lines between those measured, in proportion beyond."""
    nearest = min(max(size, points[0][0]), points[-1][0])
    return interpolate(points, nearest) * size / nearest


def _batch_s(record: Record, stage: str, size: int) -> float:
    return _rows.mean_ms(record, f"{stage}-{size}") / 1e3


def _step_time(record: Record, model: ModelSpec, size: int) -> StepTime:
    """The forward pass of a batch of that size; for the mock model: its configured time plus sleep
    overhead.

    The fitted line separates what every batch pays from what every image pays. At this batch size
    the time is the measured one, or between the two nearest: caches and allocators do not follow a
    line.
    """
    sizes = _sizes(record)
    if model.weights == "none":
        configured, per_image = model.service_ms / 1e3, model.service_ms_per_image / 1e3
        overhead = _batch_s(record, "forward", sizes[0]) - record.cell.model.service_ms / 1e3
        return StepTime(configured + max(0.0, overhead), per_image)
    points = [(known, _batch_s(record, "forward", known)) for known in sizes]
    batch_s = _between(points, size)
    fixed_s = min(fit_step_time(points).fixed_s, batch_s)
    return StepTime(fixed_s, (batch_s - fixed_s) / size)


def _around_forward(record: Record) -> dict[str, float]:
    """Seconds an image of the batch stages around the forward pass, at the largest batch."""
    size = _sizes(record)[-1]
    return {
        f"{stage}_s": _batch_s(record, stage, size) / size for stage in ("h2d", "d2h", "serialize")
    }
