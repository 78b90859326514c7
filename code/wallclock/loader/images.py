"""The threads loader in your own loop: for images that were not listed or validated before."""

import os
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from wallclock import machine
from wallclock.constraints import build
from wallclock.errors import UserError, check_name
from wallclock.fetch import folder
from wallclock.fetch.sources import Source
from wallclock.formats import KINDS
from wallclock.loader.batch import Batch
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.order import Order, OrderedBatches
from wallclock.loader.processes import ForkedLoader
from wallclock.loader.threads import ThreadLoader
from wallclock.preprocess import Preprocess, preprocess_of
from wallclock.recipe import FAST, Limits, Recipe

RECIPES = {"fast": FAST}
#: Where an image is; with or without an id of its own.
Where: TypeAlias = str | os.PathLike[str] | bytes | BinaryIO
ImageSources: TypeAlias = str | os.PathLike[str] | Sequence[Where | tuple[str, Where]]


def open_images(
    items: ImageSources,
    size: int | None = None,
    batch: int = 32,
    *,
    preprocess: str | Preprocess = "squash",
    shuffle: bool = False,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
    epochs: int = 1,
    workers: int = 0,
    processes: int = 1,
    recipe: str | Recipe = "fast",
    augment: bool = False,
    drop_last: bool = False,
    tensors: bool = False,
    copy: bool = False,
    pin: bool = False,
    limits: Limits | None = None,
) -> "Images":
    """Batches of images from a folder or a list, decoded and resized by threads.

    Args:
        items: a folder, whose images are found by content, at any depth; or a list of paths, URLs
            (http, https, s3), bytes, binary files, or pairs of an id and one of these. Without an
            id, a path or URL is its own, in a folder the path below it; else the position is.
        size: side of the square images in pixels to which they are squashed; None: 224.
        batch: images a batch; the last one of an epoch may have fewer.
        preprocess: another geometry, a `Preprocess` or its text: `shortest:256,crop:224,bicubic`;
            it has its own sizes.
        shuffle: every epoch in another order, which only `seed` and its number determine.
        seed: of the order, and of the crops and colours of `augment`.
        rank: this process takes every `world_size`-th image of each epoch, from this one on: ranks
            share no image and leave none out. One may have an image, and so a batch, more than
            another; where all need the same number (torch.distributed), set `drop_last`.
        epochs: that one iteration takes; the next iteration goes on with the epoch after.
        workers: threads; 0 is one a core.
        processes: among which the threads are divided. For small images, of which threads wait for
            each other's Python: as many as cores. They are forked when an iteration starts.
        recipe: `fast`, or a `wallclock.recipe.Recipe`.
        augment: random resized crop, flip and colour jitter of training images; needs OpenCV.
        drop_last: full batches only, as many of every rank.
        tensors: torch tensors in place of numpy arrays.
        copy: images that stay valid; else they are overwritten once the next batch is requested.
        pin: page-locked memory, from which a copy to a GPU is fast.
        limits: above which an image is not decoded.

    Returns:
        An iterator of `Batch` that is also a context manager, which ends its threads. A batch has
        `ids`, `positions` in `items`, `images` uint8 (n, height, width, 3), and `failures` (id,
        stage, reason) of images that cannot be read or are damaged: they have no row.

    Raises:
        Unavailable: the recipe needs a library that is not installed.
        UserError: there is no such folder, a setting is out of range, `size` and `preprocess`
            differ, or processes are to share open files or page-locked memory.
    """
    chosen = RECIPES[check_name(recipe, RECIPES, "recipe")] if isinstance(recipe, str) else recipe
    geometry = _geometry(preprocess, chosen, size)
    side = 224 if size is None else size
    changes: dict[str, Any] = {
        "preprocess": geometry,
        "batch_size": batch,
        "workers": workers,
        "device": "cuda" if pin else "cpu",
        "augment": "cpu" if augment else "none",
        "normalize_on": "device",
        "engine": "threads",
        "pin_memory": pin,
    }
    # Checked as a configuration's settings are.
    chosen = build(Recipe, asdict(chosen) | changes, "")
    counts = {"size": side, "epochs": epochs, "world_size": world_size, "processes": processes}
    for name, value in counts.items():
        if value < 1:
            raise UserError(f"{name}={value}: give a whole number of at least 1")
    preprocess_of(chosen, side)  # raises here, not at the first batch
    if not 0 <= rank < world_size:
        raise UserError(f"rank={rank}: give one from 0 to {world_size - 1}: {world_size=}")
    if pin:
        machine.require_cuda("pin=True")
    sources = _folder(items) if isinstance(items, str | os.PathLike) else _List(list(items))
    order = Order(len(sources), batch, shuffle, seed, rank, world_size, drop_last)
    if processes > 1 and (pin or sources.has_files()):
        what = "pin=True" if pin else "an open file, whose position is shared,"
        raise UserError(f"processes={processes}: {what} needs processes=1")
    options = LoaderOptions(side, chosen, limits or Limits(), seed)

    def open_batches(batches: Sequence[Sequence[int]]) -> ForkedLoader | ThreadLoader:
        return open_loader(sources, batches, options, processes)

    return Images(open_batches, order, epochs, tensors, copy)


def _geometry(preprocess: str | Preprocess, recipe: Recipe, size: int | None) -> str:
    """The text of the geometry: the argument's, or the recipe's where that is `squash`.

    Raises UserError: it is not understood, or `size` says something else.
    """
    text = recipe.preprocess if preprocess == "squash" else str(preprocess)
    if text == "squash":
        return text
    geometry = Preprocess.parse(text)
    if size is not None and geometry.canvas != (size, size):
        height, width = geometry.canvas
        raise UserError(
            f"size={size}, but preprocess={geometry} makes {height} × {width} pixels; leave out "
            "size"
        )
    return str(geometry)


class Images:
    """What `open_images` returns.

    `state_dict` and `load_state_dict` take up an interrupted iteration where it stopped, also in
    the middle of an epoch, with the same batches that would have followed.
    """

    def __init__(
        self,
        open_batches: Callable[[Sequence[Sequence[int]]], ForkedLoader | ThreadLoader],
        order: Order,
        epochs: int,
        tensors: bool,
        copy: bool,
    ) -> None:
        self._open_batches, self._order = open_batches, order
        self._a_pass = epochs * order.batches_per_epoch
        self._tensors, self._copy = tensors, copy
        self._taken = 0
        self._loader: ForkedLoader | ThreadLoader | None = None
        self._exhausted = False

    def __len__(self) -> int:
        """Batches of one iteration: of all its epochs."""
        return self._a_pass

    @property
    def epoch(self) -> int:
        """The epoch of the last batch, from 0."""
        return max(self._taken - 1, 0) // max(self._order.batches_per_epoch, 1)

    def __enter__(self) -> "Images":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> "Images":
        """Go on: mid-epoch where the last iteration was left there, else with the next epochs."""
        self._exhausted = False
        return self

    def __next__(self) -> Batch:
        """The next batch; starts the threads or processes if none run."""
        if self._exhausted or not self._a_pass:
            raise StopIteration
        try:
            batch = next(self._loader or self._open())
        except BaseException as error:
            self._exhausted = isinstance(error, StopIteration)
            self.close()
            raise
        self._taken += 1
        if self._copy:
            batch.images = batch.images.copy()
        if self._tensors:
            import torch

            batch.images = torch.from_numpy(batch.images)
        return batch

    def close(self) -> None:
        """End threads or processes; the next iteration starts new ones where this one stopped."""
        if self._loader is not None:
            loader, self._loader = self._loader, None
            self._unclosed.detach()
            if self._process == os.getpid():
                loader.close()

    def state_dict(self) -> dict[str, Any]:
        """How far this iteration is: the batches taken, and what determines which they were."""
        return {"batches": self._taken, "order": self._order.shared()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind the last batch of the iteration that `state_dict` describes.

        Raises:
            UserError: that one was over other images, or in another order.
        """
        here = self._order.shared()
        differing = [name for name in here if state["order"].get(name) != here[name]]
        if differing:
            was = ", ".join(f"{name}={state['order'].get(name)}" for name in differing)
            raise UserError(f"this state is of another iteration: there {was}")
        self.close()
        self._taken, self._exhausted = int(state["batches"]), False

    def _open(self) -> ForkedLoader | ThreadLoader:
        first = self._taken
        batches = OrderedBatches(self._order, first, first + self._a_pass - first % self._a_pass)
        self._loader = self._open_batches(batches).__enter__()
        self._process = os.getpid()
        self._unclosed = weakref.finalize(self, _abandoned, self._loader, self._process)
        return self._loader


def _abandoned(loader: ForkedLoader | ThreadLoader, process: int) -> None:
    # Not joined: the garbage collector may run in one of the threads.
    if os.getpid() == process:
        loader.stop()
        text = "an iteration over open_images was neither finished nor closed: use `with`"
        warnings.warn(text, ResourceWarning, stacklevel=2)


class _List(Sequence[Source]):
    """A user's items as sources, made when they are asked for."""

    def __init__(self, items: Sequence[Any], root: str = "") -> None:
        self._items, self._root = items, root

    def __len__(self) -> int:
        return len(self._items)

    def has_files(self) -> bool:
        """Whether an item is an open file."""
        return any(hasattr(_pair(item)[1], "read") for item in self._items)

    def __getitem__(self, index: Any) -> Any:
        item = self._items[index]
        if self._root:
            return Source(folder.id_of(item), f"{self._root}/{item}")
        name, where = _pair(item)
        where = os.fspath(where) if isinstance(where, os.PathLike) else where
        if isinstance(where, bytearray | memoryview):
            where = bytes(where)
        if not isinstance(where, str | bytes) and not hasattr(where, "read"):
            kind = type(where).__name__
            raise UserError(f"item {index} is a {kind}: give a path, a URL, bytes or a file")
        if name is None:
            name = where if isinstance(where, str) else f"{index}"
        return Source(name, where)


def _pair(item: Any) -> tuple[Any, Any]:
    return item if isinstance(item, tuple) and len(item) == 2 else (None, item)


def _folder(path: str | os.PathLike[str]) -> _List:
    root = Path(path).expanduser()
    if not root.is_dir():
        raise UserError(f"{root} is no folder; give one, or a list of paths, URLs, bytes or files")
    names = sorted(folder.candidates(root), key=os.fsencode)
    if not names:
        raise UserError(f"no image under {root}: no {KINDS} file")
    return _List(names, str(root))
