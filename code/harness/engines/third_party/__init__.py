"""Third-party loaders, each configured as its own documentation recommends for throughput.

Such a loader turns files into batches of square RGB images in host memory, again and again in the
order of the list, and reports its version and configuration. It takes no part in an embedding job;
it is there to be compared with. `make setup-peers` installs them; one that is absent is
`Unavailable`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes.util import find_library
from importlib import import_module

from harness import peers
from harness.corpora.manifest import Manifest
from harness.engines.loader import Loader
from harness.engines.third_party._interface import LoaderSpec, Stream, ThirdPartyLoader
from harness.spec import Recipe
from wallclock.errors import check_name
from wallclock.loader.batch import Batch
from wallclock.machine import usable_cores
from wallclock.recipe import ModelSpec

#: The modules of this package, each of which defines `LOADER`, in the order of tables.
MODULES = (
    "pil",
    "pil_draft",
    "dataloader_scaled",
    "thread_pool",
    "thread_pool_crop",
    "imagecodecs",
    "kornia_rs",
    "nvimagecodec",
    "pyvips",
    "torchvision",
    "torchcodec",
    "hf_datasets",
    "litdata_raw",
    "dali",
    "dali_gpu",
    "spdl",
    "tf_data",
)


def _loaders() -> dict[str, ThirdPartyLoader]:
    """Loaders by name. Raises TypeError: two have one name."""
    loaders: dict[str, ThirdPartyLoader] = {}
    for name in MODULES:
        loader: ThirdPartyLoader = import_module(f"{__name__}.{name}").LOADER
        if loader.name in loaders:
            raise TypeError(f"{__name__}.{name}: another loader is called {loader.name}, too")
        loaders[loader.name] = loader
    return loaders


LOADERS = _loaders()


def is_installed(name: str) -> bool:
    """Whether a loader's library is here; this suite's own systems are."""
    return name not in LOADERS or peers.are_installed(LOADERS[name].distributions)


def installed(name: str) -> str:
    """What is installed of a loader, for the key of its cells: once it is there, it is measured."""
    if name not in LOADERS:
        return ""
    versions = peers.installed(LOADERS[name].distributions)
    if name == "spdl":
        versions += f", {find_library('avcodec') or 'no FFmpeg'}"
    return versions


@contextmanager
def open_loader(
    recipe: Recipe, manifest: Manifest, model: ModelSpec, variant: str = ""
) -> Iterator["StreamLoader"]:
    """Open the third-party loader that `recipe.engine` names over the manifest's valid images.

    Of the recipe, its batch size and workers count; 0 workers are one a core.

    Raises:
        UserError: no such loader.
        Unavailable: its library is not here.
    """
    name = check_name(recipe.engine, LOADERS, "engine")
    items = manifest.valid
    files = [str(manifest.root / item.path) for item in items]
    workers = recipe.workers or usable_cores()
    on_gpu = recipe.device == "cuda"
    loader = LOADERS[name]
    variant = variant or loader.variants[0]
    spec = LoaderSpec(files, model.input_px, recipe.batch_size, workers, variant, on_gpu)
    with loader.open(spec) as stream:
        ids = [item.id for item in items]
        yield StreamLoader(name, workers, recipe.batch_size, stream, ids)


class StreamLoader(Loader):
    """A third-party stream behind the interface of all loaders."""

    def __init__(
        self, name: str, workers: int, batch_size: int, stream: Stream, ids: Sequence[str]
    ) -> None:
        self.engine, self.workers, self._batch_size = name, workers, batch_size
        self.version, self.settings = stream.version, stream.settings
        self.prefetched, self.burst = stream.prefetched, stream.burst
        self._batches, self._ids = stream.batches, ids

    def __next__(self) -> Batch:
        """The next batch.

        Raises RuntimeError: the stream ended, or delivered a batch of another size; it must do
        neither, as the measurement counts full batches for as long as it likes.
        """
        try:
            positions, images = next(self._batches)
        except StopIteration:
            raise RuntimeError(
                f"loader {self.engine}: its stream ended; it must go over the files endlessly"
            ) from None
        if len(positions) != self._batch_size or len(images) != self._batch_size:
            sizes = f"{len(positions)} positions and {len(images)} images"
            raise RuntimeError(
                f"loader {self.engine}: a batch of {sizes}; each must have {self._batch_size}"
            )
        return Batch([self._ids[position] for position in positions], positions, images)
