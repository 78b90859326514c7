"""A diagnosis's records, asked about a recipe: what it will bring, which stage binds, what a stage's time is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments._costs import Costs, Inputs, NoCostsError
from wallclock import predict
from wallclock.clock import STAGES
from wallclock.predict import Prediction
from wallclock.records import Record
from wallclock.spec import Cell, Recipe

_LOADING = ("read", "decode", "resize", "normalize", "assemble")

#: The stages behind each resource that can bind.
_BEHIND = {
    "accelerator": ("forward",),
    "h2d": ("h2d",),
    "main": ("d2h", "serialize"),
    "transform": _LOADING,
    "storage": ("read",),
}


class Estimates:
    """The costs that a diagnosis measured, for any recipe.

    Args:
        records: of a diagnosis; end-to-end ones are not looked at.
        like: a cell of it, for its images and its model.
        present: the recipe that everything is compared with.
    """

    def __init__(self, records: Sequence[Record], like: Cell, present: Recipe) -> None:
        self.present = present
        self._records = records
        self._costs = Costs(records)
        self._like = like

    def missing(self, recipe: Recipe) -> str:
        """Why nothing can be said of a recipe; empty if something can."""
        try:
            self._inputs(recipe)
        except NoCostsError as error:
            return next(
                (
                    record.reason
                    for record in self._records
                    if not record.ok and _of(record, recipe)
                ),
                str(error),
            )
        return ""

    def prediction(self, recipe: Recipe) -> Prediction:
        """What the recipe will bring end to end."""
        return _predicted(self._inputs(recipe))

    def without(self, recipe: Recipe, stage: str) -> float:
        """How many times faster it would be if a stage took no time at all."""
        given, now = self._inputs(recipe), self.prediction(recipe)
        if stage == "forward":
            return now.accelerator_bound
        freed = replace(given, costs=replace(given.costs, **{f"{stage}_s": 0.0}))
        return _predicted(freed).img_per_s / now.img_per_s

    def seconds(self, recipe: Recipe) -> dict[str, float]:
        """Seconds of an image in each stage, one after the other."""
        given = self._inputs(recipe)
        forward = given.step.batch_s(recipe.batch_size) / recipe.batch_size
        return {
            stage: forward if stage == "forward" else getattr(given.costs, f"{stage}_s")
            for stage in STAGES
        }

    def binding(self, recipe: Recipe) -> str:
        """The stage that sets the pace: the longest of those behind the resource that binds."""
        seconds = self.seconds(recipe)
        return max(_BEHIND[self.prediction(recipe).bottleneck], key=lambda stage: seconds[stage])

    def limits(self, recipe: Recipe) -> dict[str, object]:
        """The workers that would keep the device busy, and the batch above which loading binds; None for never."""
        given = self._inputs(recipe)
        arguments = (given.costs, given.step, given.machine, given.setup, given.batch_transfer)
        crossover = predict.crossover_batch(*arguments)
        return {
            "workers_to_saturate": predict.workers_to_saturate(*arguments),
            "crossover_batch": crossover,
        }

    def _inputs(self, recipe: Recipe) -> Inputs:
        given = self._costs.inputs(replace(self._like, recipe=recipe))
        if recipe.engine == "serial":
            return replace(given, setup=replace(given.setup, engine="serial", workers=0))
        return given


def _predicted(given: Inputs) -> Prediction:
    return predict.predict(
        given.costs, given.step, given.machine, given.setup, given.batch_transfer
    )


def _of(record: Record, recipe: Recipe) -> bool:
    """Whether a record is of this recipe's loader, or of the forward pass in its dtype."""
    measured = record.cell.recipe
    if measured is None:
        return False
    if record.cell.protocol == "step":
        return measured.dtype == recipe.dtype
    names = ("decoder", "resizer", "interpolation")
    return record.cell.protocol == "contention" and all(
        getattr(measured, n) == getattr(recipe, n) for n in names
    )
