"""The threads loader in your own loop: for images that were not listed or validated before."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt

from wallclock import machine
from wallclock.errors import UserError
from wallclock.fetch.urls import is_url
from wallclock.loader.items import FolderItems, ListedItems, iterate, undecoded
from wallclock.loader.iteration import Images, Schedule, open_listed, open_stream
from wallclock.loader.loading import Loading, loading_for
from wallclock.loader.opener import LoaderOptions, lender_of
from wallclock.loader.order import Order, Place
from wallclock.loader.output import Output, Workers, whole_number
from wallclock.loader.shards import Shards, UrlItems, shards_of
from wallclock.loader.stream import StreamOrder
from wallclock.preprocess import Preprocess
from wallclock.stages.augment import Augment

if TYPE_CHECKING:
    import torch


class Options(TypedDict, total=False):
    """Arguments of `open_images` that do not change the type of the images."""

    labels: Literal["folder"] | None
    augment: bool | Augment
    shuffle: bool | int
    seed: int
    epochs: int
    shard: tuple[int, int]
    drop_last: bool
    workers: int | Workers


class RandomAccess(Protocol):
    """A length, and items by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


#: A folder, a bucket, tars, or anything with items (`loader/items.py`).
ImageSources: TypeAlias = str | os.PathLike[str] | Iterable[Any] | RandomAccess
#: Texts of an `Output` whose images are numpy arrays of uint8, and those of which they are tensors.
BytesOutput: TypeAlias = Literal["uint8", "RGB", "L", "RGBA"]
TorchOutput: TypeAlias = Literal[
    "torch",
    "torch,float32",
    "torch,float16",
    "torch,bfloat16",
    "torch,pin",
    "cuda",
    "cuda,float32",
    "cuda,float16",
    "cuda,bfloat16",
]
Size: TypeAlias = int | tuple[int, int] | None
#: Items from which a stream draws the next one, where `shuffle=True` does not say.
_SHUFFLE_BUFFER = 1000


@overload
def open_images(
    items: ImageSources,
    size: Size = None,
    batch: int = ...,
    *,
    output: BytesOutput = "uint8",
    **options: Unpack[Options],
) -> Images[npt.NDArray[np.uint8]]: ...
@overload
def open_images(
    items: ImageSources,
    size: Size = None,
    batch: int = ...,
    *,
    output: Literal["float32"],
    **options: Unpack[Options],
) -> Images[npt.NDArray[np.float32]]: ...
@overload
def open_images(
    items: ImageSources,
    size: Size = None,
    batch: int = ...,
    *,
    output: TorchOutput,
    **options: Unpack[Options],
) -> "Images[torch.Tensor]": ...
@overload
def open_images(
    items: ImageSources,
    size: Size = None,
    batch: int = ...,
    *,
    preprocess: str | Preprocess = ...,
    output: str | Output = "uint8",
    **options: Unpack[Options],
) -> Images[Any]: ...
def open_images(
    items: ImageSources,
    size: int | tuple[int, int] | None = None,
    batch: int = 32,
    *,
    labels: Literal["folder"] | None = None,
    preprocess: str | Preprocess = "squash",
    output: str | Output = "uint8",
    augment: bool | Augment = False,
    shuffle: bool | int = False,
    seed: int = 0,
    epochs: int = 1,
    shard: tuple[int, int] = (0, 1),
    drop_last: bool = False,
    workers: int | Workers = 0,
) -> Images[Any]:
    """Batches of images from almost anything that holds images, decoded and resized by threads.

    Args:
        items: a folder or `s3://bucket/prefix`, listed at any depth; tars as webdataset writes them
            (`train-{000..127}.tar`, paths or URLs) and Parquet or Arrow tables, which are streamed;
            a list, a Hugging Face dataset or any other sequence, read by index; or any other
            iterable, which is streamed. An item is a path, a URL, bytes, a binary file, a Pillow
            image or an array; or a pair of one of these and a label; or a pair of an id and a path,
            URL, bytes or file; or a dict with `image`, perhaps `id` and `label`. The default id is
            the path (below a given folder) or URL, else the position.
        labels: `folder` labels an image with the number of its subfolder, as torchvision's
            ImageFolder does; `Images.classes` has their sorted names. None: the items' own labels.
        size: height and width to which images are squashed, or the side of a square; None: 224, or
            what `preprocess` says.
        batch: images per batch; the last batch of an epoch may have fewer.
        preprocess: another geometry, a `Preprocess` or its text: `shortest:256,crop:224,bicubic`.
            Without a crop (`original`, `shortest:512`) every image keeps its own size.
        output: dtype, channels, framework, memory and device of the images, an `Output` or its
            text: `torch,float32`, `L`, `cuda`.
        augment: True, or an `Augment`, for random crops, flips and colour jitter, which need
            OpenCV, or for a function of your own (`Augment.transform`).
        shuffle: a new order in every epoch, which depends only on `seed` and the epoch. A stream is
            shuffled in a buffer of this many items (True: 1000), with its shards in a new order.
        seed: of the order, and of what `augment` draws.
        epochs: epochs per iteration; the next iteration continues with the epoch after them.
        shard: rank and world size. This process takes every `world_size`-th image of each epoch,
            starting with the `rank`-th, or every such tar. A rank may get an image, and so a batch,
            more than another; if all need the same number (torch.distributed), set `drop_last`.
        drop_last: full batches only, the same number for every rank.
        workers: threads, 0 is one per core; or a `Workers`.

    Returns:
        An iterator of `Batch`, and a context manager that ends its threads.

    Raises:
        Unavailable: a library that is needed is not installed.
        UserError: there is no such folder, or no image in it; a setting is out of range; `size` and
            `preprocess` disagree; processes would share open files, a stream or page-locked memory;
            a transform's draws cannot be repeated, or what it returns does not fit.
    """
    kind = Output.parse(output) if isinstance(output, str) else output
    crew = workers if isinstance(workers, Workers) else Workers(workers)
    whole_number("batch", batch, 1, 65_536)
    whole_number("seed", seed, 0)
    options = _options(loading_for(size, preprocess), batch, seed, augment, kind, crew)
    rank, world_size = _ranks(shard)
    epochs = whole_number("epochs", epochs, 1)
    names, read = shards_of(items)
    listed = _listed(items, labels, bool(names))
    if listed is not None:
        # Whether there are files takes a look at every item.
        if kind.pins or (crew.processes > 1 and listed.has_files()):
            _check_processes(crew, kind.pins or "an open file, with one position,")
        order = Order(len(listed), batch, bool(shuffle), seed, rank, world_size, drop_last)
        opens = partial(open_listed, listed, order, options, crew.processes)
        return Images(Schedule(listed, order, epochs, opens), partial(lender_of, options))
    _check_processes(crew, "a stream")
    n_held = _SHUFFLE_BUFFER if shuffle is True else whole_number("shuffle", int(shuffle), 0)
    stream_order = StreamOrder(batch, n_held, seed, rank, world_size, drop_last, bool(names))
    open_epoch: Callable[[Place], Iterable[Any]]
    if read is None:
        open_epoch = _epochs_of(undecoded(items), epochs)
    else:
        read = partial(read, limits=crew.limits)
        open_epoch = Shards(names, read, bool(shuffle), seed, rank, world_size)
    opens = partial(open_stream, open_epoch, stream_order, options)
    return Images(Schedule(names, stream_order, epochs, opens), partial(lender_of, options))


def _options(
    loading: Loading, batch: int, seed: int, augment: bool | Augment, output: Output, crew: Workers
) -> LoaderOptions:
    """All that was asked for. Raises as `open_images`."""
    drawn = augment if isinstance(augment, Augment) else Augment()
    # A GPU normalizes by itself what no transform made.
    on_host = output.device == "cpu" or drawn.transform is not None
    statistics = (output.mean, output.std) if output.dtype != "uint8" and on_host else None
    crops = bool(augment) and drawn.draws_pixels
    options = LoaderOptions(
        replace(loading, statistics=statistics, mode=output.channels, crops=crops),
        batch,
        crew.threads or machine.usable_cores(),
        crew.limits,
        seed,
        augment=drawn,
        pins=bool(output.pins),
        output=output,
    )
    options.check(crew.processes)
    if output.pins:
        machine.require_cuda(output.pins)
    is_lent = output.device == "cpu" and not options.keeps_sizes
    # One more than the consumer holds waits until its successor is loaded (`iteration.deliver`).
    return replace(options, spare=1 + (output.hold if is_lent else 0))


def _ranks(shard: Any) -> tuple[int, int]:
    if not isinstance(shard, tuple | list) or len(shard) != 2:
        raise UserError(f"shard={shard!r}: give rank and world size, as in (0, 8)")
    world_size = whole_number("shard[1]", shard[1], 1)
    return whole_number("shard[0]", shard[0], 0, world_size - 1), world_size


def _check_processes(crew: Workers, what: str) -> None:
    if crew.processes > 1:
        raise UserError(f"processes={crew.processes}: {what} needs processes=1")


def _listed(items: Any, labels: str | None, are_shards: bool) -> ListedItems | None:
    """Items with random access; None: they are a stream. Raises UserError."""
    is_path = not are_shards and isinstance(items, str | os.PathLike)
    is_folder = is_path and not is_url(os.fspath(items))
    if labels and not (labels == "folder" and is_folder):
        raise UserError(f"labels={labels!r}: give 'folder', with a folder, or leave it out")
    if are_shards:
        return None
    if is_path:
        return FolderItems(items, labels=bool(labels)) if is_folder else UrlItems(items)
    items = undecoded(items)
    if isinstance(items, bytes | Mapping):
        raise UserError(f"a {type(items).__name__} is one item: give a list of them")
    if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        return None
    # Of a list, an item is looked up again when its batch is there; elsewhere that may cost.
    return ListedItems(items, keeps=not isinstance(items, list | tuple))


def _epochs_of(items: Any, epochs: int) -> Callable[[Place], Iterable[Any]]:
    """What gives the items of an epoch. Raises UserError: of one epoch only."""
    first: Iterator[Any] = iterate(items)
    if first is not items:
        return lambda start: iterate(items, start.epoch)
    if epochs > 1:
        raise UserError(f"epochs={epochs}: an iterator has one; give what can be iterated again")
    left: list[Iterator[Any]] = [first]

    def once(_: Place) -> Iterable[Any]:
        if not left:
            raise UserError("an iterator has one epoch; give what can be iterated again")
        return left.pop()

    return once
