"""Third-party loaders, each configured as its own documentation recommends for throughput.

Such a loader turns files into batches of square RGB images in host memory, again and again in the
order of the list, and reports its version and configuration. It takes no part in an embedding job;
it is there to be compared with. `make setup-peers` installs them; one that is absent is
`Unavailable`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes.util import find_library
from importlib import import_module, metadata

from harness.corpora import readers
from harness.corpora.manifest import Manifest
from harness.engines.third_party._interface import LoaderSpec, Stream, ThirdPartyLoader, version
from wallclock.errors import Unavailable, check_name
from wallclock.loader import Batch, Loader
from wallclock.machine import usable_cores
from wallclock.recipe import ModelSpec, Recipe

#: One module a loader, in the order of tables.
_MODULES = (
    *("pil", "pil_draft", "imagecodecs", "kornia_rs", "pyvips", "torchvision", "torchcodec"),
    *("hf_datasets", "litdata_raw", "dali", "dali_gpu", "spdl"),
)
LOADERS: dict[str, ThirdPartyLoader] = {
    loader.name: loader
    for loader in (import_module(f"{__name__}.{module}").LOADER for module in _MODULES)
}


def installed(name: str) -> str:
    """What is installed of a loader, for the key of its cells: once it is there, it is measured."""
    versions = []
    for distribution in LOADERS[name].distributions if name in LOADERS else ():
        try:
            versions.append(version(distribution))
        except metadata.PackageNotFoundError:
            versions.append(f"no {distribution}")
    if name == "spdl":
        versions.append(find_library("avcodec") or "no FFmpeg")
    return ", ".join(versions)


@contextmanager
def open_loader(
    recipe: Recipe, manifest: Manifest, model: ModelSpec, variant: str = ""
) -> Iterator["StreamLoader"]:
    """Open the third-party loader that `recipe.engine` names over the manifest's valid images.

    Of the recipe, its batch size and workers count; 0 workers are one a core.

    Raises:
        UserError: no such loader.
        Unavailable: its library is not here, or the corpus is not stored as files.
    """
    name = check_name(recipe.engine, LOADERS, "engine")
    layout = readers.storage_of(manifest)
    if layout != "files":
        raise Unavailable(f"{name} reads files; this corpus is stored as {layout}")
    items = manifest.valid
    files = [str(manifest.root / item.path) for item in items]
    workers = recipe.workers or usable_cores()
    on_gpu = recipe.device == "cuda"
    spec = LoaderSpec(files, model.input_px, recipe.batch_size, workers, variant, on_gpu)
    with LOADERS[name].open(spec) as stream:
        yield StreamLoader(name, workers, stream, [item.id for item in items])


class StreamLoader(Loader):
    """A third-party stream behind the interface of all loaders."""

    def __init__(self, name: str, workers: int, stream: Stream, ids: Sequence[str]) -> None:
        self.engine, self.workers = name, workers
        self.version, self.settings = stream.version, stream.settings
        self.prefetched, self.burst = stream.prefetched, stream.burst
        self._batches, self._ids = stream.batches, ids

    def __next__(self) -> Batch:
        """The next batch."""
        positions, images = next(self._batches)
        return Batch([self._ids[position] for position in positions], positions, images)
