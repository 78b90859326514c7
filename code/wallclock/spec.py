"""The frozen descriptions that travel from the configuration to a measurement.

Nothing here knows Hydra or torch: a `Cell` is plain data, so that it can be hashed into a key,
written into a record and sent to a fresh process as JSON. The dataclasses are the schema of the
configuration: their fields' annotations are what `settings` accepts, their defaults what `conf/`
need not repeat.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from wallclock.constraints import OneOf, Range

#: The paper's two image sets; a user's folder is compared with the one it resembles.
IMAGE_SETS = ("small_256", "original")
#: How stages overlap, how DataLoader's workers start, how much of a progressive JPEG is decoded
#: (`stages/decode/scans.py`), where training images are augmented, how the network is compiled.
ENGINES = ("serial", "dataloader", "threads")
START_METHODS = ("fork", "forkserver", "spawn")
PROGRESSIVE = ("full", "exact", "early")
AUGMENT = ("none", "cpu", "device")
COMPILERS = ("none", "compile", "cuda_graphs")
#: Runtime of the forward pass → its dtypes.
DTYPES: Mapping[str, tuple[str, ...]] = {
    "pytorch": ("fp32", "fp16", "bf16"),
    "onnxruntime": ("fp32", "fp16", "int8", "int8-static", "int8-weights"),
    "tensorrt": ("fp16",),
}
RUNTIMES = tuple(DTYPES)
SINKS = ("parquet", "lmdb", "npy", "jsonl")
#: Resizer → its interpolations.
INTERPOLATIONS: Mapping[str, tuple[str, ...]] = {
    "pil": ("nearest", "box", "bilinear", "bicubic", "lanczos"),
    "opencv": ("nearest", "linear", "area", "cubic", "lanczos"),
    "torch": ("bilinear", "bicubic"),
}
RESIZERS = tuple(INTERPOLATIONS)
#: What `read` can read from, and where that can be.
LAYOUTS = ("files", "tar", "lmdb")
SOURCES = ("local", "remote")
#: glibc's settings in a worker. By default freed memory goes back to the kernel when enough of it
#: lies at the top of the heap, which depends on what else the process has allocated; each full-size
#: image then faults its pages in again. `keep` never returns any.
ALLOCATORS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "keep": {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)},
}

#: ImageNet channel means and standard deviations, of pixels in [0, 1], RGB: the values in
#: facebook/dinov2-small's preprocessor_config.json.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

#: A mean and a standard deviation for each channel.
Statistics: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
IMAGENET: Statistics = (IMAGENET_MEAN, IMAGENET_STD)

#: Numbers that count something, from 0 and from 1.
Count = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1)]
Repeats = Annotated[int, Range(1, odd=True)]
_Threads = Annotated[int, Range(0, 1024)]
_Milliseconds = Annotated[float, Range(0, 3_600_000)]

T = TypeVar("T")


@dataclass(frozen=True)
class Recipe:
    """All choices that take JPEG bytes to vectors."""

    name: str
    decoder: str = "pil"
    resizer: Annotated[str, OneOf(RESIZERS)] = "pil"
    #: One of `INTERPOLATIONS[resizer]`.
    interpolation: str = "bilinear"
    engine: Annotated[str, OneOf(ENGINES)] = "serial"
    #: Processes of DataLoader (0: the main process loads) or threads (0: one per core).
    workers: _Threads = 0
    #: How DataLoader's workers start: fork is Linux's default before Python 3.14.
    start_method: Annotated[str, OneOf(START_METHODS)] = "fork"
    #: Batches that each DataLoader worker may have ready: 2 is torch's own default.
    prefetch: Annotated[int, Range(1, 1024)] = 2
    #: Whether batches wait for a GPU in page-locked memory; on a CPU none is.
    pin_memory: bool = True
    batch_size: Annotated[int, Range(1, 65_536)] = 32
    #: One of `DTYPES[runtime]`.
    dtype: str = "fp32"
    runtime: Annotated[str, OneOf(RUNTIMES)] = "pytorch"
    sink: Annotated[str, OneOf(SINKS)] = "parquet"
    device: Annotated[str, OneOf(("cpu", "cuda"))] = "cpu"
    #: Intra-op threads of torch; 0 leaves torch's own choice (one per core).
    torch_threads: _Threads = 0
    #: full, or auto: decode to the smallest power-of-two scale whose sides are at least
    #: `dct_margin` times the target's. At 1.25 one of 577 images lost more than 1 dB on INTER_AREA.
    dct_scale: Annotated[str, OneOf(("full", "auto"))] = "full"
    dct_margin: Annotated[float, Range(1, 1000)] = 1.25
    #: Scans of progressive JPEGs: all; or with dct_scale=auto those that change a pixel (exact), or
    #: fewer, at a loss (early).
    progressive: Annotated[str, OneOf(PROGRESSIVE)] = "full"
    #: Where pixels become normalized floats: on the device, uint8 crosses the bus, a quarter of the
    #: bytes.
    normalize_on: Annotated[str, OneOf(("host", "device"))] = "host"
    #: Of training images (`stages/augment.py`): in the workers, or on the device.
    augment: Annotated[str, OneOf(AUGMENT)] = "none"
    #: none, compile (torch.compile) or cuda_graphs.
    compile: Annotated[str, OneOf(COMPILERS)] = "none"

    @property
    def pins(self) -> bool:
        """Whether its loader delivers page-locked batches; the serial engine delivers none."""
        return self.pin_memory and self.device == "cuda" and self.engine != "serial"


@dataclass(frozen=True)
class Limits:
    """Sizes above which an image is refused before it is decoded.

    They bound the seconds that a file can cost, by its work: a verdict that depended on a clock
    would differ from machine to machine.
    """

    max_pixels: Positive = 100_000_000
    #: Of either side: the most that a JPEG can have.
    max_side: Positive = 65_535
    max_bytes: Positive = 200_000_000
    max_scans: Positive = 64
    #: Pixels times scans: a progressive JPEG is decoded once for each scan.
    max_scan_pixels: Positive = 1_000_000_000
    #: Segments of a JPEG's header and between its scans.
    max_segments: Positive = 10_000


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
    connect_timeout_s: float = 5.0
    #: Without a byte received.
    read_timeout_s: Annotated[float, Range(0.001, 3600)] = 20.0
    #: Image set → of how many of the 256 two-hex-digit folders it is sampled.
    prefixes: Mapping[str, Annotated[int, Range(1, 256)]] = field(default_factory=dict)
    #: '<image set>-<n>' → the digest that its list must have.
    lists: Mapping[str, str] = field(default_factory=dict)
    #: What `read` reads, and whether by GETs, `threads` of them prefetched.
    layout: Annotated[str, OneOf(LAYOUTS)] = "files"
    source: Annotated[str, OneOf(SOURCES)] = "local"
    #: Hash every file again; fetch damaged ones and those that failed before.
    verify: bool = False


#: Kind of corpus → its settings. The other fields of `CorpusSpec` keep their defaults.
CORPUS_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "synthetic": ("seed", "progressive_share", "limits"),
    "folder": ("path", "image_set", "limits"),
    "abo": (
        *("endpoint", "bucket", "region", "seed", "prefixes", "lists", "threads", "attempts"),
        *("read_timeout_s", "verify", "layout", "source", "limits"),
    ),
}


@dataclass(frozen=True)
class ModelSpec:
    """What turns pixels into vectors."""

    name: str
    #: random (seeded), pretrained (hub or local folder), or none (a mock model without a network).
    weights: Annotated[str, OneOf(("random", "pretrained", "none"))] = "random"
    hub_id: str = ""
    revision: str = ""
    #: A local folder with config.json and model.safetensors.
    path: str = ""
    #: Of random weights; in training also of labels, crops and colours.
    seed: Count = 0
    #: The share of the hidden units of every MLP that is removed, those of the smallest weights.
    pruned: Annotated[float, Range(0, 0.9)] = 0.0
    #: 0 and empty statistics: as the model's own configuration says.
    input_px: Annotated[int, Range(0, 8192)] = 224
    dim: Annotated[int, Range(0, 65_536)] = 384
    #: Mock model only: the service time of a batch, fixed and per image.
    service_ms: _Milliseconds = 0.0
    service_ms_per_image: _Milliseconds = 0.0
    #: Mock model only: spend that time spinning on a core, as a host that polls a CUDA event does.
    spin: bool = False
    #: What `normalize` subtracts from each channel and divides it by; pixels in [0, 1], RGB.
    mean: tuple[Annotated[float, Range(-1000, 1000)], ...] = IMAGENET_MEAN
    std: tuple[Annotated[float, Range(0, 1000)], ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        # JSON and YAML bring lists.
        object.__setattr__(self, "mean", tuple(self.mean))
        object.__setattr__(self, "std", tuple(self.std))

    @property
    def statistics(self) -> Statistics:
        """Mean and standard deviation, as `normalize` takes them."""
        return self.mean, self.std


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
    once the corpus is on the disk. `export` is the port for live metrics, 0 for none. `notes` are
    lines for the user: settings that this invocation does not use.
    """

    experiments: Mapping[str, Mapping[str, Any]]
    corpus: CorpusSpec
    model: ModelSpec
    recipe: Recipe
    device: str
    out: Path
    figures: Path
    export: Annotated[int, Range(0, 65_535)]
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

    `digest` identifies their bytes, `manifest` is the path of their list. `storage` names what
    `read` reads from where that is not one file per image, then, after a colon, what else of it
    affects a timing.
    """

    kind: str
    image_set: str
    n: int
    digest: str
    manifest: str
    storage: str = "files"

    @property
    def label(self) -> str:
        """The corpus by name, for a table: 'abo', or 'abo (tar)' where `read` reads a tar."""
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
        """The corpus slice. Raises ValueError: the cell has none."""
        if self.corpus is None:
            raise ValueError(f"{self.experiment}/{self.label} has no corpus")
        return self.corpus

    def to_json(self) -> dict[str, Any]:
        """Plain data, the manifest's path included."""
        return asdict(self)

    def identity(self) -> dict[str, Any]:
        """What identifies this cell: all of it but the manifest's path on this machine."""
        plain = asdict(self)
        if plain["corpus"] is not None:
            del plain["corpus"]["manifest"]
        return plain

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> "Cell":
        """The inverse of `to_json`; also reads older records, whose recipes have more fields."""
        corpus = plain["corpus"]
        return Cell(
            **{
                **plain,
                "recipe": _known(Recipe, plain["recipe"]),
                "corpus": Slice(**{"manifest": "", **corpus}) if corpus else None,
                "model": _known(ModelSpec, plain["model"]),
            }
        )


def _known(cls: type[T], plain: Mapping[str, Any]) -> T:
    """Build a dataclass from those of its fields that `plain` has."""
    names = {item.name for item in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in plain.items() if name in names})
