"""Every loader behind one face: this suite's engines and the peers, each as an endless stream of batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.corpus import readers
from wallclock.corpus.manifest import Item
from wallclock.engines import third_party
from wallclock.engines.dataloader import PREFETCH, batches
from wallclock.engines.third_party import Batch, Job, Peer
from wallclock.errors import Unavailable, UserError, describe
from wallclock.spec import Recipe
from wallclock.stages.normalize import MEAN, STD


def cores() -> int:
    """The cores that this process may use: every system gets as many."""
    return len(os.sched_getaffinity(0))


def opened(
    recipe: Recipe,
    items: Sequence[Item],
    root: Path,
    input_px: int,
    variant: str = "",
    n: int | None = None,
) -> AbstractContextManager[Peer]:
    """Open the loader that `recipe.engine` names over `items`.

    Args:
        variant: of a peer that has several.
        n: images until the stream ends (engines of this suite only); None: never.

    Raises:
        Unavailable: what it needs is not here.
        UserError: no such engine.
    """
    positions = _batches_of(len(items), recipe.batch_size, n)
    if recipe.engine == "dataloader":
        return _dataloader(recipe, items, root, input_px, positions)
    if recipe.engine == "threads":
        return _threads(recipe, items, root, input_px, positions)
    if readers.storage_of(root) != "files":
        raise Unavailable(
            f"{recipe.engine} reads files; this corpus is stored as {readers.storage_of(root)}"
        )
    files = [str(root / item.path) for item in items]
    return third_party.find(recipe.engine)(
        Job(files, input_px, recipe.batch_size, cores(), variant)
    )


def pixels_of(images: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """A batch as uint8 (n, h, w, 3): as it is, or with the normalization undone."""
    if images.dtype == np.uint8:
        pixels: npt.NDArray[np.uint8] = images
        return pixels
    levels = (images.transpose(0, 2, 3, 1) * STD + MEAN) * 255
    rounded: npt.NDArray[np.uint8] = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
    return rounded


class _Positions(Sequence[list[int]]):
    """Lists of positions, a batch each, made when they are asked for: a hundred thousand need no memory."""

    def __init__(self, n_items: int, batch_size: int, n: int) -> None:
        self._n_items, self._size, self._n = n_items, batch_size, n

    def __len__(self) -> int:
        return -(-self._n // self._size)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        first = index * self._size
        return [
            position % self._n_items for position in range(first, min(first + self._size, self._n))
        ]


#: Images of a stream that nobody lets run out: minutes at any rate seen.
_ENDLESS = 1_000_000


def _batches_of(n_items: int, batch_size: int, n: int | None) -> _Positions:
    return _Positions(n_items, batch_size, _ENDLESS if n is None else n)


@contextmanager
def _dataloader(
    recipe: Recipe,
    items: Sequence[Item],
    root: Path,
    input_px: int,
    positions: Sequence[Sequence[int]],
) -> Iterator[Peer]:
    loaded: Any = batches(items, root, recipe, input_px, positions)
    words = (
        f"DataLoader, {recipe.workers} workers, {PREFETCH} batches ahead each; {recipe.decoder}, "
        f"{recipe.resizer} {recipe.interpolation}, normalized float32"
    )
    index = {item.id: position for position, item in enumerate(items)}

    def stream() -> Iterator[Batch]:
        for batch in loaded:
            _refuse(batch.failures)
            yield [index[name] for name in batch.ids], batch.images.numpy()

    try:
        yield Peer(
            "wallclock dataloader",
            words,
            recipe.workers * PREFETCH + 1,
            stream(),
            max(recipe.workers, 1),
        )
    finally:
        if hasattr(loaded, "_shutdown_workers"):
            loaded._shutdown_workers()


@contextmanager
def _threads(
    recipe: Recipe,
    items: Sequence[Item],
    root: Path,
    input_px: int,
    positions: Sequence[Sequence[int]],
) -> Iterator[Peer]:
    from wallclock.engines import threads

    index = {item.id: position for position, item in enumerate(items)}
    with threads.loading(items, root, recipe, input_px, positions) as loader:

        def stream() -> Iterator[Batch]:
            for batch in loader:
                _refuse(batch.failures)
                yield [index[name] for name in batch.ids], batch.images

        words = f"{loader.workers} threads; {recipe.decoder}, {recipe.resizer} {recipe.interpolation}, uint8"
        yield Peer("wallclock threads", words, loader.ring_size, stream())


def _refuse(failures: Sequence[dict[str, str]]) -> None:
    """Every image was vetted; where one fails all the same, systems would load different lists."""
    if failures:
        raise UserError(f"an image that was vetted failed: {describe(failures[0])}")
