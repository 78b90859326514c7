"""torch's DataLoader around one decoding function: what most of these loaders share.

As https://docs.pytorch.org/docs/stable/data.html describes a map-style dataset with its own
batches: two batches ahead a worker, persistent workers, one worker a core or four. Workers send
uint8, a quarter of what a recipe sends that normalizes in them, in shared memory, as torch's own
`default_collate` does.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from harness.engines.assemble import empty_shared
from harness.engines.third_party._interface import (
    DecodedBatch,
    LoaderSpec,
    Stream,
    ThirdPartyLoader,
    cycle,
    version,
)
from wallclock.stages.decode import PixelArray

#: What the dataset reads, bytes of a JPEG as a rule, into a row of a batch: uint8 (px, px, 3).
Load: TypeAlias = Callable[[Any, PixelArray], object]
#: The side of the square and the variant → the function, made in the process that calls it.
Make: TypeAlias = Callable[[int, str], Load]

_PREFETCH_FACTOR = 2


class FileDataset:
    """A map-style dataset that answers a list of positions with one batch."""

    def __init__(self, spec: LoaderSpec, make: Make) -> None:
        self._spec = spec
        self._make = make
        self._load: Load | None = None

    def __len__(self) -> int:
        return len(self._spec.files)

    def __getitems__(self, positions: Sequence[int]) -> tuple[list[int], Any]:
        """Positions and a uint8 tensor (n, px, px, 3)."""
        px = self._spec.input_px
        if self._load is None:
            self._load = self._make(px, self._spec.variant)
        images = empty_shared((len(positions), px, px, 3), "uint8")
        for row, encoded in zip(images.numpy(), self.read(positions), strict=True):
            self._load(encoded, row)
        return list(positions), images

    def read(self, positions: Sequence[int]) -> Iterable[Any]:
        """What `make`'s function takes, of each position."""
        for position in positions:
            with io.FileIO(self._spec.files[position]) as file:
                yield file.readall()


def dataloader(
    name: str,
    label: str,
    make: Make,
    variants: Mapping[str, str],
    needs: tuple[str, ...] = (),
    library: Callable[[], str] | None = None,
    dataset: Callable[[LoaderSpec, Make], FileDataset] = FileDataset,
) -> ThirdPartyLoader:
    """The loader called `name`: a DataLoader whose workers call what `make` returns.

    Args:
        variants: each with its configuration in words; the first is the default.
        needs: the loader's distributions.
        library: returns the name and version of what decodes; called once `make` has imported it.
            By default the first of `needs`.
        dataset: reads the files, where the library does that too.
    """

    @contextmanager
    def open_stream(spec: LoaderSpec) -> Iterator[Stream]:
        from torch.utils.data import DataLoader

        make(spec.input_px, spec.variant)  # what is not installed is missed here, not in a worker
        loader: Any = DataLoader(
            dataset(spec, make),  # type: ignore[arg-type]
            batch_sampler=cycle(len(spec.files), spec.batch_size),
            num_workers=spec.workers,
            prefetch_factor=_PREFETCH_FACTOR,
            persistent_workers=True,
            pin_memory=spec.on_gpu,
            collate_fn=_identity,
            worker_init_fn=_one_opencv_thread,
            multiprocessing_context="fork",
        )
        batches = iter(loader)
        how = (
            f"DataLoader, {spec.workers} workers, {_PREFETCH_FACTOR} batches ahead each, "
            f"uint8 in shared memory; {variants[spec.variant]}"
        )
        ahead = spec.workers * _PREFETCH_FACTOR
        decoded_by = library() if library else version(needs[0])
        try:
            yield Stream(decoded_by, how, ahead, _to_numpy(batches), spec.workers)
        finally:
            batches._shutdown_workers()

    return ThirdPartyLoader(name, label, open_stream, needs, tuple(variants), (1, 4))


def antialiased(
    pixels: PixelArray, size: int | tuple[int, int], mode: str = "bilinear"
) -> PixelArray:
    """Uint8 (h, w, 3) to uint8 (*size, 3), or to a square, by a filter of torch's, antialiased."""
    import torch

    image = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(image, size, mode=mode, antialias=True)
    return resized[0].permute(1, 2, 0).numpy()


def _one_opencv_thread(worker: int) -> None:
    import cv2

    cv2.setNumThreads(1)


def _identity(batch: Any) -> Any:
    return batch


def _to_numpy(batches: Iterator[Any]) -> Iterator[DecodedBatch]:
    for positions, images in batches:
        yield positions, images.numpy()
