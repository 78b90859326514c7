"""The nine stages bound to one recipe, ready for an engine to call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from wallclock.clock import STAGES, profilers_nvtx
from wallclock.corpus import readers
from wallclock.corpus.manifest import Item, Manifest
from wallclock.corpus.sources import Inspected
from wallclock.errors import UserError, image_errors
from wallclock.spec import ModelSpec, Recipe
from wallclock.stages import augment, decode, forward, normalize, resize, sinks, transfer
from wallclock.stages.augment import Augmentation
from wallclock.stages.decode import DecodeMany, scans
from wallclock.stages.pixels import Pixels

Floats = npt.NDArray[np.float32]
#: Normalized float32 (3, h, w), or uint8 (h, w, 3) where the device normalizes; or n of them.
Images = npt.NDArray[Any]

P = ParamSpec("P")
T = TypeVar("T", bound="LoadStages | InPlaceStages | DeviceStages")


@dataclass(frozen=True)
class LoadStages:
    """The stages before the device, one callable each: four that take an image, and `assemble`.

    `prefetch` announces the images that will be read next, for a reader that can fetch ahead.
    This is what a DataLoader worker runs; it needs neither the model nor the device. `labels`
    names the decoder, the resizer and the corpus layout that were bound.
    """

    read: Callable[[Item], bytes]
    decode: Callable[[Item, bytes], Pixels]
    resize: Callable[[Item, Pixels], Pixels]
    normalize: Callable[[Pixels], Images]
    assemble: Callable[[Sequence[Images]], Images]
    prefetch: Callable[[Sequence[Item]], None] = field(default=lambda items: None, kw_only=True)
    labels: Mapping[str, str] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class InPlaceStages:
    """The stages before the device for one thread that fills rows of a batch buffer.

    `as_destination` turns a row of the buffer into what `resize_into` takes; `resize_into`
    resizes into it, and normalizes on the way where the recipe does so on the host. `decode_many`
    is for a decoder that takes several JPEGs in one call.
    """

    read: Callable[[Item], bytes]
    decode: Callable[[Item, bytes], Pixels]
    as_destination: Callable[[Any], Any]
    resize_into: Callable[[Item, Pixels, Any], None]
    labels: Mapping[str, str] = field(default_factory=dict)
    decode_many: DecodeMany | None = None


#: Binds the stages of one thread; all threads share the reader.
BuildInPlace = Callable[[Recipe, ModelSpec, readers.Reader], InPlaceStages]


@dataclass(frozen=True)
class DeviceStages:
    """The four stages that take a batch.

    `finish` completes the sink's file. `labels` says what really runs: runtime, provider, dtype.
    """

    h2d: Callable[[Any], Any]
    forward: Callable[[Any], Any]
    d2h: Callable[[Any], Floats]
    serialize: Callable[[Sequence[str], Floats], None]
    finish: Callable[[], None]
    synchronize: Callable[[], object] | None = None
    weights_digest: str = "none"
    output: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AugmentedItem(Item):
    """An image as one epoch of a training sees it."""

    augmentation: Augmentation | None = None


@dataclass(frozen=True)
class _Requested:
    """See `requested`. A class, so that a spawned worker can have it."""

    items: Sequence[Item]
    augments: bool
    seed: int

    def __call__(self, position: int) -> Item:
        epoch, index = divmod(position, len(self.items))
        item = self.items[index]
        if not self.augments:
            return item
        drawn = augment.draw(item.width, item.height, self.seed, epoch, index)
        values: dict[str, Any] = {of.name: getattr(item, of.name) for of in fields(Item)}
        return AugmentedItem(**values, augmentation=drawn)


def requested(manifest: Manifest, recipe: Recipe, model: ModelSpec) -> _Requested:
    """The image at a position; past the last one they start over, in the next epoch.

    In every epoch an image is augmented anew where the recipe says so.
    """
    return _Requested(manifest.valid, recipe.augment != "none", model.seed)


def augmentation_of(item: Item) -> Augmentation | None:
    """What was drawn for this request of the image; None: nothing."""
    return item.augmentation if isinstance(item, AugmentedItem | Inspected) else None


@dataclass(frozen=True)
class Feed:
    """What a loader of threads loads: `item_at` a position, read by `reader`.

    Where the images are unlisted, `inspect` takes a position, what `item_at` gave and its
    bytes; it returns an `Inspected`, and whether to decode it. `also` makes something else of what
    was decoded: from the bytes, the image and its pixels, which are valid until it returns.
    """

    reader: readers.Reader
    n: int
    item_at: Callable[[int], Any]
    inspect: Callable[[int, Any, bytes], tuple[Inspected, bool]] | None = None
    also: Callable[[bytes, Any, Pixels], bytes | None] | None = None

    @staticmethod
    def of(manifest: Manifest, recipe: Recipe, model: ModelSpec) -> "Feed":
        """The valid images of a manifest."""
        images = requested(manifest, recipe, model)
        return Feed(readers.make(manifest), len(images.items), images)


def loaded_px(recipe: Recipe, model: ModelSpec) -> int:
    """Side of the square images that the loader delivers: larger where the device crops."""
    return augment.CANVAS_PX if recipe.augment == "device" else model.input_px


def _in_ranges(bind: Callable[Concatenate[Recipe, P], T]) -> Callable[Concatenate[Recipe, P], T]:
    """Stages whose calls are NVTX ranges where Nsight Systems runs the process, in any thread.

    Those of engine `serial` are already: its stage profiler sees to that.
    """

    @wraps(bind)
    def bound(recipe: Recipe, /, *args: P.args, **options: P.kwargs) -> T:
        stages, nvtx = bind(recipe, *args, **options), profilers_nvtx()
        if nvtx is None or recipe.engine == "serial":
            return stages
        begin, end = nvtx

        def ranged(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                begin(name)
                try:
                    return function(*arguments)
                finally:
                    end()

            return call

        fields = {"resize_into": "resize", **{name: name for name in STAGES}}
        calls = {at: getattr(stages, at) for at in fields if hasattr(stages, at)}
        changes: Any = {at: ranged(fields[at], call) for at, call in calls.items()}
        return replace(stages, **changes)

    return bound


@_in_ranges
def load_stages(recipe: Recipe, model: ModelSpec, manifest: Manifest) -> LoadStages:
    """Bind the stages before the device. Raises as `device_stages` does."""
    decode_any, resizer, labels = _decode_and_resize(recipe, loaded_px(recipe, model))
    reader, crops = readers.make(manifest), recipe.augment == "cpu"

    def resize_one(item: Item, pixels: Pixels) -> Pixels:
        if crops and (drawn := augmentation_of(item)):
            return augment.finish(resizer.resize(augment.crop(pixels, drawn)), drawn)
        return resizer.resize(pixels, (item.height, item.width))

    on_host = recipe.normalize_on == "host"
    return LoadStages(
        read=image_errors("read", reader.layout, reader.__call__),
        prefetch=reader.prefetch,
        decode=decode_any,
        resize=image_errors("resize", resizer.name, resize_one),
        # Left to the device, pixels pass unchanged.
        normalize=normalize.make(*model.statistics) if on_host else lambda pixels: pixels,
        assemble=np.stack,
        labels={**labels, "layout": reader.layout},
    )


@_in_ranges
def in_place_stages(recipe: Recipe, model: ModelSpec, reader: readers.Reader) -> InPlaceStages:
    """Bind the stages before the device for one thread; all threads share `reader`.

    Rows are uint8 (h, w, 3), or float32 (3, h, w) where the recipe normalizes on the host.
    Raises as `device_stages` does.
    """
    px, crops = loaded_px(recipe, model), recipe.augment == "cpu"
    decode_any, resizer, labels = _decode_and_resize(recipe, px, reuse=True)
    labels = {**labels, "layout": reader.layout}
    read = image_errors("read", reader.layout, reader.__call__)

    def resize_into(item: Item, pixels: Pixels, row: Any) -> None:
        # A crop has no size in the file that would bound it.
        resizer.resize_into(row, pixels, None if crops else (item.height, item.width))

    resize_row = image_errors("resize", resizer.name, resize_into)
    make_many = decode.DECODERS[recipe.decoder].make_many
    many = make_many() if make_many is not None else None
    on_host = recipe.normalize_on == "host"
    if not on_host and not crops:
        return InPlaceStages(read, decode_any, resizer.as_destination, resize_row, labels, many)
    scratch = np.empty((px, px, 3), dtype=np.uint8)
    destination, to_float_chw = resizer.as_destination(scratch), normalize.make(*model.statistics)

    def resize_and_finish(item: Item, pixels: Pixels, row: Images) -> None:
        drawn = augmentation_of(item) if crops else None
        resize_row(item, augment.crop(pixels, drawn) if drawn else pixels, destination)
        image = augment.finish(scratch, drawn) if drawn else scratch
        row[...] = to_float_chw(image) if on_host else image

    return InPlaceStages(read, decode_any, lambda row: row, resize_and_finish, labels, many)


def free_stages(recipe: Recipe, model: ModelSpec, reader: readers.Reader) -> InPlaceStages:
    """As `in_place_stages`, but decode and resize return at once: what the engine itself costs."""
    pixels = np.zeros((1, 1, 3), dtype=np.uint8)
    return replace(
        in_place_stages(recipe, model, reader),
        decode=lambda item, data: pixels,
        resize_into=lambda item, pixels, row: None,
    )


def _decode_and_resize(
    recipe: Recipe, input_px: int, *, reuse: bool = False
) -> tuple[Callable[[Item, bytes], Pixels], resize.Resizer, dict[str, str]]:
    scaled, crops = recipe.dct_scale == "auto", recipe.augment == "cpu"
    scaling = decode.Scaling(input_px, recipe.dct_margin) if scaled else None
    # The decomposition times arrays between its stages, and a crop is cut from one; a job has no
    # need of them.
    next_stage = "" if recipe.engine == "serial" or crops else recipe.resizer
    decode_jpeg = decode.make(recipe.decoder, scaling, reuse=reuse, resizer=next_stage)
    resizer = resize.make(recipe.resizer, recipe.interpolation, input_px)
    cuts = recipe.progressive != "full"
    cut = scans.cutter(scaling, recipe.progressive) if scaling and cuts else None

    def decode_any(item: Item, data: bytes) -> Pixels:
        if scaling:
            if crops and (drawn := augmentation_of(item)):
                scaling.used = drawn.width, drawn.height
            # A listed size is what the file had; an inspected one, what these bytes have.
            scaling.size = (item.width, item.height) if isinstance(item, Inspected) else None
        if not item.plain_jpeg:
            return decode.decode_other(data)
        if cut is not None and item.process == "progressive":
            data = cut(data)
        return decode_jpeg(data)

    labels = {"decoder": decode.name_of(decode_jpeg), "resizer": resizer.name}
    return decode_any, resizer, labels


@_in_ranges
def device_stages(recipe: Recipe, model: ModelSpec, folder: Path) -> DeviceStages:
    """Bind the stages that take a batch, and the sink's file in a folder.

    Raises as `network_stages` does.
    """
    stages = network_stages(recipe, model, forward.cache_of(folder))
    sink = sinks.make(recipe.sink, folder, model.dim)
    return replace(stages, serialize=sink.write, finish=sink.close, output=sink.path)


def network_stages(recipe: Recipe, model: ModelSpec, cache: Path) -> DeviceStages:
    """Bind h2d, forward and d2h; `serialize` does nothing.

    Args:
        cache: where exported graphs are kept.

    Raises:
        UserError: an unknown name, or weights that cannot be had; or vectors of augmented images.
        Unavailable: a library or device that the recipe needs is not here.
    """
    if recipe.augment != "none":
        raise UserError(f"recipe.augment={recipe.augment}: training augments (--experiment train)")
    device = recipe.device if model.weights != "none" else "null"
    move = transfer.make(device)
    on_device = None
    if recipe.normalize_on == "device" and device != "null":
        on_device = normalize.on_device(*model.statistics, device)
    network = forward.make(model, recipe, on_device, cache)
    labels = {name: getattr(network, name) for name in ("runtime", "provider", "dtype", "compile")}
    return DeviceStages(
        h2d=move.h2d,
        forward=network.run,
        d2h=move.d2h,
        serialize=lambda ids, vectors: None,
        finish=lambda: None,
        synchronize=move.synchronize,
        weights_digest=network.weights_digest,
        labels=labels,
    )


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
        h2d=lambda batch: batch,
        forward=lambda batch: vectors,
        d2h=lambda result: vectors,
        serialize=lambda ids, vectors: None,
        finish=lambda: None,
    )
    return load, device
