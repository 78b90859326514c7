"""From records of small, separate measurements to the pipelines of `harness.pipeline_model`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import exp, inf, log, log2
from typing import NamedTuple

import numpy as np

from experiments import common
from experiments.common import Cell, Recipe, Record, Records
from harness.measures import median
from harness.pipeline_model import JobSetup, Machine, Pipeline, StageCosts, StepTime
from harness.pipeline_model.costs import BatchTransfer
from wallclock.clock import LOADING_STAGES
from wallclock.predict.intervals import Gain, gain
from wallclock.recipe import ModelSpec

#: Passes over the costs, apart in time, that say how far they spread.
LEAST_PASSES = 3

#: The choices of a recipe that the cost of loading an image depends on.
LOADER_FIELDS = ("decoder", "resizer", "interpolation", "dct_scale", "normalize_on", "augment")


class NoCostsError(Exception):
    """A cost that a prediction needs was not measured. The message says which."""


class Passes(NamedTuple):
    """A job's pipeline from each pass over the costs, by the repeat of their cells."""

    pipelines: Mapping[int, Pipeline]

    @property
    def middle(self) -> Pipeline:
        """Of the pass with the median rate; of an even number, the slower of the middle two."""
        ordered = sorted(self.pipelines.values(), key=Pipeline.rate)
        return ordered[(len(ordered) - 1) // 2]

    @property
    def spread(self) -> float:
        """How far the farthest of the rates is from the median, as a factor less 1."""
        rates = [pipeline.rate() for pipeline in self.pipelines.values()]
        middle = float(np.median(rates))
        return max(exp(abs(log(rate / middle))) - 1 for rate in rates)

    def gain_over(self, base: "Passes") -> Gain:
        """The speedup over another job, pass by pass."""
        both = sorted(self.pipelines.keys() & base.pipelines)
        before, after = ([job.pipelines[repeat].rate() for repeat in both] for job in (base, self))
        return gain(before, after)


def workers_to_saturate(pipeline: Pipeline) -> int | None:
    """The fewest workers that saturate the main process; None if cores or storage cannot.

    Where the forward pass runs on the loaders' cores, they need only saturate those cores.
    """
    for workers in range(1, 2 * pipeline.machine.cores + 1):
        supply = replace(pipeline, setup=replace(pipeline.setup, workers=workers)).supply()
        demanding = ("main", "cores") if pipeline.machine.shares_cores else ("main",)
        demand, possible = (
            min(supply.get(name, inf) for name in names)
            for names in (demanding, ("transform", "storage", "cores"))
        )
        if possible >= demand * (1 - 1e-9):
            return workers
    return None


@dataclass(frozen=True)
class Costs:
    """The costs of a run: records of the protocols `contention`, `batch_transfer` and `step`.

    `repeat`: the pass that is taken, where a cost was measured in several passes apart in time;
    None: the first.
    """

    records: Records
    repeat: int | None = None

    def by_pass(self) -> dict[int, "Costs"]:
        """The costs of each pass, by the repeat of its cells."""
        repeats = sorted({record.cell.repeat for record in self.records if is_cost(record)})
        return {repeat: replace(self, repeat=repeat) for repeat in repeats}

    def pipeline(self, cell: Cell) -> Pipeline:
        """The pipeline of an end-to-end cell, or of one that only loads (protocol `loading`).

        Raises:
            NoCostsError: a cost was not measured.
        """
        recipe, model = cell.recipe, cell.model
        loading = self._loading(cell)
        cores = int(loading.environment["machine"]["cores"])
        costs, contention = _loading_costs(loading), self._contention(loading)
        step_time = StepTime()
        forward_cores = 0
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

    def _contention(self, loading: Record) -> tuple[tuple[int, float], ...]:
        """By the number of processes, how much more core time an image costs than in one alone.

        The median over the passes of this loader. A single pass's factor is off by as much as it
        says: with fewer than three, all loaders' passes count, since caches, bandwidth and switches
        are the machine's.
        """
        measured = common.measured([r for r in self.records if r.cell.protocol == "contention"])
        same = [r for r in measured if replace(r.cell, repeat=0) == replace(loading.cell, repeat=0)]
        factors: dict[int, list[float]] = {}
        for record in same if len(same) >= LEAST_PASSES else measured:
            seconds = record.values["cpu_s"]
            for count, spent in seconds.items():
                factors.setdefault(int(count), []).append(spent / seconds["1"])
        return tuple((count, median(factors[count])) for count in sorted(factors))

    def _loading(self, cell: Cell) -> Record:
        """The loading costs of this loader on these images, at the nearest batch size."""
        recipe, images = cell.recipe, cell.images
        if recipe.preprocess != Recipe.preprocess:
            raise NoCostsError(f"no cost of preprocess={recipe.preprocess} was measured")
        loader = [getattr(recipe, name) for name in LOADER_FIELDS]
        allocator = cell.params.get("allocator")
        # With larger batches the heap of a process gives its pages back and faults them in again.
        same = [
            record
            for record in self._records_of("contention")
            if (images.kind, images.image_set, images.storage)
            == (record.cell.images.kind, record.cell.images.image_set, record.cell.images.storage)
            and loader == [getattr(record.cell.recipe, name) for name in LOADER_FIELDS]
            and allocator == record.cell.params.get("allocator", allocator)
        ]
        missing = f"no cost of loading {images.image_set} with {'/'.join(loader)} was measured"
        if allocator not in (None, "default"):
            missing += f", allocator={allocator}"
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
        alone_s = common.mean_ms(record, "cold-1") / 1e3
        together_s = common.mean_ms(record, f"cold-{nearest}") / 1e3
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
            for record in self._records_of("step")
            if record.cell.model.weights == model.weights
            and (
                model.weights == "none"
                or (record.cell.model, record.cell.recipe.dtype, record.cell.recipe.device)
                == wanted
            )
        ]
        missing = f"no step time of {model.name} in {recipe.dtype} on {recipe.device} was measured"
        # With which dtype a batch crosses the bus.
        place = recipe.normalize_on
        return min(_measured(same, missing), key=lambda r: r.cell.recipe.normalize_on != place)

    def _batch_transfer(self, size: int) -> tuple[BatchTransfer, float]:
        """A batch's IPC cost, and seconds per image of assembling it in a worker, at this size."""
        missing = "no cost of transferring a batch between processes was measured"
        record = _measured(self._records_of("batch_transfer"), missing)[0]
        assembled, sent, received = (
            _between([(n, record.seconds_in(f"{end}-{n}")) for n in _sizes(record)], size)
            for end in ("assemble", "worker", "main")
        )
        return BatchTransfer(StepTime(sent), StepTime(received)), assembled / size

    def _records_of(self, protocol: str) -> list[Record]:
        """Those of the pass; of a protocol that was measured once, these."""
        same = [record for record in self.records if record.cell.protocol == protocol]
        return [record for record in same if record.cell.repeat == self.repeat] or same


def is_cost(record: Record) -> bool:
    """Whether a record is of a cost that predictions are made from."""
    return record.cell.protocol in ("contention", "batch_transfer", "step")


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
    if measured := common.measured(records):
        return measured
    raise NoCostsError(next((record.reason for record in records), missing))


def _sizes(record: Record) -> list[int]:
    return sorted(record.cell.params["batch_sizes"])


def _loading_costs(record: Record) -> StageCosts:
    """An image's stages in one process alone, each image counted once.

    With a warm page cache nothing waits but for a core: the stages then share out the CPU time
    instead of the wall time, in which other processes' work would count.
    """
    values, samples = record.values, record.samples
    n_calls = int(values["n_embedded"])
    per_image = {name: samples[name] for name in LOADING_STAGES[:-1] if len(samples.get(name, ()))}
    each = {name: _by_image(times, record.cell.images.n) for name, times in per_image.items()}
    seconds = {f"{name}_s": float(times.mean()) for name, times in each.items()}
    seconds["assemble_s"] = record.seconds_in("assemble") / n_calls
    share = 1.0
    if values["page_cache"] == "warm":
        spent = sum(record.seconds_in(name) for name in LOADING_STAGES)
        share = float(values["cpu_s"]["1"]) * n_calls / spent
    costs = StageCosts(
        **{name: share * taken for name, taken in seconds.items()}, image_bytes=values["mean_bytes"]
    )
    loads = np.sum([*each.values()], axis=0)
    return replace(costs, variation=float(loads.std() / loads.mean()))


def _by_image(times: Sequence[int], n: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Mean seconds of each image, from nanoseconds of the calls over `n` images in turn."""
    positions = np.arange(len(times)) % n
    return np.bincount(positions, np.asarray(times, float)) / np.bincount(positions) / 1e9


def _between(points: Sequence[tuple[int, float]], size: int) -> float:
    """Seconds of a batch of that size: on lines between those measured, in proportion beyond."""
    sizes, seconds = zip(*points, strict=True)
    nearest = min(max(size, sizes[0]), sizes[-1])
    return float(np.interp(nearest, sizes, seconds) * size / nearest)


def _batch_s(record: Record, stage: str, size: int) -> float:
    """Mean seconds of a batch in a stage."""
    return common.mean_ms(record, f"{stage}-{size}") / 1e3


def _step_time(record: Record, model: ModelSpec, size: int) -> StepTime:
    """The forward pass of a batch of that size; for the mock model: its configured time plus sleep
    overhead.

    The fitted line separates what every batch pays from what every image pays. At this batch size
    the time is the measured one, or between the two nearest: caches and allocators do not follow a
    line.
    """
    sizes = _sizes(record)
    if model.weights == "none":
        overhead_s = _batch_s(record, "forward", sizes[0]) - record.cell.model.service_ms / 1e3
        batch_time_s = model.service_ms / 1e3 + max(0.0, overhead_s)
        return StepTime(batch_time_s, model.service_ms_per_image / 1e3)
    points = [(measured, _batch_s(record, "forward", measured)) for measured in sizes]
    taken_s = _between(points, size)
    fixed_s = min(StepTime.fit(points).fixed_s, taken_s)
    return StepTime(fixed_s, (taken_s - fixed_s) / size)


def around_forward(record: Record) -> dict[str, float]:
    """Seconds an image of the batch stages around the forward pass, at the largest batch."""
    size = _sizes(record)[-1]
    return {
        f"{stage}_s": _batch_s(record, stage, size) / size for stage in ("h2d", "d2h", "serialize")
    }
