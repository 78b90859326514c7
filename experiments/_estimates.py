"""Estimates for any recipe from a diagnosis's records: throughput, bottleneck, a stage's worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiments._costs import Costs, Inputs, NoCostsError
from wallclock.clock import LOADING_STAGES, STAGES
from wallclock.predict import Prediction, crossover_batch, predict, workers_to_saturate
from wallclock.records import Record
from wallclock.spec import Cell, Recipe

#: The stages of each resource.
_STAGES_OF = {
    "accelerator": ("forward",),
    "h2d": ("h2d",),
    "main": ("d2h", "serialize"),
    "transform": LOADING_STAGES,
    "storage": ("read",),
}


class Estimates:
    """The costs that a diagnosis measured, for any recipe.

    Args:
        records: of a diagnosis; end-to-end ones are ignored.
        like: a cell of it, for its images and its model.
        present: the recipe that everything is compared with.
    """

    def __init__(self, records: Sequence[Record], like: Cell, present: Recipe) -> None:
        self.present = present
        self._records = records
        self._costs = Costs(records)
        self._like = like

    def missing(self, recipe: Recipe) -> str:
        """Why a recipe cannot be predicted; empty if it can."""
        try:
            self._inputs(recipe)
        except NoCostsError as error:
            failed = (r.reason for r in self._records if not r.ok and _is_cost_of(r.cell, recipe))
            return next(failed, str(error))
        return ""

    def prediction(self, recipe: Recipe) -> Prediction:
        """The recipe's expected throughput end to end."""
        return predict(*self._inputs(recipe))

    def without(self, recipe: Recipe, stage: str) -> float:
        """The speedup if a stage took no time at all."""
        inputs, now = self._inputs(recipe), self.prediction(recipe)
        if stage == "forward":
            return now.accelerator_bound
        costs = replace(inputs.costs, **{f"{stage}_s": 0.0})
        return predict(*inputs._replace(costs=costs)).img_per_s / now.img_per_s

    def seconds(self, recipe: Recipe) -> dict[str, float]:
        """Seconds of an image in each stage, run sequentially."""
        inputs = self._inputs(recipe)
        forward = inputs.step.batch_s(recipe.batch_size) / recipe.batch_size
        return {
            stage: forward if stage == "forward" else getattr(inputs.costs, f"{stage}_s")
            for stage in STAGES
        }

    def bottleneck_stage(self, recipe: Recipe) -> str:
        """The longest stage of the bottleneck resource."""
        seconds = self.seconds(recipe)
        return max(_STAGES_OF[self.prediction(recipe).bottleneck], key=seconds.__getitem__)

    def limits(self, recipe: Recipe) -> dict[str, object]:
        """The workers that keep the device busy, and the batch size above which loading is the
        bottleneck; None if it never happens.
        """
        inputs = self._inputs(recipe)
        return {
            "workers_to_saturate": workers_to_saturate(*inputs),
            "crossover_batch": crossover_batch(*inputs),
        }

    def _inputs(self, recipe: Recipe) -> Inputs:
        inputs = self._costs.inputs(replace(self._like, recipe=recipe))
        if recipe.engine == "serial":
            return inputs._replace(setup=replace(inputs.setup, engine="serial", workers=0))
        return inputs


def _is_cost_of(cell: Cell, recipe: Recipe) -> bool:
    """Whether a cell measures this recipe's loader, or the forward pass in its dtype."""
    if cell.protocol == "step":
        return cell.recipe.dtype == recipe.dtype
    names = ("decoder", "resizer", "interpolation")
    return cell.protocol == "contention" and all(
        getattr(cell.recipe, name) == getattr(recipe, name) for name in names
    )
