"""From records of small, separate measurements to the pipelines of `wallclock.predict`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log2

import numpy as np

from experiments import _common
from experiments._common import Cell, Recipe, Record, Records, Row
from wallclock.clock import LOADING_STAGES
from wallclock.predict import JobSetup, Machine, Pipeline, StageCosts, StepTime
from wallclock.predict.costs import BatchTransfer
from wallclock.predict.model import Prediction
from wallclock.recipe import ENGINES, ModelSpec

#: The choices of a recipe that the cost of loading an image depends on.
LOADER_FIELDS = (
    "decoder",
    "resizer",
    "interpolation",
    "dct_scale",
    "progressive",
    "normalize_on",
    "augment",
)
#: The parts of a training step that are its time on the device; an embedding's has the one.
_ON_DEVICE = ("augment", "forward", "backward", "optimizer")


class NoCostsError(Exception):
    """A cost that a prediction needs was not measured. The message says which."""


@dataclass(frozen=True)
class Costs:
    """The costs of a run: records of the protocols `contention`, `batch_transfer` and `step`.

    Of a training, `train_step` instead of the last.
    """

    records: Records

    def pipeline(self, cell: Cell) -> Pipeline:
        """The pipeline of an end-to-end cell, or of one that only loads (protocol `loading`).

        Raises:
            NoCostsError: a cost was not measured.
        """
        recipe, model = cell.recipe, cell.model
        loading = self._loading(cell)
        cores = int(loading.environment["machine"]["cores"])
        costs, contention = _loading_costs(loading)
        step_time = StepTime()
        forward_cores = 0
        if cell.params.get("finish") == "device":
            costs = replace(costs, h2d_s=around_forward(self.step_record(recipe, model))["h2d_s"])
        if cell.protocol != "loading":
            step = self.step_record(recipe, model)
            costs = replace(costs, **around_forward(step))
            step_time = _step_time(step, model, recipe.batch_size)
            if recipe.device == "cpu" and model.weights != "none":
                forward_cores = int(step.values.get("torch_threads", 1))
        machine = Machine(cores, None, forward_cores > 0, max(forward_cores, 1), contention)
        if recipe.device == "cuda" and cell.protocol != "loading" and model.weights != "none":
            machine = replace(machine, gpu=True)
        workers = worker_count(recipe, cores)
        batch_transfer, assemble_s = self._batch_transfer(recipe.batch_size)
        if recipe.engine == "dataloader" and recipe.workers:
            costs = replace(costs, assemble_s=assemble_s)
        setup = JobSetup(workers, recipe.batch_size, recipe.engine)
        if cell.params.get("page_cache") == "cold" and loading.values["page_cache"] == "warm":
            readers = workers if setup.overlaps else 1
            costs, machine = self._cold(cell, costs, machine, readers)
        return Pipeline(costs, step_time, machine, setup, batch_transfer)

    def _loading(self, cell: Cell) -> Record:
        """The loading costs of this loader on these images, at the nearest batch size."""
        recipe, images = cell.recipe, cell.images
        if recipe.engine not in ENGINES:
            raise NoCostsError(
                f"{recipe.engine} is one call: its parts cannot be measured separately"
            )
        if cell.params.get("subset", "all") != "all":
            raise NoCostsError(f"no cost of the {cell.params['subset']} images alone was measured")
        loader = [getattr(recipe, name) for name in LOADER_FIELDS]
        # With larger batches the heap of a process gives its pages back and faults them in again.
        same = [
            record
            for record in self._records_of("contention")
            if (images.kind, images.image_set, images.storage)
            == (record.cell.images.kind, record.cell.images.image_set, record.cell.images.storage)
            and loader == [getattr(record.cell.recipe, name) for name in LOADER_FIELDS]
        ]
        missing = f"no cost of loading {images.image_set} with {'/'.join(loader)} was measured"
        size = recipe.batch_size
        return min(
            _measured(same, missing), key=lambda r: abs(log2(r.cell.recipe.batch_size / size))
        )

    def _cold(
        self, cell: Cell, costs: StageCosts, machine: Machine, readers: int
    ) -> tuple[StageCosts, Machine]:
        """What a reader waits for an image that is not in memory, and all readers' bandwidth."""
        same = [r for r in self._records_of("storage") if r.cell.images == cell.images]
        record = _measured(same, "no cold pass over the storage was measured")[0]
        n = record.values["n_loaded"]
        total = costs.image_bytes * n
        nearest = min(record.cell.params["readers"], key=lambda count: abs(count - readers))
        alone_s = _common.mean_ms(record, "cold-1") / 1e3
        together_s = _common.mean_ms(record, f"cold-{nearest}") / 1e3
        costs = replace(costs, wait_s=max(0.0, alone_s / n - costs.read_s))
        return costs, replace(machine, storage_bytes_per_s=total / together_s)

    def step_record(self, recipe: Recipe, model: ModelSpec) -> Record:
        """The step of this model, dtype and device.

        Raises:
            NoCostsError: it was not measured.
        """
        wanted = (model, recipe.dtype, recipe.device)
        same = [
            record
            for record in self._records_of("step", "train_step")
            if record.cell.model.weights == model.weights
            and (
                model.weights == "none"
                or (record.cell.model, record.cell.recipe.dtype, record.cell.recipe.device)
                == wanted
            )
        ]
        missing = f"no step time of {model.name} in {recipe.dtype} on {recipe.device} was measured"
        # With which dtype a batch crosses the bus, and whether the device augments it.
        crossing = recipe.normalize_on, recipe.augment == "device"
        return min(
            _measured(same, missing),
            key=lambda record: (
                (record.cell.recipe.normalize_on, record.cell.recipe.augment == "device")
                != crossing
            ),
        )

    def _batch_transfer(self, size: int) -> tuple[BatchTransfer, float]:
        """A batch's IPC cost, and seconds an image of assembling it in a worker, at this size."""
        missing = "no cost of transferring a batch between processes was measured"
        record = _measured(self._records_of("batch_transfer"), missing)[0]
        assembled, sent, received = (
            _between([(n, record.seconds_in(f"{end}-{n}")) for n in _sizes(record)], size)
            for end in ("assemble", "worker", "main")
        )
        return BatchTransfer(StepTime(sent), StepTime(received)), assembled / size

    def _records_of(self, *protocols: str) -> list[Record]:
        return [
            record
            for protocol in protocols
            for record in self.records
            if record.cell.protocol == protocol
        ]


def worker_count(recipe: Recipe, cores: int) -> int:
    """Its workers; without a number, the threads engine takes one for each core."""
    return recipe.workers or (cores if recipe.engine == "threads" else 0)


def step_recipes(recipe: Recipe, dtypes: Iterable[str]) -> list[Recipe]:
    """The recipes whose step is measured: each dtype, and on a GPU both dtypes of a batch.

    On a CPU nothing crosses a bus, and a forward pass takes seconds.
    """
    places = [("host", "")]
    if recipe.device == "cuda":
        places.append(("device", "-uint8"))
    return [
        replace(recipe, name=f"step-{dtype}{name}", dtype=dtype, normalize_on=place)
        for (place, name), dtype in product(places, dtypes)
    ]


def _measured(records: Records, missing: str) -> list[Record]:
    """Those with a measurement. Without one, NoCostsError: why they failed, or `missing`."""
    if measured := _common.measured(records):
        return measured
    raise NoCostsError(next((record.reason for record in records), missing))


def _sizes(record: Record) -> list[int]:
    return sorted(record.cell.params["batch_sizes"])


def _loading_costs(record: Record) -> tuple[StageCosts, tuple[tuple[int, float], ...]]:
    """An image's stages in one process alone, and the slowdown with several.

    With a warm page cache nothing waits but for a core: the stages then share out the CPU time
    instead of the wall time, in which other processes' work would count.
    """
    values = record.values
    costs = StageCosts.from_samples(record.samples, int(values["n_embedded"]), values["mean_bytes"])
    cpu_s = {int(count): float(seconds) for count, seconds in values["cpu_s"].items()}
    if values["page_cache"] == "warm":
        share = cpu_s[1] / costs.load_s
        names = [f"{stage}_s" for stage in LOADING_STAGES]
        costs = replace(costs, **{name: getattr(costs, name) * share for name in names})
    return costs, tuple((count, seconds / cpu_s[1]) for count, seconds in sorted(cpu_s.items()))


def _between(points: Sequence[tuple[int, float]], size: int) -> float:
    """Seconds of a batch of that size: on lines between those measured, in proportion beyond."""
    sizes, seconds = zip(*points, strict=True)
    nearest = min(max(size, sizes[0]), sizes[-1])
    return float(np.interp(nearest, sizes, seconds) * size / nearest)


def batch_s(record: Record, stage: str, size: int) -> float:
    """Mean seconds of a batch in a stage; a training's `forward` is all of its step. 0: absent."""
    parts = [f"{part}-{size}" for part in (_ON_DEVICE if stage == "forward" else (stage,))]
    return sum(_common.mean_ms(record, part) for part in parts if part in record.samples) / 1e3


def _step_time(record: Record, model: ModelSpec, size: int) -> StepTime:
    """The forward pass of a batch of that size; for the mock model: its configured time plus sleep
    overhead.

    The fitted line separates what every batch pays from what every image pays. At this batch size
    the time is the measured one, or between the two nearest: caches and allocators do not follow a
    line.
    """
    sizes = _sizes(record)
    if model.weights == "none":
        overhead_s = batch_s(record, "forward", sizes[0]) - record.cell.model.service_ms / 1e3
        batch_time_s = model.service_ms / 1e3 + max(0.0, overhead_s)
        return StepTime(batch_time_s, model.service_ms_per_image / 1e3)
    points = [(measured, batch_s(record, "forward", measured)) for measured in sizes]
    taken_s = _between(points, size)
    fixed_s = min(StepTime.fit(points).fixed_s, taken_s)
    return StepTime(fixed_s, (taken_s - fixed_s) / size)


def around_forward(record: Record) -> dict[str, float]:
    """Seconds an image of the batch stages around the forward pass, at the largest batch."""
    size = _sizes(record)[-1]
    return {
        f"{stage}_s": batch_s(record, stage, size) / size for stage in ("h2d", "d2h", "serialize")
    }


def prediction_columns(expected: Prediction) -> Row:
    """A prediction in the columns of `prediction.csv`."""
    names = ("img_per_s", "bottleneck", "accelerator_utilization", "accelerator_bound")
    return {
        **{name: getattr(expected, name) for name in names},
        "img_per_s_low": expected.low,
        "img_per_s_high": expected.high,
        **{f"{name}_img_per_s": rate for name, rate in expected.supply.items()},
    }
