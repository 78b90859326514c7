"""Engine `dataloader`: torch's DataLoader processes load, the main process runs the model.

Workers read, decode, resize, normalize and assemble. Each records when each stage of each image
began and ended (`perf_counter_ns` is one clock for all processes of a machine), and sends these
marks along with the batch.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from harness.corpora.manifest import Item, Manifest
from harness.engines.assemble import stack_shared
from harness.engines.loaders import prefetched_batches
from harness.engines.pipeline import LoadStages, load_stages, requested
from wallclock.errors import ImageError
from wallclock.loader import Batch, Extras, Loader, Marks, augmentation_of
from wallclock.machine import set_threads
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages import decode
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
        stages.prefetch(items)
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
            augmentation = augmentation_of(item)
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


class ProcessLoader(Loader):
    """Batches from torch's worker processes, in order; without workers, from this process."""

    engine = "dataloader"

    def __init__(
        self,
        manifest: Manifest,
        recipe: Recipe,
        model: ModelSpec,
        positions: Sequence[Sequence[int]],
    ) -> None:
        if decode.DECODERS[recipe.decoder].optional:
            decode.make(recipe.decoder)  # what is not installed is missed here, not in a worker
        dataset = ImageDataset(manifest, recipe, model)
        self._torch_loader = torch_loader(dataset, recipe, positions)
        self.workers = self._torch_loader.num_workers
        self.prefetched = prefetched_batches(recipe)
        self.burst = max(self.workers, 1)
        self.version = "wallclock dataloader"
        pixels = "normalized float32" if recipe.normalize_on == "host" else "uint8"
        self.settings = (
            f"DataLoader, {self.workers} workers, {recipe.prefetch} batches ahead each; "
            f"{recipe.decoder}, {recipe.resizer} {recipe.interpolation}, {pixels}"
        )
        self._batches: Iterator[Batch] | None = None

    def __enter__(self) -> "ProcessLoader":
        self._batches = iter(self._torch_loader)
        return self

    def __exit__(self, *_: object) -> None:
        shutdown = getattr(self._batches, "_shutdown_workers", None)
        if shutdown is not None:
            shutdown()

    def __next__(self) -> Batch:
        """The next batch in order."""
        assert self._batches is not None, "open it with `with`"
        return next(self._batches)

    def ready(self) -> int:
        """How many batches are loaded and wait; 0 without workers.

        torch has no public count: its iterator keeps those that arrived out of order, its queue
        the rest.
        """
        queue = getattr(self._batches, "_data_queue", None)
        early = getattr(self._batches, "_task_info", {})
        queued = queue.qsize() if queue is not None else 0
        return queued + sum(len(info) == 2 for info in early.values())


def torch_loader(
    dataset: Dataset[Batch], recipe: Recipe, positions: Sequence[Sequence[int]]
) -> DataLoader[Batch]:
    """DataLoader over a dataset that answers a list of positions with a batch."""
    parallel: dict[str, Any] = {}
    if recipe.workers:
        parallel = {
            "prefetch_factor": recipe.prefetch,
            "persistent_workers": True,
            "multiprocessing_context": recipe.start_method,
            "worker_init_fn": partial(_start_worker, recipe),
        }
    return DataLoader(
        dataset,
        batch_sampler=positions,  # type: ignore[arg-type]
        num_workers=recipe.workers,
        collate_fn=_identity,
        pin_memory=recipe.pins,
        **parallel,
    )


def _identity(batch: Any) -> Any:
    return batch


def _start_worker(recipe: Recipe, worker: int) -> None:
    # torch sets its own threads to 1 in a worker; OpenCV's pool would stay as wide as the machine.
    set_threads(recipe, uses_torch=False)


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
