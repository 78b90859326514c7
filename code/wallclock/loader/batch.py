"""What a loader delivers: one batch of images, and what its makers add to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from wallclock.check import ImageInfo
from wallclock.loader.given import label_of
from wallclock.stages.augment import Augmentation

#: One stretch of work: stage, start in ns, duration in ns.
Span: TypeAlias = tuple[str, int, int]
#: An image without a vector: id, stage, reason.
Failure: TypeAlias = dict[str, str]


@dataclass
class Marks:
    """When the stages of consecutive images ran in one worker.

    `lane` names the worker. `marks`: for each image, one after another, ns on the machine's
    monotonic clock: the start of each stage, then the end of the last one. A plain list, because
    the worker that fills it has the GIL; only who reads `times` pays for an array.
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

    `marks`: when the stages ran. `labels`: what loaded the images, as the process that did so
    reports it: decoder, resizer, layout. `augmentations`: of training images, one for each row.

    Of sources, whose files are inspected when they are loaded: `infos`, what each row's file is;
    `skipped`, positions and files that the `Hook` did not want decoded; `extracted`, by the hook,
    one for each row. `given`: the user's items, where the feed keeps them, one for each row.
    """

    marks: Sequence[Marks] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    augmentations: Sequence[Augmentation] = ()
    infos: Sequence[ImageInfo] = ()
    skipped: Sequence[tuple[int, ImageInfo]] = ()
    extracted: Sequence[Any] = ()
    given: Sequence[Any] = ()


@dataclass
class Batch:
    """n images in host memory.

    `images`: uint8 (n, h, w, 3), or (n, 3, h, w) where the host normalizes; a numpy array or a
    torch tensor. Of `open_images` it stays valid as long as anyone holds it; of other loaders until
    the next batch is requested. `positions`: of the images in what is loaded. `failures` lists the
    images that were requested and could not be loaded: id, stage, reason. `items`: what the user
    gave, one for each row.
    """

    ids: list[str]
    positions: Sequence[int]
    images: Any
    failures: list[Failure] = field(default_factory=list)
    extras: Extras = field(default_factory=Extras)
    items: Sequence[Any] = ()

    @property
    def labels(self) -> list[Any]:
        """The label of each row's item; None where it has none."""
        return [label_of(item) for item in self.items]

    def pin_memory(self) -> "Batch":
        """Called by torch's DataLoader under `pin_memory=True`: page-locked, for queued copies."""
        self.images = self.images.pin_memory()
        return self
