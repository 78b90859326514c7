"""What protocols of a network share that nothing loads for: its images, and a timed loop."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

import numpy.typing as npt

from harness.corpora.manifest import Item, Manifest
from harness.engines.pipeline import load_stages
from harness.processes import gc_disabled
from harness.profiler import Clock
from harness.protocols.protocol import Progress
from harness.spec import Recipe
from wallclock.errors import Unavailable, UserError
from wallclock.recipe import ModelSpec

#: Runs a batch, or waits for the device.
ForwardPass = Callable[[], object]

#: Images, normalized or not.
Images = npt.NDArray[Any]


def require_network(model: ModelSpec) -> None:
    """Raise `Unavailable` for a mock model."""
    if model.weights == "none":
        raise Unavailable("the model is a mock model without a network: there is nothing to run")


def timed(
    run: ForwardPass,
    wait: ForwardPass | None,
    batches: int,
    progress: Progress,
    clock: Clock = perf_counter_ns,
) -> "array[int]":
    """Nanoseconds of each of `batches` runs, the wait for the device included."""
    samples = array("q")
    wait = wait or (lambda: None)
    with gc_disabled():
        wait()
        for done in range(1, batches + 1):
            began = clock()
            run()
            wait()
            samples.append(clock() - began)
            progress(done)
    return samples


def first_batch(manifest: Manifest, recipe: Recipe, model: ModelSpec) -> tuple[Images, int]:
    """The corpus's first images as one batch, and their number; a small corpus repeats."""
    items = manifest.valid[: recipe.batch_size]
    if not items:
        raise UserError("the corpus holds no valid image to run a network on")
    images = load_images(manifest, items, recipe, model)
    return images.take(range(recipe.batch_size), axis=0, mode="wrap"), len(images)


def load_images(
    manifest: Manifest, items: Sequence[Item], recipe: Recipe, model: ModelSpec
) -> Images:
    """Images in host memory: normalized floats (n, 3, h, w), or pixels (n, h, w, 3)."""
    load = load_stages(replace(recipe, dct_scale="full"), model, manifest)
    return load.assemble([load.normalize(load.load_pixels(item)) for item in items])
