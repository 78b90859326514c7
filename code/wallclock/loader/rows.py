"""What a row of a batch is, where more than the recipe says so: `Output`, `Augment`, `Preprocess`.

All of it is decided here, once for a loader: what nobody asked for is not even a branch later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.errors import UserError
from wallclock.loader.lease import DeviceCopies, Leases, Lender, OwnArrays
from wallclock.loader.output import Output, Workers
from wallclock.loader.prepare import BuildInPlace, in_place_stages, loaded_size, own_shape_stages
from wallclock.loader.ring import CHUNK
from wallclock.loader.threads import worker_count
from wallclock.loader.transform import Transform, check_draws
from wallclock.preprocess import ADD_CROP, Preprocess, preprocess_of, size_pair
from wallclock.recipe import Limits, ModelSpec, Recipe
from wallclock.stages import normalize, transfer
from wallclock.stages.augment import Augment
from wallclock.stages.decode import MODES


@dataclass(frozen=True)
class Rows:
    """`build`: binds the stages of one thread; `shape` and `dtype`: of a row in the ring.

    Where images keep sizes of their own (`dtype` is object), a row holds one array.
    """

    build: BuildInPlace
    shape: tuple[int, ...]
    dtype: npt.DTypeLike

    def buffers(self, workers: int, batch_size: int) -> Sequence[npt.NDArray[Any]]:
        """The ring's memory, where that is not the loader's own: of objects, few.

        Images of any size wait in it: enough batches to keep the workers busy, and one ahead.
        """
        if self.dtype is not object:
            return ()
        n = -(-workers * CHUNK // batch_size) + 1
        return [np.empty((batch_size, *self.shape), object) for _ in range(n)]


def rows_of(
    recipe: Recipe, model: ModelSpec, limits: Limits, augment: Augment, output: Output
) -> Rows:
    """The rows of a loader. Raises UserError: its settings do not go together."""
    preprocess = preprocess_of(recipe, model.input_px, sizes_differ=True)
    mode, floats = output.channels, recipe.normalize_on == "host"
    transform = _transform_of(augment, preprocess, mode, floats)
    build: BuildInPlace = in_place_stages
    if not preprocess.one_size:
        most = limits.max_pixels
        build = partial(own_shape_stages, most_pixels=most, mode=mode, transform=transform)
    elif mode != "RGB" or transform is not None:
        build = partial(in_place_stages, mode=mode, transform=transform)
    if transform is not None:
        size = transform.size
    elif preprocess.one_size:
        size = loaded_size(recipe, model)
    else:
        return Rows(build, (1,), object)
    shape = (MODES[mode], *size) if floats else (*size, MODES[mode])
    return Rows(build, shape, output.storage if floats else np.uint8)


def _transform_of(
    augment: Augment, preprocess: Preprocess, mode: str, floats: bool
) -> Transform | None:
    if augment.transform is None:
        return None
    if augment.size is None and not preprocess.one_size:
        raise UserError(
            f"preprocess={preprocess}: images differ in size; say what augment.transform makes of "
            f"them, as in Augment(size=224), or {ADD_CROP}"
        )
    size = preprocess.canvas if augment.size is None else size_pair(augment.size, "augment.size")
    return Transform(augment, size, mode, floats)


def makes_lists(recipe: Recipe, side: int, augment: Augment) -> bool:
    """Whether images keep sizes of their own, so that a batch has a list of them."""
    one_size = preprocess_of(recipe, side, sizes_differ=True).one_size
    return not one_size and augment.transform is None


def check_rows(recipe: Recipe, side: int, output: Output, augment: Augment, crew: Workers) -> None:
    """Raise UserError: settings do not go together."""
    preprocess = preprocess_of(recipe, side, sizes_differ=True)
    has_transform = augment.transform is not None
    check_draws(augment, max(worker_count(recipe), crew.processes), crew.processes)
    if recipe.augment != "none" and augment.jitter and output.channels != "RGB":
        raise UserError(
            f"output.channels={output.channels}: jitter is of RGB; set augment=Augment(jitter=0)"
        )
    if output.dtype != "uint8" and not has_transform:
        output.check_statistics()
    if not makes_lists(recipe, side, augment):
        return
    differ = f"preprocess={preprocess}: images differ in size"
    if output.dtype != "uint8" or output.pins:
        what = output.pins or f"output={output.dtype}"
        raise UserError(f"{differ}; {what} needs one size: {ADD_CROP}")
    if crew.processes > 1:
        raise UserError(f"processes={crew.processes}: {differ}, which needs processes=1")


def lender_of(output: Output, recipe: Recipe, *, lists: bool) -> Lender:
    """How a batch leaves its buffer: as a list of arrays, or as one."""
    if lists:
        return OwnArrays(output.convert)
    if output.device == "cpu":
        return Leases(output.hold, output.convert)
    h2d = transfer.make(output.device).h2d
    convert: Callable[[Any], Any] = _unchanged
    if output.dtype != "uint8" and recipe.normalize_on == "device":
        convert = _normalized_there(output)
    return DeviceCopies(transfer.StreamCopy(lambda rows: h2d(output.convert(rows)), convert))


def _normalized_there(output: Output) -> Callable[[Any], Any]:
    import torch

    to_floats = normalize.on_device(output.mean, output.std, output.device)
    dtype = getattr(torch, output.dtype)
    return lambda images: to_floats(images).to(dtype).contiguous()


def _unchanged(images: Any) -> Any:
    return images
