"""Protocols `train_step` and `train`: a training step alone, and behind its loader."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harness.engines import loaders
from harness.engines.positions import CyclicPositions
from harness.engines.training import PARTS, Trainer, Training
from harness.protocols import protocol
from harness.protocols.costs import timed_by_size
from harness.protocols.loop import after, run_pass, steady
from harness.protocols.protocol import Measurement, Progress, no_progress
from harness.protocols.runtimes import require_network
from harness.spec import Cell
from wallclock.clock import StageProfiler, gc_disabled
from wallclock.loader import Batch, Extras
from wallclock.machine import set_threads
from wallclock.stages import augment

#: Positions of a stream that is effectively endless.
_ENDLESS = 1_000_000


def train_step(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Train on noise: `params.batches` steps for each size, after `params.warmup_batches`.

    As the recipe's loader delivers it, and for at most `params.seconds` a size. Samples:
    `<part>-<size>`, nanoseconds of each part of each step; a GPU is waited for after each part.
    """
    require_network(cell.model)
    threads = set_threads(cell.recipe, uses_torch=True)
    trainer = Trainer(cell.model, cell.recipe)

    def run(images: Any, profiler: StageProfiler) -> None:
        seed, px = cell.model.seed, augment.CANVAS_PX
        augmentations: Sequence[Any] = ()
        if cell.recipe.augment == "device":
            augmentations = [augment.draw(px, px, seed, 0, at) for at in range(len(images))]
        extras = Extras(augmentations=augmentations)
        batch = Batch([], range(len(images)), images, extras=extras)
        trainer.step(batch, profiler.stage)

    new_profiler = partial(StageProfiler, trainer.synchronize, frozenset(PARTS))
    values: dict[str, Any] = dict(threads)
    with protocol.competing(values):
        samples = timed_by_size(cell, run, new_profiler, progress)
    return Measurement(samples, values | {"peak_memory_mib": protocol.peak_memory_mib()})


def train(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Loader and training step together, in the steady state, for `params.seconds`.

    The images again and again, augmented anew in every epoch. What the loader had ready before the
    first step is trained on first and not timed. Samples: the loader's stages in its workers,
    `wait`, the main process waiting for a batch, `forward`, the whole step as that process sees it,
    and `wall`. `params.batches`: the least number measured.
    """
    require_network(cell.model)
    recipe, model = cell.recipe, cell.model
    manifest = protocol.open_corpus(cell, "jpeg")
    values = protocol.set_conditions(cell, manifest, uses_torch=True)
    positions = CyclicPositions(_ENDLESS, recipe.batch_size, _ENDLESS)
    # Workers first: a fork after CUDA has started would copy a broken context.
    with gc_disabled(), loaders.open_loader(manifest, recipe, model, positions) as loader:
        trainer = Trainer(model, recipe)
        run = partial(run_pass, loader, max_failures=int(cell.params["max_failures"]))
        run(after(loader.prefetched), no_progress, inference=Training(trainer))
        least = max(int(cell.params["batches"]), loader.burst)
        until = steady(float(cell.params["seconds"]), least, loader.burst)
        progress(0)
        with protocol.competing(values):
            result = run(until, progress, inference=Training(trainer))
        values["peak_memory_mib"] = protocol.peak_memory_mib()
    values |= {
        "n_loaded": result.images,
        "n_batches": result.batches,
        "ran": {"engine": loader.engine, "workers": loader.workers, **result.labels},
    }
    samples: dict[str, Sequence[int]] = dict(result.samples)
    samples["wall"] = [result.wall_ns]
    return Measurement(samples, values, result.failures)
