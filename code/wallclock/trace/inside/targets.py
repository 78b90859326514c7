"""Which functions are counted, and as what. Data: a new library is a few lines here.

A row: the path inside its module, the stage, the note of `notes` that its calls leave (empty for
none), and the name to show where the module's own is private. What a version lacks is left out.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """A function to count."""

    path: str
    stage: str
    note: str = ""
    name: str = ""


_PILLOW = (
    Row("open", "decode"),
    Row("Image.draft", "decode", name="PIL.Image.draft"),
    Row("Image.resize", "resize", "resized_image", "PIL.Image.resize"),
    Row("Image.reduce", "resize", "resized_image", "PIL.Image.reduce"),
    Row("Image.thumbnail", "resize", name="PIL.Image.thumbnail"),
    *(
        Row(f"Image.{method}", "transform", name=f"PIL.Image.{method}")
        for method in ("transpose", "rotate", "transform", "crop", "point", "filter", "tobytes")
    ),
    Row("fromarray", "transform"),
    Row("Image.save", "serialize", "saved_image", "PIL.Image.save"),
)

_PILLOW_OPS = (
    *(Row(name, "resize") for name in ("fit", "contain", "cover", "pad", "scale")),
    *(
        Row(name, "transform")
        for name in ("exif_transpose", "flip", "mirror", "autocontrast", "equalize", "grayscale")
    ),
)

_CV2 = (
    Row("imread", "decode", "decoded_file"),
    Row("imdecode", "decode", "decoded_data"),
    Row("resize", "resize", "resized_array"),
    *(
        Row(name, "transform")
        for name in ("cvtColor", "flip", "rotate", "warpAffine", "warpPerspective", "remap")
    ),
    *(Row(name, "transform") for name in ("GaussianBlur", "copyMakeBorder", "LUT")),
    Row("normalize", "normalize"),
    Row("imwrite", "serialize"),
    Row("imencode", "serialize"),
)

_TORCHVISION_IO = (
    Row("read_file", "read", "read_file", "torchvision.io.read_file"),
    *(
        Row(name, "decode", "decoded_data", f"torchvision.io.{name}")
        for name in ("decode_image", "decode_jpeg", "decode_png", "decode_webp", "decode_gif")
    ),
    Row("read_image", "decode", name="torchvision.io.read_image"),
    *(
        Row(name, "serialize", name=f"torchvision.io.{name}")
        for name in ("encode_jpeg", "encode_png", "write_jpeg", "write_png", "write_file")
    ),
)

#: Those that are modules of torch pass `Module.__call__`.
_TORCHVISION_CLASSES = (
    *(
        Row(f"{name}.__call__", "transform", "count_image", f"torchvision.transforms.{name}")
        for name in ("ToTensor", "PILToTensor", "ToPILImage")
    ),
)

_TORCHVISION_FUNCTIONS = (
    Row("resize", "resize", name="torchvision.transforms.functional.resize"),
    Row("resized_crop", "resize", name="torchvision.transforms.functional.resized_crop"),
    Row("normalize", "normalize", name="torchvision.transforms.functional.normalize"),
    *(
        Row(name, "transform", name=f"torchvision.transforms.functional.{name}")
        for name in ("to_tensor", "pil_to_tensor", "center_crop", "hflip", "vflip", "rotate")
    ),
)

_TRANSFORMERS = (
    Row("resize", "resize"),
    Row("normalize", "normalize"),
    Row("rescale", "normalize"),
    *(
        Row(name, "transform")
        for name in ("center_crop", "pad", "convert_to_rgb", "to_channel_dimension_format")
    ),
)

_PROCESSOR_STAGES = {
    "resize": "resize",
    "rescale": "normalize",
    "normalize": "normalize",
    "rescale_and_normalize": "normalize",
    "center_crop": "transform",
    "pad": "transform",
    "process_image": "transform",
    "convert_to_rgb": "transform",
}


def _processor(*classes: str) -> tuple[Row, ...]:
    return tuple(
        Row(f"{cls}.{method}", stage, name=f"transformers image processor: {method}")
        for cls in classes
        for method, stage in _PROCESSOR_STAGES.items()
    )


#: Module → its functions.
FUNCTIONS: dict[str, tuple[Row, ...]] = {
    "PIL.Image": _PILLOW,
    "PIL.ImageOps": _PILLOW_OPS,
    "PIL.WebPImagePlugin": (Row("WebPImageFile.load", "decode", name="PIL WebP load"),),
    "PIL.AvifImagePlugin": (Row("AvifImageFile.load", "decode", name="PIL AVIF load"),),
    "pillow_heif.as_plugin": (Row("_LibHeifImageFile.load", "decode", name="pillow_heif load"),),
    "cv2": _CV2,
    "simplejpeg": (Row("decode_jpeg", "decode", "decoded_data"), Row("encode_jpeg", "serialize")),
    "turbojpeg": (
        Row("TurboJPEG.decode", "decode", "decoded_data"),
        Row("TurboJPEG.crop", "transform"),
        Row("TurboJPEG.encode", "serialize"),
    ),
    "torchvision.io.image": _TORCHVISION_IO,
    "torchvision.transforms.transforms": _TORCHVISION_CLASSES,
    "torchvision.transforms.functional": _TORCHVISION_FUNCTIONS,
    "transformers.image_transforms": _TRANSFORMERS,
    "transformers.image_processing_utils": (
        Row("BaseImageProcessor.__call__", "transform", name="transformers image processor"),
    ),
    "transformers.image_processing_utils_fast": _processor("BaseImageProcessorFast"),
    "transformers.image_processing_backends": _processor("TorchvisionBackend", "PilBackend"),
    "albumentations.core.transforms_interface": (
        Row("BasicTransform.__call__", "transform", "count_image", "albumentations"),
    ),
    "http.client": (
        *(
            Row(f"{cls}.connect", "read", name="http.client connect")
            for cls in ("HTTPConnection", "HTTPSConnection")
        ),
        Row("HTTPConnection.getresponse", "read", name="http.client response"),
        Row("HTTPResponse.read", "read", "read_image", "http.client read"),
        Row("HTTPResponse.readinto", "read", name="http.client readinto"),
        Row("HTTPResponse.read1", "read", name="http.client read1"),
    ),
    "zipfile": (Row("ZipExtFile.read", "read", "read_image", "zipfile read"),),
    "fsspec.spec": (
        Row("AbstractBufferedFile.read", "read", "read_image", "fsspec read"),
        Row("AbstractFileSystem.cat_file", "read", "read_image", "fsspec cat_file"),
    ),
    "wallclock.fetch.sources": (
        Row("SourceReader.__call__", "read", "read_image", "wallclock read"),
    ),
    "wallclock.loader.at_once": (
        Row("AtOnce.load", "decode", "loaded_at_once", "wallclock decode"),
    ),
    "wallclock.stages.resize": tuple(
        Row(f"{cls}.resize_{what}", "resize", f"resized_{what}", "wallclock resize")
        for cls in ("_Torch", "_Native")
        for what in ("into", "window")
    ),
    "wallclock.loader.iteration": (Row("Images.__next__", "wait", name="wallclock.Images"),),
    "onnxruntime.capi.onnxruntime_inference_collection": (
        Row("Session.run", "forward", "fed_session", "onnxruntime.InferenceSession.run"),
    ),
    "pyarrow.parquet.core": (
        Row("write_table", "serialize", name="pyarrow.parquet.write_table"),
        *(
            Row(f"ParquetWriter.{method}", "serialize", name=f"pyarrow.parquet.{method}")
            for method in ("write_table", "write_batch", "close")
        ),
        Row("read_table", "read", name="pyarrow.parquet.read_table"),
    ),
    "pandas.core.generic": (Row("NDFrame.to_csv", "serialize", name="pandas.DataFrame.to_csv"),),
    **{
        module: tuple(
            Row(name, "serialize", name=f"numpy.{name}")
            for name in ("save", "savez", "savez_compressed", "savetxt")
        )
        for module in ("numpy.lib._npyio_impl", "numpy.lib.npyio")
    },
    "json": (Row("dump", "serialize"), Row("dumps", "serialize")),
    "torch.serialization": (Row("save", "serialize", name="torch.save"),),
    "safetensors.torch": (Row("save_file", "serialize"), Row("save", "serialize")),
    "multiprocessing.reduction": (
        Row("ForkingPickler.dumps", "send", name="multiprocessing pickle"),
    ),
}

#: Module → `module:function` of this package that patches what a row cannot say.
PATCHES: dict[str, str] = {
    "argparse": "workers:patch_argparse",
    "io": "files:patch_io",
    "PIL.Image": "decoders:patch_image",
    "PIL.ImageFile": "decoders:patch_image_file",
    "PIL.JpegImagePlugin": "decoders:patch_jpeg",
    "torch": "torch_calls:patch_torch",
    "torch._dynamo.trace_rules": "torch_calls:patch_dynamo",
    "torch.utils.data.dataloader": "workers:patch_dataloader",
    "torch.utils.data._utils.fetch": "workers:patch_fetch",
    "torch.utils.data._utils.collate": "workers:patch_collate",
    "torch.utils.data._utils.worker": "workers:patch_worker",
}

#: Class names of transforms → stage; every other transform is `transform`. Of torchvision's two
#: versions and kornia. Containers only call others.
CLASS_STAGES = {
    **dict.fromkeys(
        ("Resize", "RandomResizedCrop", "CenterCrop", "RandomResize", "RandomShortestSize"),
        "resize",
    ),
    **dict.fromkeys(("ScaleJitter", "LongestMaxSize", "SmallestMaxSize", "RandomScale"), "resize"),
    "Normalize": "normalize",
    **dict.fromkeys(
        ("Compose", "Sequential", "RandomApply", "RandomChoice", "RandomOrder", "OneOf", "SomeOf"),
        "",
    ),
    **dict.fromkeys(("ImageSequential", "AugmentationSequential", "ReplayCompose"), ""),
}
#: Packages whose modules of torch are transforms of images, not models.
TRANSFORM_PACKAGES = (
    "torchvision.transforms",
    "kornia.augmentation",
    "kornia.enhance",
    "timm.data",
)
