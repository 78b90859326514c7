"""Which functions are counted, and as what. Data: a new library is a few lines here.

What a library's version lacks is left out.
"""

from typing import NamedTuple


class Rows(NamedTuple):
    """Functions to count: `names` inside their module, with spaces between.

    `note`: of `notes`, what their calls tell of their images; empty for nothing.
    """

    stage: str
    names: str
    note: str = ""


_NUMPY = (Rows("serialize", "save savez savez_compressed savetxt"),)
_PROCESSOR = (
    Rows("resize", "resize"),
    Rows("normalize", "rescale normalize rescale_and_normalize"),
    Rows("transform", "center_crop pad process_image convert_to_rgb"),
)


def _methods(*classes: str) -> tuple[Rows, ...]:
    return tuple(
        Rows(stage, " ".join(f"{cls}.{name}" for name in names.split()))
        for cls in classes
        for stage, names, _ in _PROCESSOR
    )


#: Module → its functions. Classes of transforms that are modules of torch pass `Module.__call__`.
FUNCTIONS: dict[str, tuple[Rows, ...]] = {
    "PIL.Image": (
        Rows("decode", "open Image.draft"),
        Rows("resize", "Image.resize Image.reduce", "resized_image"),
        Rows("resize", "Image.thumbnail"),
        Rows("transform", "Image.transpose Image.rotate Image.transform Image.crop fromarray"),
        Rows("transform", "Image.point Image.filter Image.tobytes"),
        Rows("serialize", "Image.save", "saved_image"),
    ),
    "PIL.ImageOps": (
        Rows("resize", "fit contain cover pad scale"),
        Rows("transform", "exif_transpose flip mirror autocontrast equalize grayscale"),
    ),
    "PIL.WebPImagePlugin": (Rows("decode", "WebPImageFile.load"),),
    "PIL.AvifImagePlugin": (Rows("decode", "AvifImageFile.load"),),
    "pillow_heif.as_plugin": (Rows("decode", "_LibHeifImageFile.load"),),
    "cv2": (
        Rows("decode", "imread", "decoded_file"),
        Rows("decode", "imdecode", "decoded_data"),
        Rows("resize", "resize", "resized_image"),
        Rows("transform", "cvtColor flip rotate warpAffine warpPerspective remap"),
        Rows("transform", "GaussianBlur copyMakeBorder LUT"),
        Rows("normalize", "normalize"),
        Rows("serialize", "imwrite imencode"),
    ),
    "simplejpeg": (Rows("decode", "decode_jpeg", "decoded_data"), Rows("serialize", "encode_jpeg")),
    "turbojpeg": (
        Rows("decode", "TurboJPEG.decode", "decoded_data"),
        Rows("transform", "TurboJPEG.crop"),
        Rows("serialize", "TurboJPEG.encode"),
    ),
    "torchvision.io.image": (
        Rows("read", "read_file", "read_file"),
        Rows("decode", "decode_image decode_jpeg decode_png decode_webp", "decoded_data"),
        Rows("decode", "decode_gif", "decoded_data"),
        Rows("decode", "read_image"),
        Rows("serialize", "encode_jpeg encode_png write_jpeg write_png write_file"),
    ),
    "torchvision.transforms.transforms": (
        Rows("transform", "ToTensor.__call__ PILToTensor.__call__ ToPILImage.__call__"),
    ),
    "torchvision.transforms.functional": (
        Rows("resize", "resize resized_crop"),
        Rows("normalize", "normalize"),
        Rows("transform", "to_tensor pil_to_tensor center_crop hflip vflip rotate"),
    ),
    "transformers.image_transforms": (
        Rows("resize", "resize"),
        Rows("normalize", "normalize rescale"),
        Rows("transform", "center_crop pad convert_to_rgb to_channel_dimension_format"),
    ),
    "transformers.image_processing_utils": (Rows("transform", "BaseImageProcessor.__call__"),),
    "transformers.image_processing_utils_fast": _methods("BaseImageProcessorFast"),
    "transformers.image_processing_backends": _methods("TorchvisionBackend", "PilBackend"),
    "albumentations.core.transforms_interface": (Rows("transform", "BasicTransform.__call__"),),
    "http.client": (
        Rows("read", "HTTPConnection.connect HTTPSConnection.connect HTTPConnection.getresponse"),
        Rows("read", "HTTPResponse.read", "read_image"),
        Rows("read", "HTTPResponse.readinto HTTPResponse.read1"),
    ),
    "zipfile": (Rows("read", "ZipExtFile.read", "read_image"),),
    "fsspec.spec": (
        Rows("read", "AbstractBufferedFile.read AbstractFileSystem.cat_file", "read_image"),
    ),
    "wallclock.fetch.sources": (Rows("read", "SourceReader.__call__", "read_image"),),
    "wallclock.loader.at_once": (Rows("decode", "AtOnce.load", "loaded_at_once"),),
    "wallclock.loader.iteration": (Rows("wait", "Images.__next__"),),
    "onnxruntime.capi.onnxruntime_inference_collection": (
        Rows("forward", "Session.run", "fed_session"),
    ),
    "pyarrow.parquet.core": (
        Rows("serialize", "ParquetWriter.write_table ParquetWriter.write_batch write_table"),
        Rows("read", "read_table"),
    ),
    "pandas.core.generic": (Rows("serialize", "NDFrame.to_csv"),),
    "numpy.lib._npyio_impl": _NUMPY,
    "numpy.lib.npyio": _NUMPY,
    "json": (Rows("serialize", "dump dumps"),),
    "torch.serialization": (Rows("serialize", "save"),),
    "safetensors.torch": (Rows("serialize", "save_file save"),),
    "torch.utils.data._utils.collate": (Rows("assemble", "default_collate", "collated_batch"),),
    "multiprocessing.reduction": (Rows("send", "ForkingPickler.dumps"),),
}

#: Beginning of a name → what its users call it.
_PUBLIC = {
    "PIL.Image.Image.": "PIL.Image.",
    "wallclock.fetch.sources.SourceReader": "wallclock read",
    "wallclock.loader.at_once.AtOnce.load": "wallclock decode",
    "wallclock.loader.iteration.Images.__next__": "wallclock.Images",
    "onnxruntime.capi.onnxruntime_inference_collection.": "onnxruntime.Inference",
    "pandas.core.generic.NDFrame.": "pandas.DataFrame.",
    "numpy.lib._npyio_impl.": "numpy.",
    "numpy.lib.npyio.": "numpy.",
    "torch.serialization.": "torch.",
}


def name_of(module: str, path: str) -> str:
    """The name of a function that its users know."""
    name = f"{module}.{path}".removesuffix(".__call__")
    for start, public in _PUBLIC.items():
        if name.startswith(start):
            return public + name[len(start) :]
    return name


#: Module → `module:function` of this package that patches what rows cannot say.
PATCHES: dict[str, str] = {
    "argparse": "libraries:patch_argparse",
    "io": "libraries:patch_io",
    "PIL.Image": "libraries:patch_image",
    "PIL.ImageFile": "libraries:patch_image_file",
    "PIL.JpegImagePlugin": "libraries:patch_jpeg",
    "torch": "torch_calls:patch_torch",
    "torch._dynamo.trace_rules": "torch_calls:patch_dynamo",
    "torch.utils.data.dataloader": "libraries:patch_dataloader",
    "torch.utils.data._utils.worker": "libraries:patch_worker",
}

_RESIZES = "Resize RandomResizedCrop RandomResize RandomShortestSize ScaleJitter LongestMaxSize"
_RESIZES += " SmallestMaxSize"
_CONTAINERS = "Compose Sequential RandomApply RandomChoice RandomOrder ImageSequential"
_CONTAINERS += " AugmentationSequential"
#: Class names of transforms → stage; every other transform is `transform`. Of torchvision's two
#: versions and kornia. Containers only call others.
CLASS_STAGES = {
    "Normalize": "normalize",
    **dict.fromkeys(_RESIZES.split(), "resize"),
    **dict.fromkeys(_CONTAINERS.split(), ""),
}
#: Packages whose modules of torch are transforms of images, not models.
TRANSFORM_PACKAGES = (
    "torchvision.transforms",
    "kornia.augmentation",
    "kornia.enhance",
    "timm.data",
)
