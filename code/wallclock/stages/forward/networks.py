"""Models as torch modules: DINOv2 with seeded weights, or any image model of transformers."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from wallclock import checkpoint
from wallclock.checkpoint import bounded, library
from wallclock.errors import check_name, import_extra
from wallclock.preprocess import Size
from wallclock.recipe import ModelSpec

_LAYERS = 12
#: DINOv2's heads are 64 wide; a narrow network of a test has as many as dinov2-small.
_HEAD_DIM, _HEADS = 64, 6
_ATTENTION = "sdpa"  # where the architecture has it
#: Numbers that a network may have beside those in its files: a tower of texts that they leave out.
_MOST_MISSING = 200_000_000
_GIVE = (
    "give a folder with config.json and model.safetensors (model=/folder; in the suite "
    "model.path=/folder)"
)

#: A batch on the device to its vectors there.
Step: TypeAlias = Callable[[Any], Any]
#: A network, and the names of the weights that its files lack.
_Loaded: TypeAlias = tuple[Any, tuple[str, ...]]


@dataclass(frozen=True)
class Network:
    """A network that is ready to run. All labels are read back from the object that runs.

    `run` takes a batch on the device (n, 3, h, w), or uint8 (n, h, w, 3) where it normalizes, to
    (n, dim) vectors there; on a GPU it may return before the device is done. `provider`: library,
    device and precision. `values`: for the record, as `compile_s`, seconds of compilation, capture
    or session creation (None where there is none).
    """

    run: Step
    weights_digest: str
    runtime: str = "none"
    provider: str = "none"
    dtype: str = "none"
    compile: str = "none"
    values: Mapping[str, Any] = field(default_factory=lambda: {"compile_s": None})


def load_network(model: ModelSpec, canvas: Size | None = None) -> Any:
    """The model's network: FP32, in host memory, in evaluation mode.

    Called with `pixel_values`, it returns a `pooler_output` of (n, dim), as `model.pool` says.
    `canvas`: height and width of its images; None: squares of the model's input. Raises `UserError`
    where the weights cannot be loaded or have no such vector; `Unavailable` without a library.
    """
    check_name(model.weights, _LOADERS, "model.weights of a network")
    import_extra("transformers", f"model {model.name}", "embed")
    from wallclock.stages.forward import pooling

    network, missing = _LOADERS[model.weights](model)
    size = canvas or (model.input_px, model.input_px)
    return pooling.pooled(network.eval().float(), model, missing, size)


def digest_of(network: Any) -> str:
    """sha256 of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _random(model: ModelSpec) -> _Loaded:
    """The architecture of facebook/dinov2-small or, 768 wide, -base, with seeded random weights."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    sizes: dict[str, Any] = {"hidden_size": model.dim, "patch_size": 14, "image_size": 518}
    heads = model.dim // _HEAD_DIM if model.dim % _HEAD_DIM == 0 else _HEADS
    sizes |= {"num_hidden_layers": _LAYERS, "num_attention_heads": heads, "mlp_ratio": 4}
    config: Any = Dinov2Config(attn_implementation=_ATTENTION, **sizes)  # type: ignore[call-arg]
    torch.manual_seed(model.seed)
    return Dinov2Model(config), ()


def _pretrained(model: ModelSpec) -> _Loaded:
    """From a local folder, or the hub at the pinned revision, which the library would ask again."""
    folder, source = checkpoint.weights_folder_of(model), model.path or model.hub_id
    config = checkpoint.read_json(folder / checkpoint.CONFIG)
    architecture = next(iter(config.get("architectures") or []), "")
    most = checkpoint.n_weights(folder) + _MOST_MISSING
    with library(source, _GIVE) as transformers, bounded(most):
        loader = transformers.AutoModel
        if model.pool == "projection" and architecture.endswith("VisionModelWithProjection"):
            # The automatic class would leave the projection out.
            loader = getattr(transformers, architecture, loader)
        options: dict[str, Any] = {"use_safetensors": True, "output_loading_info": True}
        options |= {"local_files_only": True, "ignore_mismatched_sizes": True}
        if loader is transformers.AutoModel:
            options["trust_remote_code"] = False
        try:
            network, info = loader.from_pretrained(
                str(folder), attn_implementation=_ATTENTION, **options
            )
        except ValueError as error:
            if "attention implementation" not in str(error):
                raise
            # An architecture without attention, or with one of its own.
            network, info = loader.from_pretrained(str(folder), **options)
        for name, stored, built in sorted(info["mismatched_keys"]):
            sizes = f"{name} is {tuple(stored)} in its files, {tuple(built)} by {checkpoint.CONFIG}"
            raise ValueError(sizes)
    return network, tuple(sorted(info["missing_keys"]))


_LOADERS: dict[str, Callable[[ModelSpec], _Loaded]] = {"random": _random, "pretrained": _pretrained}
