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
    from wallclock.errors import UserError as UserError
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

#: Module → its public names.
_HOMES = {
    "errors": ("UserError",),
    "job": ("embed",),
    "loader.batch": ("Batch", "Failure"),
    "loader.decoding": ("decode", "loader_for"),
    "loader.epochs": ("as_dataloader",),
    "loader.images": ("ImageSources", "open_images"),
    "loader.iteration": ("Images",),
    "loader.output": ("Output", "Workers"),
    "preprocess": ("Preprocess",),
    "stages.augment": ("Augment",),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> Any:
        home = next((module for module, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"wallclock.{home}"), name)
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
