"""Images to batches: checked, decoded and resized by threads, into buffers that are reused."""

from wallclock.loader.batch import Batch, Extras, Failure, Loader, Marks
from wallclock.loader.joinable_thread import JoinableThread
from wallclock.loader.order import LazyBatches
from wallclock.loader.place import PlaceImage
from wallclock.loader.prepare import (
    Arrays,
    BuildInPlace,
    DecodeImage,
    InPlaceStages,
    in_place_stages,
    loaded_px,
)
from wallclock.loader.threads import Feed, ThreadLoader, ring_size
from wallclock.preprocess import Preprocess, preprocess_of
from wallclock.stages.augment import augmentation_of

__all__ = [
    "Arrays",
    "Batch",
    "BuildInPlace",
    "DecodeImage",
    "Extras",
    "Failure",
    "Feed",
    "InPlaceStages",
    "JoinableThread",
    "LazyBatches",
    "Loader",
    "Marks",
    "PlaceImage",
    "Preprocess",
    "ThreadLoader",
    "augmentation_of",
    "in_place_stages",
    "loaded_px",
    "preprocess_of",
    "ring_size",
]
