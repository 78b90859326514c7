"""How long a job will take, from a sample of its own images on this machine."""

import time
from typing import Any

import numpy as np

from wallclock.engines.pipeline import DeviceStages
from wallclock.engines.threads import IMAGE_STAGES, worker_count
from wallclock.engines.unlisted import open_sources
from wallclock.job.run import Plan
from wallclock.job.sources import Items
from wallclock.predict.costs import JobSetup, Machine, StageCosts, StepTime
from wallclock.predict.model import Pipeline
from wallclock.spec import ModelSpec, Recipe
from wallclock.thread_counts import usable_cores

#: Images of the sample, after as many that warm up libraries; a smaller job is not estimated.
SAMPLE, LEAST = 32, 1000


def estimate(
    items: Items, plan: Plan, recipe: Recipe, model: ModelSpec, stages: DeviceStages, cores: int = 0
) -> Pipeline | None:
    """The job's costs here; None for a small job, or where the sample cannot be read.

    Args:
        cores: that it may use; 0: all that this process may.

    One thread loads the sample: what a stage costs on a core, without others that compete for it.
    """
    if len(plan) * recipe.batch_size < LEAST:
        return None
    size = min(8, recipe.batch_size)
    chosen = np.linspace(0, len(plan) - 1, 2 * SAMPLE // size).astype(int).tolist()
    batches = [plan[at][:size] for at in chosen]
    times: dict[str, list[int]] = {name: [] for name in IMAGE_STAGES}
    forward: list[tuple[int, float]] = []
    with open_sources(items, batches, size=model.input_px, recipe=recipe, workers=1) as loader:
        for number, batch in enumerate(loader):
            if number < len(batches) // 2:
                continue
            for marks in batch.marks:
                for name, spent in zip(IMAGE_STAGES, np.diff(marks.times).T, strict=True):
                    times[name] += spent.tolist()
            if len(batch.ids) and len(forward) < 2:
                for n in (1, len(batch.ids)):
                    _embed(stages, batch.images[:n])
                    began = time.perf_counter()
                    _embed(stages, batch.images[:n])
                    forward.append((n, time.perf_counter() - began))
    if not forward:
        return None
    costs, cores = StageCosts.of(times, len(times["read"])), cores or usable_cores()
    on_cpu = recipe.device == "cpu" and model.weights != "none"
    machine = Machine(
        cores,
        shares_cores=on_cpu,
        forward_cores=cores if on_cpu else 1,
        gpu=recipe.device == "cuda",
    )
    setup = JobSetup(worker_count(recipe), recipe.batch_size, "threads")
    return Pipeline(costs, StepTime.fit(forward), machine, setup)


def _embed(stages: DeviceStages, images: Any) -> None:
    stages.d2h(stages.forward(stages.h2d(images)))
