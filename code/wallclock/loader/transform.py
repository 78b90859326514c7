"""A function of the user's own, called in a worker for each image, between resize and row.

What it draws depends on (seed, epoch, position) alone. A parameter `rng` gets a generator of the
image's own. The global generators of random, numpy and torch are seeded for each image in a process
of one thread, else refused.
"""

import inspect
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image as PillowImage

from wallclock.check import Image
from wallclock.errors import UserError
from wallclock.loader.loading import Loading
from wallclock.preprocess import ADD_CROP, size_pair
from wallclock.stages import normalize
from wallclock.stages.augment import Augment
from wallclock.stages.decode import MODES
from wallclock.stages.pixels import PixelArray, copied


class Transform:
    """Calls the function, and writes what it returns into a row. `size`: of that, (h, w)."""

    def __init__(self, augment: Augment, loading: Loading) -> None:
        assert augment.transform is not None
        geometry = loading.geometry
        if augment.size is None and not geometry.one_size:
            raise UserError(
                f"preprocess={geometry}: images differ in size; say what augment.transform makes "
                f"of them, as in Augment(size=224), or {ADD_CROP}"
            )
        self._call = _bind_draws(augment.transform, augment.random)
        self._takes = augment.takes
        self._mode, self._floats = loading.mode, loading.statistics is not None
        size = geometry.canvas if augment.size is None else size_pair(augment.size, "augment.size")
        self.size: tuple[int, int] = size
        self._tensor_shape = MODES[loading.mode], *size
        self._array_shape = self._tensor_shape if self._floats else (*size, MODES[loading.mode])

    def __call__(self, image: Any, pixels: PixelArray, row: npt.NDArray[Any]) -> None:
        """Transform pixels, uint8 (h, w, c), into a row. Raises whatever the function raises."""
        try:
            made = self._call(_adapted(pixels, self._takes), image.augmentation.key)
        except Exception as error:
            error.add_note(f"raised by augment.transform, for the image {image.id}")
            raise
        values = self._values(image, made)
        if self._floats:
            normalize.store(values.astype(np.float32, copy=False), row)
        else:
            row[...] = values

    def _values(self, image: Image, made: Any) -> npt.NDArray[Any]:
        """What it returned, as the row has it."""
        is_tensor = hasattr(made, "detach")
        shape = self._tensor_shape if is_tensor else self._array_shape
        values: Any = made.detach().numpy() if is_tensor else made
        if isinstance(made, PillowImage.Image):
            if made.mode != self._mode:
                self._refuse(image, f"an image of mode {made.mode}", f"mode {self._mode}")
            values = np.asarray(made)
        if not isinstance(values, np.ndarray):
            needs = "an array, a tensor or a Pillow image"
            self._refuse(image, f"an object of type {type(made).__name__}", needs)
        if values.ndim == 2 and shape[-1] == 1:  # OpenCV and Pillow leave out a single channel
            values = values[..., None]
        kind, name = (np.floating, "float32") if self._floats else (np.uint8, "uint8")
        if not np.issubdtype(values.dtype, kind) or values.shape != shape:
            self._refuse(image, f"{values.dtype} {values.shape}", f"{name} {shape}")
        rows: npt.NDArray[Any] = values
        return rows.transpose(1, 2, 0) if is_tensor and not self._floats else rows

    def _refuse(self, image: Image, returned: str, expected: str) -> None:
        fix = "see augment.size for the size, output for dtype and channels"
        raise UserError(f"{image.id}: transform returned {returned}, not {expected}; {fix}")


def takes_rng(transform: Callable[..., Any]) -> bool:
    """Whether it has a parameter `rng`."""
    try:
        parameters = inspect.signature(transform).parameters
    except (TypeError, ValueError):  # of C code
        return False
    return "rng" in parameters


def check_draws(augment: Augment, threads: int, processes: int) -> None:
    """Raise UserError where what the function draws would differ from run to run."""
    transform = augment.transform
    if transform is None or not augment.random or takes_rng(transform):
        return
    if processes == 1 or threads > processes:
        raise UserError(
            "augment.transform has no parameter rng, and threads share the global generators: add "
            "one, or say random=False if it draws nothing, or give each thread a process: "
            f"workers=Workers({max(threads, 2)}, processes={max(threads, 2)})"
        )


def _bind_draws(transform: Callable[..., Any], draws: bool) -> Callable[[Any, int], Any]:
    """The function with the key of an image's draws as a second argument."""
    if takes_rng(transform):
        return lambda pixels, key: transform(pixels, rng=np.random.default_rng(key))
    if not draws:
        return lambda pixels, key: transform(pixels)

    def call_seeded(pixels: Any, key: int) -> Any:
        _seed_global(key)
        return transform(pixels)

    return call_seeded


def _seed_global(key: int) -> None:
    # From other bits than the crop's generator, which has the key itself.
    words = np.random.SeedSequence(key).generate_state(4)
    random.seed(words.tobytes())
    np.random.seed(words)
    if torch := sys.modules.get("torch"):
        # `torch.manual_seed` would also ask for a GPU, which a forked process cannot have.
        torch.default_generator.manual_seed(int.from_bytes(words[:2].tobytes(), "little"))


def _adapted(pixels: PixelArray, takes: str) -> Any:
    """Pixels as the function takes them."""
    if takes == "pil":
        return PillowImage.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    # It may write to them; to a view that is upright, or a decoder's, it may not.
    if not (pixels.flags.c_contiguous and pixels.flags.writeable):
        pixels = copied(pixels)
    if takes == "numpy":
        return pixels
    import torch

    return torch.from_numpy(pixels).permute(2, 0, 1)
