"""What a loader delivers: a batch of images, and what its makers add to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

import numpy as np
import numpy.typing as npt

from wallclock.check import ImageInfo
from wallclock.errors import UserError, describe
from wallclock.loader.items import parse_item
from wallclock.stages.augment import Augmentation

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    #: A numpy array or a torch tensor; a `Batch` that does not say is of either.
    ImagesT = TypeVar("ImagesT", default=Any)
else:  # the type checker knows typing_extensions, where it is not installed too
    from typing import TypeVar

    ImagesT = TypeVar("ImagesT")

#: An image without a vector: id, stage, reason; `unreached`, of a `NotReachedError`.
Failure: TypeAlias = dict[str, str]


@dataclass
class Marks:
    """When the stages of consecutive images ran in one worker, of which `lane` is the name.

    `marks`: for each image, one after another, ns on the machine's monotonic clock: the start of
    each stage, then the end of the last. A plain list: only who reads `times` pays for an array.
    """

    lane: str
    stages: tuple[str, ...]
    marks: Sequence[int] | npt.NDArray[np.int64]

    @property
    def times(self) -> npt.NDArray[np.int64]:
        """The marks as int64 (n, len(stages) + 1)."""
        return np.asarray(self.marks, dtype=np.int64).reshape(-1, len(self.stages) + 1)


@dataclass
class Extras:
    """What a job, a training or a measurement takes from a batch beside its images.

    `labels`: what loaded the images, read back. For each row `augmentations`, `infos` (what a file
    is, where it was inspected), `given` (the user's item). `fallbacks`: how many JPEGs and PNGs the
    native module left to another decoder.
    """

    marks: Sequence[Marks] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    augmentations: Sequence[Augmentation] = ()
    infos: Sequence[ImageInfo] = ()
    given: Sequence[Any] = ()
    fallbacks: int = 0


@dataclass(repr=False)
class Batch(Generic[ImagesT]):
    """n images, with what belongs to each of them.

    `images`: uint8 (n, h, w, 3), or floats (n, 3, h, w) if the workers normalize; a numpy array or
    a torch tensor. `open_images` may give other channels, or a list of arrays. It stays valid as
    long as anyone holds it (with other loaders, until the next batch is requested).
    `positions`: where the images are in the dataset. `items`: what the user gave, one per row.
    `failures`: the images that could not be loaded, each with id, stage and reason. They have no
    row. `repeated`: how many of the images are in another batch, too, because a rank needs a batch
    in place of one that could not be read. `skipped`: names of other files before these images in a
    tar, such as `a.tar/.DS_Store`; those of a folder are in an epoch's first batch.
    """

    ids: list[str]
    positions: Sequence[int]
    images: ImagesT
    failures: list[Failure] = field(default_factory=list)
    extras: Extras = field(default_factory=Extras)
    items: Sequence[Any] = ()
    repeated: int = 0
    skipped: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        images: Any = self.images
        shape = f"{images.dtype} {tuple(images.shape)}" if hasattr(images, "shape") else "a list"
        failed = f"\n  failure: {describe(self.failures[0])}" if self.failures else ""
        others = f"{len(self.failures)} failures, {len(self.skipped)} skipped{failed}"
        return f"<Batch: {len(self.ids)} images {shape}, {others}>"

    @property
    def labels(self) -> list[Any]:
        """The label of each row's item, or None."""
        return [parse_item(item)[2] for item in self.items]

    def to(self, device: Any) -> "Batch[ImagesT]":
        """The batch with its images on a torch device. Lightning and Accelerate call this.

        Raises UserError: the images are numpy arrays.
        """
        images: Any = self.images
        tensors = images if isinstance(images, list) else [images]  # a list: of their own sizes
        if not all(hasattr(tensor, "to") for tensor in tensors):
            raise UserError("a batch of numpy arrays stays on the host: ask for output=torch")
        moved: Any = [tensor.to(device) for tensor in tensors]
        return replace(self, images=moved if tensors is images else moved[0])

    def pin_memory(self) -> "Batch[ImagesT]":
        """Called by torch's DataLoader under `pin_memory=True`: page-locked, for queued copies."""
        images: Any = self.images
        return replace(self, images=images.pin_memory())
