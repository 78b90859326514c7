"""What a loader delivers: one batch of images, and when each of its stages ran."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from wallclock.corpus.sources import Inspected
from wallclock.stages.augment import Augmentation

#: One stretch of work: stage, start in ns, duration in ns.
Span: TypeAlias = tuple[str, int, int]
#: An image without a vector: id, stage, reason.
Failure: TypeAlias = dict[str, str]
#: Positions of the images of every batch, in order.
Positions: TypeAlias = Sequence[Sequence[int]]


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
class Batch:
    """n images in host memory. `images` is valid until the next batch is requested.

    `images`: uint8 (n, h, w, 3), or float32 (n, 3, h, w) where the host normalizes; a numpy array
    or a torch tensor. `positions` index the manifest's valid items. `failures` lists the images
    that were requested and could not be loaded. `labels` says what loaded them, as the process
    that did so reports it: decoder, resizer, layout. `augmentations`: of training images, one each.

    Of unlisted sources (`corpus/sources.py`): `inspected`, what each row's file is;
    `known`, positions and files that were read but not decoded; `made`, by `also` for each row.
    """

    ids: list[str]
    positions: Sequence[int]
    images: Any
    failures: list[Failure] = field(default_factory=list)
    marks: Sequence[Marks] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    augmentations: Sequence[Augmentation] = ()
    inspected: Sequence[Inspected] = ()
    known: Sequence[tuple[int, Inspected]] = ()
    made: Sequence[bytes | None] = ()

    def pin_memory(self) -> "Batch":
        """Called by torch's DataLoader under `pin_memory=True`: page-locked, for queued copies."""
        self.images = self.images.pin_memory()
        return self
