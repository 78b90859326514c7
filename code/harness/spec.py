"""The frozen descriptions that travel from the configuration to a measurement.

Nothing here knows Hydra or torch: a `Cell` is plain data that is hashed into a key, written into a
record and sent to a fresh process as JSON. The dataclasses are the schema of the
configuration: their fields' annotations are what `settings` accepts, their defaults what `conf/`
need not repeat.
"""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

from wallclock import recipe as product
from wallclock.constraints import OneOf, Range
from wallclock.errors import UsageError
from wallclock.recipe import Count, Limits, ModelSpec, Positive

T = TypeVar("T")

#: How stages overlap, how DataLoader's workers start, where training images are augmented.
ENGINES = ("serial", "dataloader", "threads")
START_METHODS = ("fork", "forkserver", "spawn")
AUGMENT = ("none", "cpu", "device")
#: Formats of vectors: the modules of `harness/sinks/`, in the order of tables.
SINKS = (
    "parquet",  # the default
    "lmdb",
    "npy",
    "jsonl",
)
#: The paper's two image sets; a user's folder is compared with the one it resembles.
IMAGE_SETS = ("small_256", "original")
#: A pass of `contention` over costly images ends after so many times its `params.seconds`.
MOST_TIMES = 4
#: glibc's settings in a worker. By default freed memory goes back to the kernel when enough of it
#: lies at the top of the heap, which depends on what else the process has allocated; each full-size
#: image then faults its pages in again. `keep` never returns any.
ALLOCATORS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "keep": {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)},
}


class _Odd(Range):
    """An odd number from `least` on."""

    def __str__(self) -> str:
        return "that is odd, so that one pass is the median"

    def allows(self, value: float) -> bool:
        """Whether a setting may have this value."""
        return super().allows(value) and value % 2 == 1


Repeats = Annotated[int, _Odd(1)]


@dataclass(frozen=True)
class Recipe(product.Recipe):
    """The product's recipe, with the choices that only the study makes."""

    #: `workers` are processes of DataLoader (0: the main process loads), or threads.
    engine: Annotated[str, OneOf(ENGINES)] = "serial"
    #: How DataLoader's workers start: fork is Linux's default before Python 3.14.
    start_method: Annotated[str, OneOf(START_METHODS)] = "fork"
    #: Batches that each DataLoader worker may have ready: 2 is torch's own default.
    prefetch: Annotated[int, Range(1, 1024)] = 2
    #: Whether batches wait for a GPU in page-locked memory; on a CPU none is.
    pin_memory: bool = True
    sink: Annotated[str, OneOf(SINKS)] = "parquet"
    #: Of training images (`stages/augment.py`): in the workers, or on the device.
    augment: Annotated[str, OneOf(AUGMENT)] = "none"

    def __post_init__(self) -> None:
        if self.augment != "none" and self.preprocess != "squash":
            cure = "set recipe.augment=none or recipe.preprocess=squash"
            why = f"goes without augmentation, which crops by itself; {cure}"
            raise UsageError(f"recipe.preprocess={self.preprocess} {why}")

    @property
    def pins(self) -> bool:
        """Whether its loader delivers page-locked batches; the serial engine delivers none."""
        return self.pin_memory and super().pins and self.engine != "serial"


@dataclass(frozen=True)
class CorpusSpec:
    """Where images come from. `CORPUS_SETTINGS` names the fields that a kind of corpus uses."""

    kind: str
    seed: Count = 0
    path: str = ""
    image_set: Annotated[str, OneOf(IMAGE_SETS)] = "original"
    #: Of a folder, the first images by a seeded rank instead of by name.
    sample: bool = False
    #: Share of images saved as progressive JPEG.
    progressive_share: Annotated[float, Range(0, 1)] = 0.0
    limits: Limits = field(default_factory=Limits)
    #: The store. An empty endpoint is AWS; any other an S3-compatible store or a plain HTTP mirror,
    #: as http://127.0.0.1:9000.
    endpoint: str = ""
    bucket: str = ""
    region: str = ""
    #: Concurrent GETs, and tries per object.
    threads: Annotated[int, Range(1, 1024)] = 32
    attempts: Positive = 6
    #: Without a byte received.
    read_timeout_s: Annotated[float, Range(0.001, 3600)] = 20.0
    #: Image set → of how many of the 256 two-hex-digit folders it is sampled.
    prefixes: Mapping[str, Annotated[int, Range(1, 256)]] = field(default_factory=dict)
    #: Hash every file again; fetch damaged ones and those that failed before.
    verify: bool = False

    @property
    def image_limits(self) -> dict[str, Any]:
        """Of its limits, those that decide which images are refused."""
        return {name: value for name, value in vars(self.limits).items() if name[:4] == "max_"}


#: Pixels of a thumbnail's shorter side (`harness.corpora.copies`).
THUMBNAIL_PX = 256
#: Kind of corpus → its settings. The other fields of `CorpusSpec` keep their defaults.
CORPUS_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "synthetic": ("seed", "progressive_share", "limits"),
    "folder": ("path", "image_set", "limits"),
    "abo": (
        "endpoint",
        "bucket",
        "region",
        "seed",
        "prefixes",
        "threads",
        "attempts",
        "read_timeout_s",
        "verify",
        "limits",
    ),
}


@dataclass(frozen=True)
class Cost:
    """The price of an hour of the device, and its source; `device` is a part of its name."""

    device: str
    usd_per_hour: Annotated[float, Range(0, 1_000_000)]
    instance: str
    source: str


@dataclass(frozen=True)
class Settings:
    """One invocation, resolved: no `auto` is left. The defaults are in conf/config.yaml.

    `experiments` holds the selected experiments' own options, in running order. `n` limits every
    cell's images, `max_images` those of an image set on this device. `repeats_of` overrides
    `repeats` for an experiment. `loader_seconds` is the least duration of a loader's measurement in
    steady state, `scaling_max_images` the size of the longest run of `scaling`. `only="data"` stops
    once the corpus is on the disk. `notes` are lines for the user: settings that this invocation
    does not use.
    """

    experiments: Mapping[str, Mapping[str, Any]]
    corpus: CorpusSpec
    model: ModelSpec
    recipe: Recipe
    device: str
    out: Path
    figures: Path
    n: Positive | None
    max_images: Mapping[str, Positive | None]
    repeats: Repeats
    repeats_of: Mapping[str, Repeats]
    seed: Count
    page_cache: Annotated[str, OneOf(("warm", "cold"))]
    allocator: Annotated[str, OneOf(ALLOCATORS)]
    loader_seconds: Annotated[float, Range(0.001, 3600)]
    scaling_max_images: Positive
    max_failures: Count
    cost: Cost
    only: Annotated[str, OneOf(("all", "data"))]
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> Path:
        """The folder of the records."""
        return self.out / "runs"


@dataclass(frozen=True)
class Slice:
    """The first `n` images of a prepared corpus.

    `digest` identifies their bytes, `manifest` is the path of their list. `storage`: `files`, then,
    after a colon, what of them affects a timing, such as `files:thumbnails`.
    """

    kind: str
    image_set: str
    n: int
    digest: str
    manifest: str
    storage: str = "files"


@dataclass(frozen=True)
class Cell:
    """One measurement: a protocol, a recipe, a corpus slice, a repeat."""

    experiment: str
    protocol: str
    label: str
    repeat: int
    recipe: Recipe
    corpus: Slice | None
    model: ModelSpec
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def images(self) -> Slice:
        """The corpus slice. Raises ValueError: the cell has none."""
        if self.corpus is None:
            raise ValueError(f"{self.experiment}/{self.label} has no corpus")
        return self.corpus

    def identity(self) -> dict[str, Any]:
        """What identifies this cell: all of it but the manifest's path on this machine."""
        plain = asdict(self)
        if plain["corpus"] is not None:
            del plain["corpus"]["manifest"]
        return plain

    def choices(self) -> dict[str, Any]:
        """`identity` without the fields of recipe, corpus and model that have their defaults."""
        plain = self.identity()
        for part in ("recipe", "corpus", "model"):
            if plain[part] is not None:
                for name in _names_at_default(getattr(self, part)):
                    del plain[part][name]
        return plain

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> "Cell":
        """The inverse of `asdict`; also reads older records.

        A field that they lack has its default, one that is gone since is left out.
        """
        corpus = plain["corpus"]
        return Cell(
            experiment=plain["experiment"],
            protocol=plain["protocol"],
            label=plain["label"],
            repeat=plain["repeat"],
            recipe=from_fields(Recipe, plain["recipe"]),
            corpus=from_fields(Slice, {"manifest": ""} | corpus) if corpus else None,
            model=from_fields(ModelSpec, plain["model"]),
            params=plain["params"],
        )


def from_fields(cls: type[T], values: Mapping[str, Any]) -> T:
    """Build a dataclass from those of its fields that `values` has; nothing is checked."""
    names = {item.name for item in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in values.items() if name in names})


def _names_at_default(owner: Any) -> list[str]:
    """Fields of a dataclass's instance whose value equals their default."""
    return [
        item.name
        for item in fields(owner)
        if item.default is not MISSING and getattr(owner, item.name) == item.default
    ]
