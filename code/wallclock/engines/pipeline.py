"""The nine stages bound to one recipe, ready for an engine to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.corpus.manifest import Item
from wallclock.spec import IMAGENET, ModelSpec, Recipe, Statistics
from wallclock.stages import assemble, decode, forward, normalize, read, resize, sinks, transfer
from wallclock.stages.pixels import Pixels

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Loader:
    """The stages before the device, one callable each: four that take an image, and `assemble`.

    `expect` announces the images that will be read next, for a reader that can fetch ahead. This is
    what a DataLoader worker runs; it needs neither the model nor the device.
    """

    read: Callable[[Item], bytes]
    decode: Callable[[Item, bytes], Pixels]
    resize: Callable[[Pixels], Pixels]
    normalize: Callable[[Pixels], Floats]
    assemble: Callable[[Sequence[Floats]], Floats]
    expect: Callable[[Sequence[Item]], None] = field(default=lambda items: None, kw_only=True)


@dataclass(frozen=True)
class Pipeline(Loader):
    """All nine stages; the last four take a batch.

    `finish` is the tail of `serialize`: it makes the sink's file whole.
    """

    h2d: Callable[[Floats], Any]
    forward: Callable[[Any], Any]
    d2h: Callable[[Any], Floats]
    serialize: Callable[[Sequence[str], Floats], None]
    finish: Callable[[], None]
    synchronize: Callable[[], object] | None
    weights_digest: str
    output: Path | None


def build_loader(recipe: Recipe, input_px: int, root: Path, statistics: Statistics = IMAGENET) -> Loader:
    """Bind the stages before the device. Raises as `build` does."""
    decode_jpeg = decode.make(recipe.decoder)
    reader = read.make(root)
    return Loader(
        read=reader,
        expect=reader.expect,
        decode=lambda item, data: decode_jpeg(data) if item.plain_jpeg else decode.decode_other(data),
        resize=resize.make(recipe.resizer, recipe.interpolation, input_px),
        normalize=normalize.make(*statistics),
        assemble=assemble.stack,
    )


def build(recipe: Recipe, model: ModelSpec, root: Path, folder: Path) -> Pipeline:
    """Bind a recipe's stages.

    Args:
        root: where the corpus lies.
        folder: where the sink's file goes.

    Raises:
        UserError: an unknown name, or weights that cannot be had.
        Unavailable: a library or device that the recipe needs is not here.
    """
    move = transfer.make(recipe.device if model.weights != "none" else "null")
    network = forward.make(model, recipe.device, recipe.dtype)
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
        resize=lambda pixels: pixels,
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
