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


def _rows(stage: str, names: str, shown: str = "", note: str = "") -> tuple[Row, ...]:
    """Functions of one stage: `names` with spaces between; `shown`: what stands before a name."""
    return tuple(Row(name, stage, note, shown and f"{shown}{name}") for name in names.split())


def _processor(*classes: str) -> tuple[Row, ...]:
    shown = "transformers image processor: {}"
    stages = {
        "resize": "resize",
        **dict.fromkeys(("rescale", "normalize", "rescale_and_normalize"), "normalize"),
        **dict.fromkeys(("center_crop", "pad", "process_image", "convert_to_rgb"), "transform"),
    }
    return tuple(
        Row(f"{cls}.{method}", stage, name=shown.format(method))
        for cls in classes
        for method, stage in stages.items()
    )


_TORCHVISION = "torchvision.transforms.functional."
_IO = "torchvision.io."
_NUMPY = _rows("serialize", "save savez savez_compressed savetxt", "numpy.")

#: Module → its functions. Classes of transforms that are modules of torch pass `Module.__call__`.
FUNCTIONS: dict[str, tuple[Row, ...]] = {
    "PIL.Image": (
        Row("open", "decode"),
        *_rows("decode", "Image.draft", "PIL."),
        *_rows("resize", "Image.resize Image.reduce", "PIL.", "resized_image"),
        *_rows("resize", "Image.thumbnail", "PIL."),
        *_rows("transform", "Image.transpose Image.rotate Image.transform Image.crop", "PIL."),
        *_rows("transform", "Image.point Image.filter Image.tobytes", "PIL."),
        Row("fromarray", "transform"),
        *_rows("serialize", "Image.save", "PIL.", "saved_image"),
    ),
    "PIL.ImageOps": (
        *_rows("resize", "fit contain cover pad scale"),
        *_rows("transform", "exif_transpose flip mirror autocontrast equalize grayscale"),
    ),
    "PIL.WebPImagePlugin": (Row("WebPImageFile.load", "decode", name="PIL WebP load"),),
    "PIL.AvifImagePlugin": (Row("AvifImageFile.load", "decode", name="PIL AVIF load"),),
    "pillow_heif.as_plugin": (Row("_LibHeifImageFile.load", "decode", name="pillow_heif load"),),
    "cv2": (
        Row("imread", "decode", "decoded_file"),
        Row("imdecode", "decode", "decoded_data"),
        Row("resize", "resize", "resized_array"),
        *_rows("transform", "cvtColor flip rotate warpAffine warpPerspective remap"),
        *_rows("transform", "GaussianBlur copyMakeBorder LUT"),
        Row("normalize", "normalize"),
        *_rows("serialize", "imwrite imencode"),
    ),
    "simplejpeg": (Row("decode_jpeg", "decode", "decoded_data"), Row("encode_jpeg", "serialize")),
    "turbojpeg": (
        Row("TurboJPEG.decode", "decode", "decoded_data"),
        Row("TurboJPEG.crop", "transform"),
        Row("TurboJPEG.encode", "serialize"),
    ),
    "torchvision.io.image": (
        *_rows("read", "read_file", _IO, "read_file"),
        *_rows("decode", "decode_image decode_jpeg decode_png decode_webp", _IO, "decoded_data"),
        *_rows("decode", "decode_gif", _IO, "decoded_data"),
        *_rows("decode", "read_image", _IO),
        *_rows("serialize", "encode_jpeg encode_png write_jpeg write_png write_file", _IO),
    ),
    "torchvision.transforms.transforms": tuple(
        Row(f"{name}.__call__", "transform", "count_image", f"torchvision.transforms.{name}")
        for name in ("ToTensor", "PILToTensor", "ToPILImage")
    ),
    "torchvision.transforms.functional": (
        *_rows("resize", "resize resized_crop", _TORCHVISION),
        *_rows("normalize", "normalize", _TORCHVISION),
        *_rows("transform", "to_tensor pil_to_tensor center_crop hflip vflip rotate", _TORCHVISION),
    ),
    "transformers.image_transforms": (
        Row("resize", "resize"),
        *_rows("normalize", "normalize rescale"),
        *_rows("transform", "center_crop pad convert_to_rgb to_channel_dimension_format"),
    ),
    "transformers.image_processing_utils": (
        Row("BaseImageProcessor.__call__", "transform", name="transformers image processor"),
    ),
    "transformers.image_processing_utils_fast": _processor("BaseImageProcessorFast"),
    "transformers.image_processing_backends": _processor("TorchvisionBackend", "PilBackend"),
    "albumentations.core.transforms_interface": (
        Row("BasicTransform.__call__", "transform", "count_image", "albumentations"),
    ),
    "http.client": (
        Row("HTTPConnection.connect", "read", name="http.client connect"),
        Row("HTTPSConnection.connect", "read", name="http.client connect"),
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
    "wallclock.loader.iteration": (Row("Images.__next__", "wait", name="wallclock.Images"),),
    "onnxruntime.capi.onnxruntime_inference_collection": (
        Row("Session.run", "forward", "fed_session", "onnxruntime.InferenceSession.run"),
    ),
    "pyarrow.parquet.core": (
        *_rows("serialize", "write_table", "pyarrow.parquet."),
        *_rows("serialize", "ParquetWriter.write_table ParquetWriter.close", "pyarrow.parquet."),
        *_rows("serialize", "ParquetWriter.write_batch", "pyarrow.parquet."),
        *_rows("read", "read_table", "pyarrow.parquet."),
    ),
    "pandas.core.generic": (Row("NDFrame.to_csv", "serialize", name="pandas.DataFrame.to_csv"),),
    "numpy.lib._npyio_impl": _NUMPY,
    "numpy.lib.npyio": _NUMPY,
    "json": _rows("serialize", "dump dumps"),
    "torch.serialization": (Row("save", "serialize", name="torch.save"),),
    "safetensors.torch": _rows("serialize", "save_file save"),
    "torch.utils.data._utils.collate": _rows(
        "assemble", "default_collate", "torch.utils.data.", "collated_batch"
    ),
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
