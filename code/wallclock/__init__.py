"""wallclock: where an image-embedding job really spends its time, and a loader that gets it back.

    import wallclock
    with wallclock.open_images("photos/", size=224, batch=32) as batches:
        for batch in batches:
            batch.ids, batch.images    # uint8 (n, 224, 224, 3)

What is public is in `__all__`, and imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wallclock.errors import VERSION

if TYPE_CHECKING:
    from wallclock import predict as predict
    from wallclock.clock import StageProfiler as StageProfiler
    from wallclock.job import embed as embed
    from wallclock.loader.batch import Batch as Batch
    from wallclock.loader.batch import Failure as Failure
    from wallclock.loader.decoding import decode as decode
    from wallclock.loader.decoding import loader_for as loader_for
    from wallclock.loader.epochs import as_dataloader as as_dataloader
    from wallclock.loader.images import ImageSources as ImageSources
    from wallclock.loader.images import open_images as open_images
    from wallclock.loader.iteration import Images as Images
    from wallclock.loader.output import Output as Output
    from wallclock.loader.output import Workers as Workers
    from wallclock.preprocess import Preprocess as Preprocess
    from wallclock.stages.augment import Augment as Augment


__version__ = VERSION

_HOMES = {
    "Augment": "wallclock.stages.augment",
    "Batch": "wallclock.loader.batch",
    "Failure": "wallclock.loader.batch",
    "ImageSources": "wallclock.loader.images",
    "Images": "wallclock.loader.iteration",
    "Output": "wallclock.loader.output",
    "Preprocess": "wallclock.preprocess",
    "StageProfiler": "wallclock.clock",
    "Workers": "wallclock.loader.output",
    "as_dataloader": "wallclock.loader.epochs",
    "decode": "wallclock.loader.decoding",
    "embed": "wallclock.job",
    "loader_for": "wallclock.loader.decoding",
    "open_images": "wallclock.loader.images",
}
__all__ = [
    "Augment",
    "Batch",
    "Failure",
    "ImageSources",
    "Images",
    "Output",
    "Preprocess",
    "StageProfiler",
    "Workers",
    "as_dataloader",
    "decode",
    "embed",
    "loader_for",
    "open_images",
    "predict",
]


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "predict":
            return import_module("wallclock.predict")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
