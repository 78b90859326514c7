"""Images of a manifest as torch's DataLoader takes them: a list of positions gives a batch.

The dataset records when each stage of each image began and ended (`perf_counter_ns` is one clock
for all processes of a machine), and sends these marks along with the batch.
"""

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

import numpy.typing as npt
import torch
from torch.utils.data import Dataset, get_worker_info

from harness.corpora.manifest import Item, Manifest
from harness.engines.assemble import stack_shared
from harness.engines.pipeline import LoadStages, load_stages, requested
from harness.spec import Recipe
from wallclock.errors import ImageError
from wallclock.loader.batch import Batch, Extras, Marks
from wallclock.recipe import ModelSpec
from wallclock.stages.augment import Augmentation

#: Stages of one image inside a worker, in order.
IMAGE_STAGES = ("read", "decode", "resize", "normalize")


class ImageDataset(Dataset[Batch]):
    """A manifest's valid images as a map-style dataset: a list of positions gives a batch."""

    def __init__(self, manifest: Manifest, recipe: Recipe, model: ModelSpec) -> None:
        self._items = manifest.valid
        self._item_at = requested(manifest, recipe, model)
        self._manifest = manifest
        self._recipe = recipe
        self._model = model
        # Bound in the process that loads: library handles cannot be pickled.
        self._stages: LoadStages | None = None

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, positions: Any) -> Batch:
        return self.__getitems__(positions)

    def __getitems__(self, positions: Sequence[int]) -> Batch:
        """Load the images at these positions; those that fail are listed, not filled in."""
        if self._stages is None:
            self._stages = load_stages(self._recipe, self._model, self._manifest)
        stages = self._stages
        n = len(self._items)
        loaded: list[int] = []
        augmentations: list[Augmentation] = []
        batch: Batch = Batch([], loaded, None)
        images: list[Any] = []
        times: list[int] = []
        items = [self._item_at(position) for position in positions]
        for position, item in zip(positions, items, strict=True):
            try:
                image, marks = _load(stages, item)
            except ImageError as error:
                failure = {"id": item.id, "stage": error.stage, "reason": error.reason}
                batch.failures.append(failure)
                continue
            batch.ids.append(item.id)
            loaded.append(position % n)
            images.append(image)
            augmentation = item.augmentation
            if augmentation:
                augmentations.append(augmentation)
            times += marks
        worker = get_worker_info()
        began = perf_counter_ns()
        if not images:
            batch.images = torch.empty((0, 3, self._model.input_px, self._model.input_px))
        elif worker is None:
            batch.images = torch.from_numpy(stages.assemble(images))
        else:
            batch.images = stack_shared(images)
        ended = perf_counter_ns()
        lane = "main" if worker is None else f"worker {worker.id}"
        all_marks = [Marks(lane, ("assemble",), [began, ended]), Marks(lane, IMAGE_STAGES, times)]
        batch.extras = Extras(all_marks, stages.labels, augmentations)
        return batch


def _load(stages: LoadStages, item: Item) -> tuple[npt.NDArray[Any], tuple[int, ...]]:
    start = perf_counter_ns()
    data = stages.read(item)
    was_read = perf_counter_ns()
    pixels = stages.decode(item, data)
    decoded = perf_counter_ns()
    pixels = stages.resize(item, pixels)
    resized = perf_counter_ns()
    image = stages.normalize(pixels)
    return image, (start, was_read, decoded, resized, perf_counter_ns())
