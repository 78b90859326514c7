"""From records of small, separate measurements to what `wallclock.predict` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log2

from wallclock.predict import Handover, Machine, Setup, StageCosts, StepTime, fit_step_time
from wallclock.predict.costs import ENGINES
from wallclock.records import Record
from wallclock.spec import Cell, ModelSpec, Recipe

#: The part of a recipe that the cost of loading an image depends on, beside the images themselves.
LOADER_FIELDS = ("decoder", "resizer", "interpolation", "dct_scale", "normalize_on")


class NoCostsError(Exception):
    """A cost that a prediction needs was not measured. The message says which."""


@dataclass(frozen=True)
class Inputs:
    """All that a prediction of one cell takes."""

    costs: StageCosts
    step: StepTime
    machine: Machine
    setup: Setup
    batch_transfer: Handover


@dataclass(frozen=True)
class Costs:
    """The costs that a run measured: records of the protocols `contention`, `batch_transfer` and `step`."""

    records: Sequence[Record]

    def inputs(self, cell: Cell) -> Inputs:
        """What predicts an end-to-end cell, or a cell whose loader has no consumer (protocol `loading`).

        Raises:
            NoCostsError: a cost was not measured.
        """
        recipe, model = cell.recipe, cell.model
        if recipe is None or model is None or cell.corpus is None:
            raise NoCostsError("not an end-to-end cell")
        loading = self._loading(cell, recipe)
        cores = int(loading.environment["machine"]["cores"])
        costs, contention = _loading_costs(loading)
        step_time, forward_cores = StepTime(), 0
        if cell.protocol != "loading":
            step = self._step(recipe, model)
            costs, step_time = (
                replace(costs, **_tail(step)),
                _step_time(step, model, recipe.batch_size),
            )
            if recipe.device == "cpu" and model.weights != "none":
                forward_cores = int(step.values.get("torch_threads", 1))
        machine = Machine(cores, None, forward_cores > 0, max(forward_cores, 1), contention)
        # Without a number, the threads engine takes one worker for each core.
        workers = recipe.workers or (cores if recipe.engine == "threads" else 0)
        setup = Setup(
            workers, recipe.batch_size, "threads" if recipe.engine == "threads" else "dataloader"
        )
        batch_transfer, assemble_s = self._handover(recipe.batch_size)
        if recipe.engine == "dataloader" and recipe.workers:
            costs = replace(costs, assemble_s=assemble_s)
        return Inputs(costs, step_time, machine, setup, batch_transfer)

    def _loading(self, cell: Cell, recipe: Recipe) -> Record:
        assert cell.corpus is not None
        if recipe.engine not in ENGINES:
            raise NoCostsError(
                f"{recipe.engine} is one call: what its parts cost cannot be measured apart"
            )
        if cell.params.get("subset", "all") != "all":
            raise NoCostsError(f"no cost of the {cell.params['subset']} images alone was measured")
        wanted = [getattr(recipe, name) for name in LOADER_FIELDS]
        found: dict[float, Record] = {}
        for record in self._of("contention"):
            if _place(record.cell) != _place(cell):
                continue
            if [getattr(record.cell.recipe, name) for name in LOADER_FIELDS] == wanted:
                # The heap of a process that makes larger batches gives its pages back and faults them in again.
                found.setdefault(
                    abs(log2(record.cell.recipe.batch_size / recipe.batch_size)), record
                )
        if found:
            return found[min(found)]
        raise NoCostsError(
            f"no cost of loading {cell.corpus.image_set} with {'/'.join(wanted)} was measured"
        )

    def _step(self, recipe: Recipe, model: ModelSpec) -> Record:
        for record in self._of("step"):
            found, used = record.cell.recipe, record.cell.model
            if found is None or used is None or used.weights != model.weights:
                continue
            if model.weights == "none" or (used, found.dtype, found.device) == (
                model,
                recipe.dtype,
                recipe.device,
            ):
                return record
        raise NoCostsError(
            f"no step time of {model.name} in {recipe.dtype} on {recipe.device} was measured"
        )

    def _handover(self, size: int) -> tuple[Handover, float]:
        """A batch's way between processes, and seconds an image of assembling it in a worker, at this batch size."""
        for record in self._of("batch_transfer"):
            sizes = sorted(record.cell.params["batch_sizes"])
            assembled, sent, taken = (
                _between([(known, record.seconds_in(f"{end}-{known}")) for known in sizes], size)
                for end in ("assemble", "worker", "main")
            )
            return Handover(StepTime(sent), StepTime(taken)), assembled / size
        raise NoCostsError("no cost of handing a batch over was measured")

    def _of(self, protocol: str) -> list[Record]:
        return [record for record in self.records if record.cell.protocol == protocol and record.ok]


def _loading_costs(record: Record) -> tuple[StageCosts, tuple[tuple[int, float], ...]]:
    """An image's stages in one process alone, and how much longer they take beside others.

    From a warm page cache nothing waits but for a core: the stages then share out the processor's time
    instead of the clock's, in which a neighbour's work would count.
    """
    costs = StageCosts.of(
        record.samples, int(record.values["n_embedded"]), record.values["mean_bytes"]
    )
    spent = {int(count): float(seconds) for count, seconds in record.values["cpu_s"].items()}
    if record.values["page_cache"] == "warm":
        share = spent[1] / costs.load_s
        stages = ("read_s", "decode_s", "resize_s", "normalize_s", "assemble_s")
        costs = replace(costs, **{name: getattr(costs, name) * share for name in stages})
    return costs, tuple((count, seconds / spent[1]) for count, seconds in sorted(spent.items()))


def _place(cell: Cell) -> tuple[str, str, str]:
    assert cell.corpus is not None
    return cell.corpus.kind, cell.corpus.image_set, cell.corpus.storage


def _between(points: Sequence[tuple[int, float]], size: int) -> float:
    """Seconds of a batch of that size: on straight lines between those measured, in proportion beyond."""
    for (low, at_low), (high, at_high) in pairwise(points):
        if low <= size <= high:
            return at_low + (at_high - at_low) * (size - low) / (high - low)
    known, seconds = points[0] if size < points[0][0] else points[-1]
    return seconds * size / known


def _mean_s(record: Record, stage: str, size: int) -> float:
    samples = record.samples[f"{stage}-{size}"]
    return sum(samples) / len(samples) / 1e9


def _step_time(record: Record, model: ModelSpec, size: int) -> StepTime:
    """The forward pass of a batch of that size; a mock model's is what it was told, and what its sleep adds to that.

    The fitted line tells what every batch pays from what every image pays. At this batch size the time is the
    measured one, or lies between the two beside it: caches and allocators do not follow a line.
    """
    sizes = sorted(record.cell.params["batch_sizes"])
    if model.weights == "none":
        late = _mean_s(record, "forward", sizes[0]) - record.cell.model.service_ms / 1e3
        return StepTime(model.service_ms / 1e3 + max(0.0, late), model.service_ms_per_image / 1e3)
    points = [(known, _mean_s(record, "forward", known)) for known in sizes]
    fitted, measured = fit_step_time(points), _between(points, size)
    startup = min(fitted.startup_s, measured)
    return StepTime(startup, (measured - startup) / size)


def _tail(record: Record) -> dict[str, float]:
    """Seconds an image of the batch stages around the forward pass, at the largest batch."""
    size = max(record.cell.params["batch_sizes"])
    return {
        f"{stage}_s": _mean_s(record, stage, size) / size for stage in ("h2d", "d2h", "serialize")
    }
