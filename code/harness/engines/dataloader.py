"""Engine `dataloader`: torch's DataLoader processes load, the main process runs the model.

Workers read, decode, resize, normalize and assemble, as `dataset.ImageDataset` says.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from torch.utils.data import DataLoader, Dataset

from harness.corpora.manifest import Manifest
from harness.engines.dataset import ImageDataset
from harness.engines.loader import Loader
from harness.engines.positions import prefetched_batches
from harness.processes import set_threads
from harness.spec import Recipe
from wallclock.loader.batch import Batch
from wallclock.recipe import ModelSpec
from wallclock.stages import decode


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
