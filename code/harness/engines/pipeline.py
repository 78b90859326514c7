"""The nine stages bound to one recipe, ready for an engine to call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness import runtimes, sinks
from harness.corpora import readers
from harness.corpora.manifest import Item, Manifest
from harness.spec import Recipe
from wallclock.errors import UserError, image_errors
from wallclock.infer.finite import not_finite, rows_not_finite
from wallclock.infer.network import Embedder, open_embedder
from wallclock.loader.batch import Failure
from wallclock.loader.loading import Loading
from wallclock.loader.prepare import DecodeImage
from wallclock.loader.resizing import Arrays, PlaceImage
from wallclock.loader.threads import Feed
from wallclock.recipe import ModelSpec
from wallclock.stages import augment, normalize, resize
from wallclock.stages.augment import Augmentation
from wallclock.stages.decode import PixelArray
from wallclock.stages.pixels import Vectors


@dataclass(frozen=True)
class LoadStages:
    """The stages before the device, one callable each: four that take an image, and `assemble`.

    This is what a DataLoader worker runs; it needs neither the model nor the device. `labels`
    names the decoder, the resizer and the corpus layout that were bound.
    """

    read: Callable[[Item], bytes]
    decode: Callable[[Item, bytes], PixelArray]
    resize: Callable[[Item, PixelArray], PixelArray]
    normalize: Callable[[PixelArray], Arrays]
    assemble: Callable[[Sequence[Arrays]], Arrays]
    labels: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def load_pixels(self, item: Item) -> PixelArray:
        """An image that is read, decoded and resized: uint8 (px, px, 3). Raises ImageError."""
        return self.resize(item, self.decode(item, self.read(item)))


@dataclass(frozen=True)
class DeviceStages(Embedder):
    """The four stages that take a batch: an embedder, and the sink.

    `finish` completes the sink's file, `output`. `dropped`: images whose vectors were not finite,
    which the sink did not get.
    """

    serialize: Callable[[Sequence[str], Vectors], None] = field(default=lambda ids, vectors: None)
    finish: Callable[[], None] = field(default=lambda: None)
    output: Path | None = None
    dropped: Sequence[Failure] = ()


@dataclass(frozen=True)
class AugmentedItem(Item):
    """An image as one epoch of a training sees it."""

    augmentation: Augmentation | None = None


@dataclass(frozen=True)
class RequestedItems:
    """The image at a position; past the last one they start over, in the next epoch.

    In every epoch an image is augmented anew where the recipe says so. A class, so that a spawned
    worker can have it.
    """

    items: Sequence[Item]
    augments: bool
    seed: int

    def __call__(self, position: int) -> Item:
        """The image at a position."""
        epoch, index = divmod(position, len(self.items))
        item = self.items[index]
        if not self.augments:
            return item
        augmentation = augment.draw(item.width, item.height, self.seed, epoch, index)
        values: dict[str, Any] = {f.name: getattr(item, f.name) for f in fields(Item)}
        return AugmentedItem(**values, augmentation=augmentation)


def requested(manifest: Manifest, recipe: Recipe, model: ModelSpec) -> RequestedItems:
    """The valid images of a manifest, by position."""
    return RequestedItems(manifest.valid, recipe.augment != "none", model.seed)


def feed_of(manifest: Manifest, recipe: Recipe, model: ModelSpec) -> Feed:
    """The valid images of a manifest, for the loader of threads."""
    item_at = requested(manifest, recipe, model)
    return Feed(readers.make(manifest), len(item_at.items), item_at)


def loading_of(recipe: Recipe, model: ModelSpec) -> Loading:
    """How the product's loader takes an image to its row, or does so before the device crops it."""
    px = augment.CANVAS_PX if recipe.augment == "device" else model.input_px
    statistics = model.statistics if recipe.normalize_on == "host" else None
    crops = recipe.augment == "cpu"
    return replace(Loading.of(recipe, px), statistics=statistics, crops=crops)


def loaded_px(recipe: Recipe, model: ModelSpec) -> int:
    """Side of the square images that the loader delivers. Raises UserError: they are no squares."""
    height, width = loading_of(recipe, model).geometry.canvas
    if height != width:
        raise UserError(f"recipe.preprocess={recipe.preprocess}: only squares are measured")
    return height


def load_stages(recipe: Recipe, model: ModelSpec, manifest: Manifest) -> LoadStages:
    """Bind the stages before the device. Raises as `in_place_stages` does."""
    px, loading = loaded_px(recipe, model), loading_of(recipe, model)
    # The decomposition times arrays between its stages.
    decode_image = DecodeImage(loading, as_array=recipe.engine == "serial")
    labels, resize_image = _resize_stage(recipe, loading, px)
    reader = readers.make(manifest)
    on_host = recipe.normalize_on == "host"
    return LoadStages(
        read=image_errors("read", reader.layout, reader.__call__),
        decode=decode_image.__call__,
        resize=resize_image,
        # Left to the device, pixels pass unchanged.
        normalize=normalize.make(*model.statistics) if on_host else lambda pixels: pixels,
        assemble=np.stack,
        labels={"decoder": decode_image.decoder, "layout": reader.layout} | labels,
    )


def _resize_stage(
    recipe: Recipe, loading: Loading, px: int
) -> tuple[dict[str, str], Callable[[Item, PixelArray], PixelArray]]:
    """Labels of what resizes, and what makes a new array (px, px, 3) of decoded pixels."""
    if recipe.preprocess != "squash":
        place = PlaceImage(loading.geometry, recipe.resizer)

        def place_image(item: Item, pixels: PixelArray) -> PixelArray:
            row = np.empty((px, px, 3), np.uint8)
            place.resize_into(item, pixels, place.as_destination(row))
            return row

        return place.labels | {"preprocess": recipe.preprocess}, place_image
    resizer = resize.make(recipe.resizer, recipe.interpolation, px)

    def resize_image(item: Item, pixels: PixelArray) -> PixelArray:
        augmentation = item.augmentation if loading.crops else None
        if augmentation:
            cropped = augment.crop(pixels, augmentation)
            return augment.finish(resizer.resize(cropped), augmentation)
        return resizer.resize(pixels, (item.height, item.width))

    labels = resizer.labels | {"preprocess": recipe.preprocess}
    return labels, image_errors("resize", resizer.name, resize_image)


def cache_of(work: Path) -> Path:
    """`<out>/onnx`, for a cell's scratch folder `<out>/runs/<experiment>/<scratch>`."""
    return work.parent.parent.parent / "onnx"


def device_stages(recipe: Recipe, model: ModelSpec, folder: Path) -> DeviceStages:
    """Bind the stages that take a batch, and the sink's file in a folder.

    Raises UserError for augmented images, and as `open_embedder` does.
    """
    if recipe.augment != "none":
        raise UserError(f"recipe.augment={recipe.augment}: only training augments images")
    make = partial(runtimes.make, cache=cache_of(folder))
    embedder = open_embedder(recipe, model, make=make)
    sink = sinks.make(recipe.sink, folder, model.dim)
    finite = _FiniteSink(sink.write, embedder.labels["dtype"])
    return DeviceStages(
        **vars(embedder),
        serialize=finite.write,
        finish=sink.close,
        output=sink.path,
        dropped=finite.dropped,
    )


class _FiniteSink:
    """Passes vectors to a sink's `write`, but those that are not finite."""

    def __init__(self, write: Callable[[Sequence[str], Vectors], None], dtype: str) -> None:
        self._write, self._dtype = write, dtype
        self.dropped: list[Failure] = []

    def write(self, ids: Sequence[str], vectors: Vectors) -> None:
        if rows := rows_not_finite(vectors):
            error = not_finite(self._dtype, "recipe.dtype")
            why = {"stage": error.stage, "reason": error.reason}
            self.dropped += [{"id": ids[row], **why} for row in rows]
            ids, vectors = np.delete(ids, rows).tolist(), np.delete(vectors, rows, axis=0)
        self._write(ids, vectors)


def null_stages() -> tuple[LoadStages, DeviceStages]:
    """Stages that do nothing: what is left is the harness's own cost."""
    pixels = np.zeros((1, 1, 3), dtype=np.uint8)
    floats = np.zeros((3, 1, 1), dtype=np.float32)
    vectors = np.zeros((1, 1), dtype=np.float32)
    load = LoadStages(
        read=lambda item: b"",
        decode=lambda item, data: pixels,
        resize=lambda item, pixels: pixels,
        normalize=lambda pixels: floats,
        assemble=lambda images: floats,
    )
    device = DeviceStages(
        h2d=lambda batch: batch, forward=lambda batch: vectors, d2h=lambda result: vectors
    )
    return load, device
