"""The frozen descriptions that travel from the configuration to a measurement.

Nothing here knows Hydra, torch or a file: a `Cell` is plain data, so that it can be hashed into a
key, written into a record and handed to a fresh process as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

#: The two image sets of the paper; a folder of one's own is given the name of the one it resembles.
IMAGE_SETS = ("small_256", "original")
#: How stages overlap, and what makes the forward pass faster for one fixed shape.
ENGINES = ("serial", "dataloader", "threads")
COMPILERS = ("none", "compile", "cuda_graphs")
#: What `read` can read from, and where that can be.
LAYOUTS = ("files", "tar", "lmdb")
SOURCES = ("local", "remote")


#: ImageNet channel means and standard deviations, of pixels in [0, 1], RGB: the values in
#: facebook/dinov2-small's preprocessor_config.json.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

#: A mean and a standard deviation for each channel.
Statistics: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
IMAGENET: Statistics = (IMAGENET_MEAN, IMAGENET_STD)


@dataclass(frozen=True)
class Recipe:
    """All choices that take JPEG bytes to vectors."""

    name: str
    decoder: str = "pil"
    resizer: str = "pil"
    interpolation: str = "bilinear"
    engine: str = "serial"
    workers: int = 0
    #: How DataLoader's workers start: fork (Linux's default before Python 3.14), forkserver or spawn.
    start_method: str = "fork"
    batch_size: int = 32
    dtype: str = "fp32"
    runtime: str = "pytorch"
    sink: str = "parquet"
    device: str = "cpu"
    #: Intra-op threads of torch; 0 leaves torch's own choice (one a core).
    torch_threads: int = 0
    opencv_threads: int = 1
    #: full, or auto: decode to the smallest power-of-two scale at or above `dct_margin` times the target.
    dct_scale: str = "full"
    dct_margin: float = 1.25
    #: Where pixels become normalized floats: host, or device (uint8 crosses the bus, a quarter of the bytes).
    normalize_on: str = "host"
    #: none, compile (torch.compile) or cuda_graphs.
    compile: str = "none"


@dataclass(frozen=True)
class Limits:
    """What an image may ask for before it is refused unread."""

    max_pixels: int = 100_000_000
    max_bytes: int = 200_000_000
    max_scans: int = 64


@dataclass(frozen=True)
class CorpusSpec:
    """Where images come from. Fields that a kind of corpus does not use keep their defaults."""

    kind: str
    seed: int = 0
    path: str = ""
    image_set: str = "original"
    #: folder only: the first images by a seeded rank instead of by name.
    sample: bool = False
    progressive_share: float = 0.0
    limits: Limits = field(default_factory=Limits)
    #: abo only: the store. An empty endpoint is AWS; any other is an S3-compatible store or a plain HTTP mirror.
    endpoint: str = ""
    bucket: str = ""
    region: str = ""
    threads: int = 32
    attempts: int = 6
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 20.0
    #: abo only: of how many of the 256 prefixes a set is sampled; the digests that its lists must have.
    prefixes: Mapping[str, int] = field(default_factory=dict)
    lists: Mapping[str, str] = field(default_factory=dict)
    #: abo only: files, tar or lmdb; local or remote; whether to hash again what is on the disk.
    layout: str = "files"
    source: str = "local"
    verify: bool = False


@dataclass(frozen=True)
class ModelSpec:
    """What turns pixels into vectors."""

    name: str
    #: random (seeded), pretrained (hub or local folder), or none (a mock model without a network)
    weights: str = "random"
    hub_id: str = ""
    revision: str = ""
    path: str = ""
    seed: int = 0
    input_px: int = 224
    dim: int = 384
    attention: str = "sdpa"
    #: weights=none only: the service time of a batch, fixed and per image, in milliseconds.
    service_ms: float = 0.0
    service_ms_per_image: float = 0.0
    #: What `normalize` takes off each channel and divides it by; pixels in [0, 1], RGB.
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        # JSON and YAML bring lists.
        object.__setattr__(self, "mean", tuple(self.mean))
        object.__setattr__(self, "std", tuple(self.std))

    @property
    def statistics(self) -> Statistics:
        """What `normalize` needs to know."""
        return self.mean, self.std


@dataclass(frozen=True)
class Slice:
    """The first `n` images of a prepared corpus. `digest` identifies their bytes, `path` finds them.

    `storage` says what `read` reads from where that is not one file an image: its name, then, behind
    a colon, what else of it a timing depends on.
    """

    kind: str
    image_set: str
    n: int
    digest: str
    manifest: str
    storage: str = "files"

    @property
    def label(self) -> str:
        """The corpus by name, for a table: 'abo', or 'abo (tar)' where `read` reads from something else."""
        storage = self.storage.split(":")[0]
        return self.kind if storage == "files" else f"{self.kind} ({storage})"


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
        """The corpus slice.

        Raises:
            ValueError: the cell has none.
        """
        if self.corpus is None:
            raise ValueError(f"{self.experiment}/{self.label} has no corpus")
        return self.corpus

    def to_json(self) -> dict[str, Any]:
        """Plain data, the manifest's path included."""
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """What makes this cell this cell: all of it but where the manifest happens to lie."""
        plain = asdict(self)
        if plain["corpus"] is not None:
            del plain["corpus"]["manifest"]
        return plain

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Cell:
        """The inverse of `to_json`."""
        return Cell(
            experiment=plain["experiment"],
            protocol=plain["protocol"],
            label=plain["label"],
            repeat=plain["repeat"],
            recipe=Recipe(**plain["recipe"]),
            corpus=Slice(**{"manifest": "", **plain["corpus"]}) if plain["corpus"] else None,
            model=ModelSpec(**plain["model"]),
            params=plain["params"],
        )
