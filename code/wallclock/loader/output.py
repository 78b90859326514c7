"""What a batch's images are, and which threads and processes make them."""

from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from wallclock.constraints import Range, check
from wallclock.errors import UserError, check_name, import_extra
from wallclock.recipe import IMAGENET_MEAN, IMAGENET_STD, Limits
from wallclock.stages.decode import MODES

#: Field of an `Output` → the words that stand for its values.
_WORDS = {
    "dtype": ("uint8", "float32", "float16", "bfloat16"),
    "framework": ("numpy", "torch"),
    "channels": tuple(MODES),
    "device": ("cpu", "cuda"),
}


@dataclass(frozen=True)
class Output:
    """What `batch.images` is.

    `dtype`: uint8 is (n, height, width, c); the others are (n, c, height, width), normalized by the
    workers: (pixel / 255 - `mean`) / `std` per channel, ImageNet's by default. `framework`: numpy
    arrays, or torch tensors over the same memory; bfloat16 needs torch. `pin`: page-locked memory,
    from which a copy to a GPU is fast. `hold`: how many batches you may hold besides the latest.

    `channels`: RGB, L (grey, c is 1) or RGBA (c is 4), as Pillow converts to them. `device`: cuda
    copies each batch to torch's current GPU, in a stream of its own, and normalizes it there. You
    own that tensor; it is ready for the stream that is current when you take the batch.

    As text: `torch,float32,pin`, `L`, `cuda,float16`.
    """

    dtype: str = "uint8"
    framework: str = "numpy"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    pin: bool = False
    hold: int = 8
    channels: str = "RGB"
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            check_name(getattr(self, name), words, f"output.{name}")
        whole_number("output.hold", self.hold, 0)
        if self.device == "cuda":
            object.__setattr__(self, "framework", "torch")
        if self.dtype == "bfloat16" and self.framework != "torch":
            raise UserError("output=bfloat16: numpy has no such type; use output=torch,bfloat16")
        if self.framework == "torch" or self.pin:
            import_extra("torch", "output=torch", "torch")

    @classmethod
    def parse(cls, text: str) -> "Output":
        """From its text. Raises UserError if it is not understood."""
        values: dict[str, Any] = {}
        names = {word: name for name, words in _WORDS.items() for word in words} | {"pin": "pin"}
        for word in filter(None, map(str.strip, text.split(","))):
            check_name(word, names, "output")
            values[names[word]] = word == "pin" or word
        return cls(**values)

    @property
    def pins(self) -> str:
        """What has the workers fill page-locked memory; empty: nothing does."""
        if self.device == "cuda":
            return "output=cuda"
        return "output=pin" if self.pin else ""

    def check_statistics(self) -> None:
        """Raise UserError: there is no mean, or no deviation, for each channel."""
        n = MODES[self.channels]
        if len(self.mean) != n or len(self.std) != n:
            values = "0.5," if n == 1 else ", ".join(["0.5"] * n)
            raise UserError(
                f"output.channels={self.channels}, {self.dtype}: give mean and std with {n} each, "
                f"as in Output(mean=({values}), std=({values}))"
            )

    def convert(self, images: npt.NDArray[Any]) -> Any:
        """The images as the framework has them, over the same memory."""
        if self.framework == "numpy":
            return images
        import torch

        tensor = torch.from_numpy(images)
        # Pixels that a GPU will normalize are uint8, whatever they become there.
        return tensor.view(torch.bfloat16) if images.dtype == np.uint16 else tensor


@dataclass(frozen=True)
class Workers:
    """The threads and processes that make the batches.

    `threads`: in all; 0 is one per core. `processes`: forked when an iteration starts, each with
    its share of the threads. For small images, where threads compete for the GIL, use one per core.
    `limits`: images over these are not decoded.
    """

    threads: int = 0
    processes: int = 1
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        whole_number("workers", self.threads, 0, 1024)
        whole_number("processes", self.processes, 1)


def whole_number(name: str, value: Any, least: int, most: float = inf) -> int:
    """The value. Raises UserError: it is no whole number from `least` to `most`."""
    number: int = check(Annotated[int, Range(least, most)], value, name)
    return number
