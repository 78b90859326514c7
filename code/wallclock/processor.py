"""What a model's own image processor does to one image, as a `Preprocess` and two statistics.

transformers resolves the defaults of a processor's class; what its code does with them is written
down here, class by class. What a `Preprocess` cannot say exactly is refused.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import getattr_static
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from wallclock import checkpoint
from wallclock.checkpoint import quiet
from wallclock.errors import UserError, first_line, import_extra, reason_of
from wallclock.files import cached, sha256_file
from wallclock.outside import printable
from wallclock.preprocess import FILTERS, Preprocess, Size
from wallclock.recipe import IMAGENET, ModelSpec, Statistics

_Values: TypeAlias = Mapping[str, Any]
#: Resize, its size, and the crop, as `Preprocess` has them.
_Geometry: TypeAlias = tuple[str, Size, Size | None]

#: facebook/dinov2-small's, for its architecture with random weights.
_OF_DINOV2 = Preprocess("shortest", (256, 256), (224, 224), "bicubic", rotate=True)
#: Pillow's numbers of the filters.
_FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
#: Classes that need torchvision and do the plain steps, of each of which their files must tell.
_TORCHVISION_ONLY = frozenset({"DINOv3ViTImageProcessor", "Tipsv2ImageProcessor"})


@dataclass(frozen=True)
class Processor:
    """The steps before the network: geometry, then `(pixels / 255 - mean) / std` for each channel.

    `preprocess` rotates, as transformers' `load_image` does before. `mean`, `std`: of pixels in
    [0, 1], RGB; a rescale factor and offset are folded into them.
    """

    preprocess: Preprocess
    mean: tuple[float, ...]
    std: tuple[float, ...]


class _RefusedError(Exception):
    """Why a processor cannot be taken over; the line around it names the processor."""


def read_processor(model: ModelSpec) -> Processor:
    """What the model's image processor does, by the files in its folder or the hub's cache.

    Raises UserError: there is no processor, or it does what a `Preprocess` cannot say exactly;
    `NoWeightsError` where the files cannot be had.
    """
    if model.weights == "random":
        return Processor(_OF_DINOV2, *IMAGENET)
    if model.weights == "none":
        raise UserError(f"model {model.name} has no image processor; type preprocess=squash")
    folder = checkpoint.folder_of(model)
    kind = "its image processor"
    try:
        config = checkpoint.read_json(folder / checkpoint.CONFIG)
        timm = config.get("pretrained_cfg")
        if timm is not None:
            kind = "timm's transform"
            return _of_timm(timm)
        values = checkpoint.processor_values(folder)
        _check_class({**config, **values})
        if not values:
            _refuse(f"is missing: there is no {checkpoint.PREPROCESSOR}")
        kind = printable(str(values.get("image_processor_type") or kind), 60)
        # transformers takes a second to import.
        names = (checkpoint.CONFIG, checkpoint.PREPROCESSOR, checkpoint.PROCESSOR)
        paths = (folder / name for name in names)
        depends = {path.name: sha256_file(path) for path in paths if path.is_file()}

        def make() -> tuple[str, *Statistics]:
            made = _of_transformers(folder, values)
            return str(made.preprocess), made.mean, made.std

        text, mean, std = cached("processors", depends, ("transformers",), make)
        return Processor(Preprocess.parse(text, sizes_differ=True), tuple(mean), tuple(std))
    except UserError:
        raise
    except Exception as error:  # of what a file may say there is no end
        reason = f"cannot be read: {reason_of(error)}".rstrip(".")
        reason = first_line(error) if isinstance(error, _RefusedError) else reason
        fix = "type preprocess=squash, or the steps: preprocess=shortest:256,crop:224x224,bicubic"
        raise UserError(f"{model.path or model.hub_id}: {kind} {reason}", fix) from error


def _check_class(values: _Values) -> None:
    """Refuse a class that is no image processor: the library would load any that it has."""
    for key in ("image_processor_type", "feature_extractor_type"):
        if not re.search("ImageProcessor|FeatureExtractor|^$", str(values.get(key) or "")):
            _refuse(f"has {key}={values[key]}, which is not an image processor")


def _refuse(reason: str) -> NoReturn:
    raise _RefusedError(reason)


def _of_transformers(folder: Path, values: _Values) -> Processor:
    if "AutoImageProcessor" in (values.get("auto_map") or {}):
        _refuse("is code of its own, which is not run")
    name = str(values.get("image_processor_type") or "").removesuffix("Fast")
    if name in _TORCHVISION_ONLY:
        return _of_torchvision(name, values)
    backends = import_extra("transformers.image_processing_backends", "preprocess=auto", "embed")
    with quiet("preprocess=auto") as transformers:
        processor = transformers.AutoImageProcessor.from_pretrained(
            str(folder), backend="pil", trust_remote_code=False, local_files_only=True
        )
    kind = type(processor)
    name = kind.__name__.removesuffix("Pil")
    if not isinstance(processor, backends.PilBackend):
        _refuse(f"({name}) has code that is not among those taken over")
    geometry_of = _BY_NAME.get(name)
    if geometry_of is None:
        for method in {*dir(backends.PilBackend)} - {"__init__"}:
            plain = getattr_static(backends.PilBackend, method)
            if callable(plain) and getattr_static(kind, method) is not plain:
                _refuse(f"({name}) has a {method} of its own that is not among those taken over")
        geometry_of = _plain
    return _folded(vars(processor), geometry_of, name)


def _of_torchvision(name: str, values: _Values) -> Processor:
    """Of a class that cannot be made here, and whose defaults therefore must be in its file.

    Its filter works on floats: pixels differ from Pillow's by the rounding to whole numbers.
    """
    wanted = ["do_resize", "size", "resample", "do_rescale", "do_normalize"]
    wanted += ["rescale_factor"] if values.get("do_rescale") else []
    wanted += ["image_mean", "image_std"] if values.get("do_normalize") else []
    absent = [key for key in wanted if values.get(key) is None]
    if absent:
        _refuse(f"has no {absent[0]} in its file, and needs torchvision for its default")
    if values.get("do_center_crop"):
        _refuse("crops, which its class is not read for")
    size = values["size"]
    sides = {"height": size, "width": size} if isinstance(size, int) else size
    return _folded({**values, "size": sides}, _plain, name)


def _folded(values: _Values, geometry_of: Callable[[_Values], _Geometry], name: str) -> Processor:
    """The processor of these settings; `name`: of its class."""
    if values.get("do_pad") or values.get("size_divisor"):
        _refuse(f"({name}) pads images, by do_pad or size_divisor")
    resize, size, crop = geometry_of(values)
    resample = values.get("resample") if resize != "none" else 2
    if not isinstance(resample, int) or int(resample) not in _FILTERS:
        _refuse(f"resizes by a filter that is not there: resample={resample}")
    preprocess = Preprocess(resize, size, crop, _FILTERS[int(resample)], rotate=True)
    mean, std = _statistics(values, name == "EfficientNetImageProcessor")
    return Processor(preprocess, mean, std)


def _statistics(values: _Values, is_efficientnet: bool) -> Statistics:
    """What the pixels / 255 are reduced by and divided by, in all: (255 f q - o - m) / s."""
    factor = values.get("rescale_factor") if values.get("do_rescale") else 1.0
    if not isinstance(factor, int | float) or not 0 < factor < math.inf:
        _refuse(f"has a rescale_factor of {factor}")
    mean: tuple[float, ...] = (0.0,) * 3
    std: tuple[float, ...] = (1.0,) * 3
    if values.get("do_normalize"):
        mean, std = _channels(values, "image_mean"), _channels(values, "image_std")
    if is_efficientnet:
        if values.get("do_rescale") and values.get("rescale_offset"):
            mean = tuple(value + 1.0 for value in mean)
        if values.get("include_top"):
            # Normalized a second time, with a mean of 0.
            again = _channels(values, "image_std")
            std = tuple(value * other for value, other in zip(std, again, strict=True))
    scale = 255.0 * factor
    return tuple(value / scale for value in mean), tuple(value / scale for value in std)


def _channels(values: _Values, name: str) -> tuple[float, ...]:
    return checkpoint.channels(values.get(name), name)


def _plain(values: _Values) -> _Geometry:
    """`PilBackend`: resize, then cut out the center."""
    crop = _crop(values)
    if not values.get("do_resize"):
        if crop is None:
            _refuse("neither resizes nor crops: images would differ in size")
        return "none", crop, crop
    sizes = _sizes(values)
    if "shortest_edge" in sizes and "longest_edge" in sizes:
        _refuse("bounds both the shortest and the longest edge")
    if "shortest_edge" in sizes:
        if crop is None:
            _refuse("keeps the aspect ratio and does not crop: images would differ in size")
        side = int(sizes["shortest_edge"])
        return "shortest", (side, side), crop
    if sizes.keys() & {"max_height", "max_width", "longest_edge"}:
        _refuse(f"resizes to size={sizes}")
    return "squash", _sides(sizes, "size"), crop


def _convnext(values: _Values) -> _Geometry:
    """Below 384 px: crop_pct of the shortest edge; from there on everything, squashed."""
    if not values.get("do_resize"):
        return _plain(values)
    shortest = _sizes(values).get("shortest_edge")
    if not shortest:
        _refuse("has no shortest_edge")
    crop, square = _crop(values), (int(shortest), int(shortest))
    if shortest >= 384:
        return "squash", square, crop
    if crop not in (None, square):
        _refuse("crops twice")
    share = values.get("crop_pct")
    if share is None:
        _refuse("has no crop_pct")
    side = int(shortest / float(share))
    return "shortest", (side, side), square


#: Classes with steps of their own → what the steps are. That EfficientNet rescales and normalizes
#: otherwise is in `_statistics`; BEiT and MobileNetV2 only reduce labels beside the plain steps.
_BY_NAME: Mapping[str, Callable[[_Values], _Geometry]] = {
    "BeitImageProcessor": _plain,
    "ConvNextImageProcessor": _convnext,
    "EfficientNetImageProcessor": _plain,
    "MobileNetV2ImageProcessor": _plain,
}


def _sizes(values: _Values, name: str = "size") -> dict[str, int]:
    """The keys of a size that are set."""
    sizes = {key: value for key, value in dict(values.get(name) or {}).items() if value}
    if not all(isinstance(side, int | float) for side in sizes.values()):
        _refuse(f"has {name}={sizes}, which is not a number")
    return sizes


def _crop(values: _Values) -> Size | None:
    if not values.get("do_center_crop"):
        return None
    return _sides(_sizes(values, "crop_size"), "crop_size")


def _sides(sizes: Mapping[str, int], name: str) -> Size:
    if not (sizes.get("height") and sizes.get("width")):
        _refuse(f"has {name}={dict(sizes)}, without a height and a width")
    return int(sizes["height"]), int(sizes["width"])


def _of_timm(config: _Values) -> Processor:
    """timm's transform for evaluation, by a checkpoint's `pretrained_cfg`.

    torchvision's crop rounds half a pixel to the even number, `Preprocess` rounds it down.
    """
    channels, height, width = config.get("input_size") or (3, 224, 224)
    share, mode = config.get("crop_pct") or 0.875, config.get("crop_mode") or "center"
    interpolation = config.get("interpolation") or "bicubic"
    if channels != 3:
        _refuse(f"takes {channels} channels")
    if interpolation not in FILTERS:
        _refuse(f"resizes by a filter that is not there: interpolation={interpolation}")
    if mode not in ("center", "squash"):
        _refuse(f"has crop_mode={mode}")
    if mode == "center" and height != width:
        _refuse(f"resizes the shortest edge for {height}x{width} px")
    if config.get("crop_border_pixels"):
        _refuse("trims borders")
    size = math.floor(height / share), math.floor(width / share)
    resize = "squash" if mode == "squash" else "shortest"
    preprocess = Preprocess(resize, size, (height, width), interpolation, rotate=True)
    if preprocess.resize == "squash" and preprocess.size == preprocess.crop:
        preprocess = replace(preprocess, crop=None)
    defaults = {"image_mean": IMAGENET[0], "image_std": IMAGENET[1]}
    given = {"image_mean": config.get("mean"), "image_std": config.get("std")}
    values = {**defaults, **{key: value for key, value in given.items() if value is not None}}
    return Processor(preprocess, _channels(values, "image_mean"), _channels(values, "image_std"))
