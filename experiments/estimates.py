"""From a diagnosis's records to what the model of `wallclock.predict` takes, and back to the nine stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from experiments import rows
from experiments.fixes import loader_key
from wallclock import predict
from wallclock.clock import STAGES
from wallclock.predict import Handover, Machine, Prediction, StageCosts, StepTime
from wallclock.records import Record
from wallclock.spec import Recipe
from wallclock.summary import median

_LOADING = ("read", "decode", "resize", "normalize", "assemble")
_DEVICE = ("h2d", "forward", "d2h")

#: The least that a prediction can be off: a machine's own unrest, and what the model leaves out.
_UNCERTAINTY = 0.1

#: The stages behind each resource that can bind.
_BEHIND = {
    "accelerator": ("forward",),
    "h2d": ("h2d",),
    "main": ("d2h", "serialize"),
    "transform": _LOADING,
    "storage": ("read",),
}


class Estimates:
    """The costs that serial passes, step times and contention measured, by recipe.

    Args:
        records: of a diagnosis; end-to-end ones are not looked at.
        present: the recipe that everything is compared with.
    """

    def __init__(self, records: Sequence[Record], present: Recipe) -> None:
        self.present = present
        self._passes: dict[tuple[Any, ...], list[Record]] = {}
        for record in records:
            if record.cell.protocol == "serial" and record.cell.recipe:
                self._passes.setdefault(loader_key(record.cell.recipe), []).append(record)
        steps = [record for record in records if record.cell.protocol == "step"]
        self._step = next((record for record in steps if record.ok), steps[0] if steps else None)
        self._step_samples = _pooled(steps)
        self._company = next((record for record in records if record.cell.protocol == "contention"), None)

    def missing(self, recipe: Recipe) -> str:
        """Why nothing can be said of a recipe; empty if something can."""
        passes = self._passes.get(loader_key(recipe), [])
        if not any(record.ok for record in passes):
            return passes[0].reason if passes else "its serial pass is not measured"
        if self._step is None or not self._step.ok:
            return self._step.reason if self._step else "its forward pass is not measured"
        return "" if self._points("forward", recipe.dtype) else f"no forward pass in {recipe.dtype} was measured"

    def prediction(self, recipe: Recipe) -> Prediction:
        """What the recipe will bring end to end."""
        return self._predicted(recipe, self._costs(recipe), self._step_time(recipe))

    def without(self, recipe: Recipe, stage: str) -> float:
        """How many times faster it would be if a stage took no time at all."""
        costs, step = self._costs(recipe), self._step_time(recipe)
        if stage == "forward":
            return self.prediction(recipe).accelerator_bound
        freed = replace(costs, **{f"{stage}_s": 0.0})
        return self._predicted(recipe, freed, step).img_per_s / self.prediction(recipe).img_per_s

    def seconds(self, recipe: Recipe) -> dict[str, float]:
        """Seconds of an image in each stage, one after the other."""
        costs = self._costs(recipe)
        found = {stage: float(getattr(costs, f"{stage}_s")) for stage in STAGES if stage != "forward"}
        found["forward"] = self._step_time(recipe).batch_s(recipe.batch_size) / recipe.batch_size
        return {stage: found[stage] for stage in STAGES}

    def binding(self, recipe: Recipe) -> str:
        """The stage that sets the pace: the longest of those behind the resource that binds."""
        seconds = self.seconds(recipe)
        return max(_BEHIND[self.prediction(recipe).bottleneck], key=lambda stage: seconds[stage])

    def limits(self, recipe: Recipe) -> dict[str, object]:
        """The workers that would keep the device busy, and the batch above which loading binds; None for never."""
        arguments = (self._costs(recipe), self._step_time(recipe), self._machine, self._setup(recipe), self._handover)
        crossover = predict.crossover_batch(*arguments)
        return {"workers_to_saturate": predict.workers_to_saturate(*arguments), "crossover_batch": crossover}

    def _predicted(self, recipe: Recipe, costs: StageCosts, step: StepTime) -> Prediction:
        return predict.predict(
            costs, step, self._machine, self._setup(recipe), self._handover, self._uncertainty(recipe)
        )

    def _setup(self, recipe: Recipe) -> predict.Setup:
        return predict.Setup(recipe.workers, recipe.batch_size, recipe.engine)

    def _pass(self, recipe: Recipe) -> Record:
        return rows.median_pass(self._passes[loader_key(recipe)])

    def _costs(self, recipe: Recipe) -> StageCosts:
        chosen = self._pass(recipe)
        n = chosen.values["n_embedded"]
        measured = {f"{stage}_s": chosen.seconds_in(stage) / n for stage in (*_LOADING, "serialize")}
        for stage in ("h2d", "d2h"):
            size, seconds = max(self._points(stage, recipe.dtype))
            measured[f"{stage}_s"] = seconds / size
        return StageCosts(**measured, variation=_variation(chosen))

    def _step_time(self, recipe: Recipe) -> StepTime:
        return predict.fit_step_time(self._points("forward", recipe.dtype))

    def _points(self, stage: str, dtype: str) -> list[tuple[int, float]]:
        """(batch size, median seconds of a batch)."""
        return _by_number(self._step_samples, f"{stage} {dtype} ")

    @cached_property
    def _machine(self) -> Machine:
        assert self._step is not None
        cell = self._step.cell
        on_cpu = self.present.device == "cpu" and cell.model is not None and cell.model.weights != "none"
        company = dict(_by_number(self._company.samples, "load ")) if self._company and self._company.ok else {}
        return Machine(
            cores=self._step.environment["machine"]["cores"],
            shares_cores=on_cpu,
            forward_cores=self._step.values.get("torch_threads", 1) if on_cpu else 1,
            contention=tuple((count, seconds / company[1]) for count, seconds in sorted(company.items())),
        )

    @cached_property
    def _handover(self) -> Handover | None:
        if self._company is None or not self._company.ok:
            return None
        give, take = (_by_number(self._company.samples, f"{word} ") for word in ("give", "take"))
        return Handover(predict.fit_step_time(give), predict.fit_step_time(take))

    def _uncertainty(self, recipe: Recipe) -> float:
        """Half the range of the serial passes on top of the least."""
        walls = [rows.wall_s(record) for record in self._passes[loader_key(recipe)] if record.ok]
        return min(0.5, _UNCERTAINTY + (max(walls) - min(walls)) / (max(walls) + min(walls)))


def _pooled(records: Sequence[Record]) -> dict[str, list[int]]:
    """The samples of all repeats together."""
    found: dict[str, list[int]] = {}
    for record in records:
        for name, values in record.samples.items():
            found.setdefault(name, []).extend(values)
    return found


def _by_number(samples: Mapping[str, Sequence[int]], prefix: str) -> list[tuple[int, float]]:
    """(n, median seconds) of the samples called '<prefix><n>'; at least a nanosecond each."""
    return sorted(
        (int(name.removeprefix(prefix)), max(median(values), 1.0) / 1e9)
        for name, values in samples.items()
        if name.startswith(prefix)
    )


def _variation(record: Record) -> float:
    """Standard deviation over mean of an image's decode and resize; 0 where a failure shifted the two."""
    decode, resize = (np.asarray(record.samples.get(stage, ()), dtype=np.float64) for stage in ("decode", "resize"))
    if len(decode) != len(resize) or not len(decode):
        return 0.0
    both = decode + resize
    return float(both.std() / both.mean())
