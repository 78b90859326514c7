"""The nine stages bound to one recipe, ready for an engine to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.corpus import readers
from wallclock.corpus.manifest import Item
from wallclock.spec import IMAGENET, ModelSpec, Recipe, Statistics
from wallclock.stages import assemble, decode, forward, normalize, resize, sinks, transfer
from wallclock.stages.pixels import Pixels

Floats = npt.NDArray[np.float32]
#: Normalized float32 (3, h, w), or uint8 (h, w, 3) where the device normalizes; or n of them.
Images = npt.NDArray[Any]


@dataclass(frozen=True)
class Loader:
    """The stages before the device, one callable each: four that take an image, and `assemble`.

    `expect` announces the images that will be read next, for a reader that can fetch ahead. This is
    what a DataLoader worker runs; it needs neither the model nor the device.
    """

    read: Callable[[Item], bytes]
    decode: Callable[[Item, bytes], Pixels]
    resize: Callable[[Item, Pixels], Pixels]
    normalize: Callable[[Pixels], Images]
    assemble: Callable[[Sequence[Images]], Images]
    expect: Callable[[Sequence[Item]], None] = field(default=lambda items: None, kw_only=True)


@dataclass(frozen=True)
class RowLoader:
    """The stages before the device for one thread of a loader that fills rows of a batch.

    `prepare` turns a row of a batch buffer into what `place` takes; `place` resizes into it, and
    normalizes on the way where the recipe does so on the host.
    """

    read: Callable[[Item], bytes]
    decode: Callable[[Item, bytes], Pixels]
    prepare: Callable[[Any], Any]
    place: Callable[[Item, Pixels, Any], None]


@dataclass(frozen=True)
class Pipeline(Loader):
    """All nine stages; the last four take a batch.

    `finish` is the tail of `serialize`: it makes the sink's file whole.
    """

    h2d: Callable[[Images], Any]
    forward: Callable[[Any], Any]
    d2h: Callable[[Any], Floats]
    serialize: Callable[[Sequence[str], Floats], None]
    finish: Callable[[], None]
    synchronize: Callable[[], object] | None
    weights_digest: str
    output: Path | None


def build_loader(
    recipe: Recipe, input_px: int, root: Path, statistics: Statistics = IMAGENET
) -> Loader:
    """Bind the stages before the device. Raises as `build` does."""
    decode_jpeg = decode.make(recipe.decoder, scaling_of(recipe, input_px))
    resizer = resize.make(recipe.resizer, recipe.interpolation, input_px)
    reader = readers.make(root)
    return Loader(
        read=reader,
        expect=reader.expect,
        decode=lambda item, data: (
            decode_jpeg(data) if item.plain_jpeg else decode.decode_other(data)
        ),
        resize=lambda item, pixels: resizer.resize(pixels, (item.height, item.width)),
        # Left to the device, pixels pass as they are.
        normalize=normalize.make(*statistics)
        if recipe.normalize_on == "host"
        else lambda pixels: pixels,
        assemble=assemble.stack,
    )


def build_rows(
    recipe: Recipe, input_px: int, reader: readers.Reader, statistics: Statistics = IMAGENET
) -> RowLoader:
    """Bind the stages before the device for one thread; `reader` is shared by all. Raises as `build` does.

    Rows are uint8 (h, w, 3), or float32 (3, h, w) where the recipe normalizes on the host.
    """
    decode_jpeg = decode.make(recipe.decoder, scaling_of(recipe, input_px), reuse=True)
    resizer = resize.make(recipe.resizer, recipe.interpolation, input_px)

    def decode_any(item: Item, data: bytes) -> Pixels:
        return decode_jpeg(data) if item.plain_jpeg else decode.decode_other(data)

    if recipe.normalize_on == "device":
        return RowLoader(
            reader,
            decode_any,
            resizer.as_destination,
            lambda item, pixels, row: resizer.resize_into(row, pixels, (item.height, item.width)),
        )
    scratch = np.empty((input_px, input_px, 3), dtype=np.uint8)
    prepared, to_float_chw = resizer.as_destination(scratch), normalize.make(*statistics)

    def place(item: Item, pixels: Pixels, row: Floats) -> None:
        resizer.resize_into(prepared, pixels, (item.height, item.width))
        row[...] = to_float_chw(scratch)

    return RowLoader(reader, decode_any, lambda row: row, place)


def scaling_of(recipe: Recipe, input_px: int) -> decode.Scaling | None:
    """How far the recipe lets decode stay below an image's full size."""
    return decode.Scaling(input_px, recipe.dct_margin) if recipe.dct_scale == "auto" else None


def build(recipe: Recipe, model: ModelSpec, root: Path, folder: Path) -> Pipeline:
    """Bind a recipe's stages.

    Args:
        root: where the corpus lies.
        folder: where the sink's file goes.

    Raises:
        UserError: an unknown name, or weights that cannot be had.
        Unavailable: a library or device that the recipe needs is not here.
    """
    device = recipe.device if model.weights != "none" else "null"
    move = transfer.make(device)
    on_device = None
    if recipe.normalize_on == "device" and device != "null":
        on_device = normalize.on_device(*model.statistics, device)
    network = forward.make(model, recipe, on_device, forward.cache_of(folder))
    sink = sinks.make(recipe.sink, folder, model.dim)
    return Pipeline(
        **vars(build_loader(recipe, model.input_px, root, model.statistics)),
        h2d=move.h2d,
        forward=network.run,
        d2h=move.d2h,
        serialize=sink.write,
        finish=sink.close,
        synchronize=move.synchronize,
        weights_digest=network.weights_digest,
        output=sink.path,
    )


def null() -> Pipeline:
    """Stages that do nothing: what is left is the harness's own cost."""
    pixels = np.zeros((1, 1, 3), dtype=np.uint8)
    floats = np.zeros((3, 1, 1), dtype=np.float32)
    vectors = np.zeros((1, 1), dtype=np.float32)
    return Pipeline(
        read=lambda item: b"",
        decode=lambda item, data: pixels,
        resize=lambda item, pixels: pixels,
        normalize=lambda pixels: floats,
        assemble=lambda images: floats,
        h2d=lambda batch: batch,
        forward=lambda batch: vectors,
        d2h=lambda result: vectors,
        serialize=lambda ids, vectors: None,
        finish=lambda: None,
        synchronize=None,
        weights_digest="none",
        output=None,
    )
