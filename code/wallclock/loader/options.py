"""What a type checker knows of `open_images`' arguments, and takes the images' type from."""

from typing import Literal, TypeAlias, TypedDict

from wallclock.loader.output import Workers
from wallclock.preprocess import Preprocess
from wallclock.stages.augment import Augment

#: Texts of an `Output` whose images are numpy arrays of uint8, unless they keep their own sizes.
BytesOutput: TypeAlias = Literal["uint8", "RGB", "L", "RGBA"]
#: Texts whose images are one tensor: they all have one size, or are refused.
TorchOutput: TypeAlias = Literal[
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


class OpenOptions(TypedDict, total=False):
    """What says nothing about the images' type."""

    augment: bool | Augment
    shuffle: bool | int
    seed: int
    epochs: int
    shard: tuple[int, int]
    drop_last: bool
    workers: int | Workers


class GeometryOptions(OpenOptions, total=False):
    """The same with the geometry: images of their own sizes are a list."""

    preprocess: str | Preprocess
