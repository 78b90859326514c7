"""Models as torch modules: DINOv2 with seeded weights, or any image model of transformers."""

import hashlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

from wallclock import checkpoint
from wallclock.errors import Unavailable, check_name, import_extra
from wallclock.preprocess import Size
from wallclock.pretrained import bounded, library
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

#: A network, and the names of the weights that its files lack.
_Loaded: TypeAlias = tuple[Any, tuple[str, ...]]


def load_network(model: ModelSpec, canvas: Size | None = None) -> Any:
    """The model's network: FP32, in host memory, in evaluation mode.

    Called with `pixel_values`, it returns a `pooler_output` of (n, dim), whatever the architecture;
    `model.pool` says of what (`pooling`). `canvas`: height and width of its images in pixels; None:
    squares of the model's input. Raises `UserError` where the weights cannot be loaded or have no
    such vector, with the fix; `Unavailable` without a library that the model needs.
    """
    check_name(model.weights, _LOADERS, "model.weights of a network")
    import_extra("transformers", f"model {model.name}", "embed")
    from wallclock.stages.forward import pooling

    network, missing = _LOADERS[model.weights](model)
    size = canvas or (model.input_px, model.input_px)
    network = pooling.pooled(network.eval().float(), model, missing, size)
    if model.pruned:
        _prune(network, model.pruned)
    return network


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
    """The model from a local folder, or from the hub at the pinned revision; safetensors only.

    From a folder: the library itself would ask the hub for files that a model may have.
    """
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


def _prune(network: Any, share: float) -> None:
    """Remove hidden units of every MLP: its two layers become narrower, no weight is only masked.

    Removed are those whose weights in the first layer have the smallest Euclidean norm. Raises
    `Unavailable` where no layer widens its input for the next one to narrow it.
    """
    import torch
    from torch.nn.utils import prune

    ln_structured: Any = prune.ln_structured  # untyped in torch
    remove: Any = prune.remove
    layers = [module for module in network.modules() if isinstance(module, torch.nn.Linear)]
    mlps = [
        (first, second)
        for first, second in pairwise(layers)
        if first.in_features < first.out_features == second.in_features
    ]
    if not mlps:
        raise Unavailable(f"model.pruned={share:g}: a {network.config.model_type} has no MLP")
    for first, second in mlps:
        ln_structured(first, "weight", amount=share, n=2, dim=0)
        kept = dict(first.named_buffers())["weight_mask"].bool().all(dim=1)
        remove(first, "weight")
        for layer, name, index in (
            (first, "weight", (kept,)),
            (first, "bias", (kept,)),
            (second, "weight", (slice(None), kept)),
        ):
            if (values := getattr(layer, name)) is not None:
                setattr(layer, name, torch.nn.Parameter(values.detach()[index].clone()))
        first.out_features = second.in_features = int(kept.sum())


_LOADERS: dict[str, Callable[[ModelSpec], _Loaded]] = {"random": _random, "pretrained": _pretrained}
