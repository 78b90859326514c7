"""The choices of a run as plain frozen data: a recipe, a model, limits of an image.

Nothing here knows torch: recipe and model are hashed into the key of a measurement, written into
its record and sent to other processes as JSON. The fields' annotations say which values are
accepted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from wallclock.constraints import NO_VECTOR, OneOf, Range
from wallclock.errors import VERSION, UsageError
from wallclock.outside import printable

#: How the network is compiled.
COMPILERS = ("none", "compile", "cuda_graphs")
#: Runtime of the forward pass → its dtypes.
DTYPES: Mapping[str, tuple[str, ...]] = {
    "pytorch": ("fp32", "fp16", "bf16"),
    "onnxruntime": ("fp32", "fp16", "int8", "int8-static", "int8-weights"),
    "tensorrt": ("fp16",),
    "openvino": ("fp32", "bf16"),
}
RUNTIMES = tuple(DTYPES)
#: Resizer → its interpolations.
INTERPOLATIONS: Mapping[str, tuple[str, ...]] = {
    "pil": ("nearest", "box", "bilinear", "bicubic", "lanczos"),
    "opencv": ("nearest", "linear", "area", "cubic", "lanczos"),
    "torch": ("bilinear", "bicubic", "lanczos"),
    "native": ("bilinear", "bicubic", "lanczos"),
}
RESIZERS = tuple(INTERPOLATIONS)
#: Field → what makes the same pixels, to the bit, as another.
SAME_PIXELS = {"decoder": {"native": "simplejpeg"}, "resizer": {"native": "torch"}}
#: How a network's output becomes a vector (`stages/forward/pooling.py`).
POOLS = ("tower", "projection", "pooler", "cls", "mean")

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
_Threads = Annotated[int, Range(0, 1024), NO_VECTOR]
_Milliseconds = Annotated[float, Range(0, 3_600_000), NO_VECTOR]


@dataclass(frozen=True)
class Recipe:
    """All choices that take JPEG bytes to vectors."""

    name: Annotated[str, NO_VECTOR]
    decoder: str = "pil"
    resizer: Annotated[str, OneOf(RESIZERS)] = "pil"
    #: One of `INTERPOLATIONS[resizer]`.
    interpolation: str = "bilinear"
    #: Threads that load; 0: one per core.
    workers: _Threads = 0
    batch_size: Annotated[int, Range(1, 65_536)] = 32
    #: One of `DTYPES[runtime]`.
    dtype: str = "fp32"
    runtime: Annotated[str, OneOf(RUNTIMES)] = "pytorch"
    device: Annotated[str, OneOf(("cpu", "cuda"))] = "cpu"
    #: Intra-op threads of torch; 0 leaves torch's own choice (one per core).
    torch_threads: _Threads = 0
    #: full, or auto: decode to the smallest power-of-two scale whose sides are at least
    #: `dct_margin` times the target's.
    dct_scale: Annotated[str, OneOf(("full", "auto"))] = "full"
    dct_margin: Annotated[float, Range(1, 1000)] = 1.25
    #: Where pixels become normalized floats: on the device, uint8 crosses the bus, a quarter of the
    #: bytes.
    normalize_on: Annotated[str, OneOf(("host", "device"))] = "host"
    #: The text of a `Preprocess`; squash alone: to the model's input, with `interpolation`, as the
    #: image is stored.
    preprocess: str = "squash"
    #: none, compile (torch.compile) or cuda_graphs.
    compile: Annotated[str, OneOf(COMPILERS)] = "none"

    @property
    def pins(self) -> bool:
        """Whether its loader delivers page-locked batches."""
        return self.device == "cuda"


def by_pixels(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a recipe, in which what makes the same pixels has one name."""
    same = {name: SAME_PIXELS[name] for name in SAME_PIXELS if name in values}
    return {**values, **{name: of.get(values[name], values[name]) for name, of in same.items()}}


@dataclass(frozen=True)
class Limits:
    """Sizes over which an image is refused before it is decoded, and how URLs are requested.

    The sizes bound the work of decoding a file, not its seconds: those differ from machine to
    machine.
    """

    max_pixels: Positive = 100_000_000
    #: Of either side: the most that a JPEG can have.
    max_side: Positive = 65_535
    max_bytes: Positive = 200_000_000
    max_scans: Positive = 64
    #: Nanoseconds of a core and bytes of memory that decoding may take, as `budget` estimates them.
    max_work: Positive = 5_000_000_000
    max_memory: Positive = 1_000_000_000
    #: Segments of a JPEG's header and between its scans; blocks, chunks and tags of other formats.
    max_segments: Positive = 10_000
    #: The User-Agent header; seconds without any answer after which no further URL is tried.
    user_agent: str = f"wallclock/{VERSION}"
    give_up_s: Annotated[float, Range(0)] = 60.0
    #: Where a list behind a URL came from: its http URLs reach that address, and public ones. None:
    #: they reach any.
    origin: str | None = None
    #: A URL that was reached before; it is asked for where no other one answers.
    known: str = ""

    def __post_init__(self) -> None:
        if not (self.user_agent.isascii() and self.user_agent.isprintable()):
            shown = printable(repr(self.user_agent), 60)
            raise UsageError(f"user_agent={shown}: give printable ASCII characters")


@dataclass(frozen=True)
class ModelSpec:
    """What turns pixels into vectors."""

    name: str
    #: random (seeded), pretrained (hub or local folder), or none (a mock model without a network).
    weights: Annotated[str, OneOf(("random", "pretrained", "none"))] = "random"
    hub_id: str = ""
    revision: str = ""
    #: A local folder with config.json and model.safetensors.
    path: Annotated[str, NO_VECTOR] = ""
    #: Of random weights; in training also of labels, crops and colours.
    seed: Count = 0
    #: The share of the hidden units of every MLP that is removed, those of the smallest weights.
    pruned: Annotated[float, Range(0, 0.9)] = 0.0
    #: tower: the vision tower's pooled output. projection: of models of images and text, the vector
    #: that is compared with a text's. pooler, cls, mean: of the last layer.
    pool: Annotated[str, OneOf(POOLS)] = "tower"
    #: Whether vectors are scaled to length 1; of zeros stays zeros.
    normalize: bool = False
    #: 0 and empty statistics: as the model's own configuration says.
    input_px: Annotated[int, Range(0, 8192)] = 224
    dim: Annotated[int, Range(0, 65_536)] = 384
    #: Mock model only: the service time of a batch, fixed and per image.
    service_ms: _Milliseconds = 0.0
    service_ms_per_image: _Milliseconds = 0.0
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


#: Of every job and loader; conf/recipe/fast.yaml is this, too.
FAST = Recipe(
    "fast", "native", "native", batch_size=64, dtype="fp16", dct_scale="auto", normalize_on="device"
)
