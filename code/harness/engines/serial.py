"""Engine `serial`: every image through the nine stages, sequentially, in one thread.

Nothing overlaps, so the stages' seconds add up to the wall time, and each stage's share is its own.
`run` is the decomposition, with the stage profiler around every step; `SerialLoader` is the same
loading behind the interface that end-to-end passes measure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.corpora.manifest import Item, Manifest
from harness.engines.loader import Loader
from harness.engines.pipeline import DeviceStages, LoadStages
from harness.processes import set_threads
from harness.profiler import StageProfiler
from harness.spec import Recipe
from wallclock.errors import ImageError, UserError, describe
from wallclock.loader.batch import Batch, Failure
from wallclock.loader.resizing import Arrays
from wallclock.recipe import ModelSpec


class SerialLoader(Loader):
    """Loads a batch when it is requested, in the caller's thread."""

    engine = "serial"
    workers = 0
    prefetched = 1
    burst = 1

    def __init__(
        self, manifest: Manifest, recipe: Recipe, model: ModelSpec, positions: Sequence[Any]
    ) -> None:
        from harness.engines.dataset import ImageDataset  # needs torch; `run` does not

        self.version = "wallclock serial"
        self.settings = f"one thread; {recipe.decoder}, {recipe.resizer} {recipe.interpolation}"
        self._recipe = recipe
        self._images = ImageDataset(manifest, recipe, model)
        self._positions = iter(positions)

    def __enter__(self) -> "SerialLoader":
        set_threads(self._recipe, uses_torch=False)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __next__(self) -> Batch:
        """The next batch, loaded now."""
        return self._images[next(self._positions)]


@dataclass
class Outcome:
    """What a pass left: how many images became vectors, and which did not."""

    n_embedded: int = 0
    failures: list[Failure] = field(default_factory=list)


def run(
    items: Sequence[Item],
    load: LoadStages,
    device: DeviceStages,
    profiler: StageProfiler,
    batch_size: int,
    max_failures: int,
    progress: Callable[[int], None],
) -> Outcome:
    """Take `items` through all stages in batches of `batch_size`; the last may be smaller.

    An image that fails is counted and left out of its batch; ids stay with their vectors.

    Raises:
        UserError: more than `max_failures` images failed.
    """
    outcome = Outcome()
    stage = profiler.stage
    for start in range(0, len(items), batch_size):
        ids, images = _load(items[start : start + batch_size], load, profiler, outcome.failures)
        if len(outcome.failures) > max_failures:
            last = f"the last, {describe(outcome.failures[-1])}"
            raise UserError(f"more than max_failures={max_failures} images failed; {last}")
        if ids:
            with stage("assemble"):
                batch = load.assemble(images)
            with stage("h2d"):
                on_device = device.h2d(batch)
            with stage("forward"):
                result = device.forward(on_device)
            with stage("d2h"):
                vectors = device.d2h(result)
            with stage("serialize"):
                device.serialize(ids, vectors)
            outcome.n_embedded += len(ids)
        progress(min(start + batch_size, len(items)))
    with stage("serialize"):
        device.finish()
    return outcome


def _load(
    items: Sequence[Item], load: LoadStages, profiler: StageProfiler, failures: list[Failure]
) -> tuple[list[str], list[Arrays]]:
    stage = profiler.stage
    ids: list[str] = []
    images: list[Arrays] = []
    for item in items:
        try:
            with stage("read"):
                data = load.read(item)
            with stage("decode"):
                pixels = load.decode(item, data)
            with stage("resize"):
                pixels = load.resize(item, pixels)
            with stage("normalize"):
                image = load.normalize(pixels)
        except ImageError as error:
            failures.append({"id": item.id, "stage": error.stage, "reason": error.reason})
            continue
        ids.append(item.id)
        images.append(image)
    return ids, images
