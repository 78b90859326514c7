"""Stage `forward`: a batch on the device to pooled vectors, by DINOv2-small or any image model of one's own."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from wallclock import checkpoint
from wallclock.errors import Unavailable, UserError, check_name
from wallclock.spec import ModelSpec

_DTYPES = ("fp32", "fp16", "bf16")
#: Where the architecture has it.
_ATTENTION = "sdpa"


#: Of each channel, what to add to a pixel and what to multiply the sum by.
ShiftScale: TypeAlias = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Forward:
    """A loaded model: `run` takes the device's batch (n, 3, h, w) and returns (n, dim) vectors.

    `weights_digest` is the sha256 of all parameters, so that a record says which weights ran.
    """

    run: Callable[[Any], Any]
    weights_digest: str
    parameters: int


def make(
    model: ModelSpec, device: str, dtype: str, shift_scale: ShiftScale | None = None
) -> Forward:
    """Load a model.

    Args:
        shift_scale: what turns pixels into the model's input, (pixel + shift) * scale for each channel;
            given, `run` takes uint8 (n, h, w, 3) and normalizes it on the device.

    Raises:
        UserError: the weights cannot be had; the message names the fix.
    """
    check_name(model.weights, (*_LOADERS, "none"), "model.weights")
    check_name(dtype, _DTYPES, "dtype")
    if model.weights == "none":
        return _null(model)
    return _network(load_network(model), device, dtype, shift_scale)


def load_network(model: ModelSpec) -> Any:
    """The model's network alone: FP32, in host memory, in evaluation mode.

    Whatever the architecture: called with `pixel_values`, it answers with a `pooler_output` of (n, dim).

    Raises:
        UserError: the weights cannot be had; the message names the fix.
        Unavailable: a library that the model needs is not here.
    """
    check_name(model.weights, _LOADERS, "model.weights of a network")
    network = _pooled(_LOADERS[model.weights](model).eval().float(), model)
    width = checkpoint.width(network.config.to_dict())
    if width != model.dim:
        raise UserError(
            f"the model makes vectors of {width} numbers, model.dim says {model.dim}; set model.dim={width}"
        )
    return network


def _null(model: ModelSpec) -> Forward:
    def run(batch: Any) -> Any:
        service_ms = model.service_ms + model.service_ms_per_image * len(batch)
        if service_ms:
            time.sleep(service_ms / 1e3)
        # Not zeros: the first pixels, so that a vector still tells which image it belongs to.
        return batch.reshape(len(batch), -1)[:, : model.dim]

    return Forward(run, weights_digest="none", parameters=0)


def _network(network: Any, device: str, dtype: str, shift_scale: ShiftScale | None) -> Forward:
    digest, parameters = digest_of(network)
    return Forward(bound(network, device, dtype, shift_scale), digest, parameters)


def bound(
    network: Any, device: str, dtype: str, shift_scale: ShiftScale | None = None
) -> Callable[[Any], Any]:
    """Move a network to the device in a dtype; return what takes a batch there to its vectors there.

    Args:
        shift_scale: normalize there, too: batches are then uint8 (n, h, w, 3).
    """
    import torch

    kind = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    network = network.to(device=device, dtype=kind)

    def embed(batch: Any) -> Any:
        with torch.inference_mode():
            return network(pixel_values=batch.to(kind)).pooler_output

    if shift_scale is None:
        return embed
    shift, scale = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in shift_scale)

    def run(pixels: Any) -> Any:
        # In FP32, then rounded once, as the host does it.
        return embed((pixels.permute(0, 3, 1, 2).float() + shift) * scale)

    return run


def _random(model: ModelSpec) -> Any:
    """facebook/dinov2-small's architecture (its config.json), with seeded random weights."""
    import torch
    from transformers import Dinov2Config, Dinov2Model

    config: Any = Dinov2Config(  # type: ignore[call-arg]
        hidden_size=model.dim,
        num_hidden_layers=12,
        num_attention_heads=6,
        mlp_ratio=4,
        patch_size=14,
        image_size=518,
        attn_implementation=_ATTENTION,
    )
    torch.manual_seed(model.seed)
    return Dinov2Model(config)


def _pretrained(model: ModelSpec) -> Any:
    """The model from a local folder, or from the hub at the pinned revision; safetensors only."""
    from safetensors import SafetensorError

    source = model.path or model.hub_id
    if model.path and not Path(model.path).is_dir():
        # The library would take it for the name of a model on the hub.
        raise UserError(
            f"model.path: {model.path} is no folder; give the one with config.json and model.safetensors"
        )
    try:
        return _loaded(source, model)
    except ImportError as error:
        # The message of transformers is a paragraph; its first line with words names the library.
        words = next(
            (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
        )
        raise Unavailable(
            f"{source} needs a library that is not here: {words} For timm's models type `.venv/bin/pip install timm` "
            "(it brings torchvision: take the build that fits this torch)"
        ) from error
    except (OSError, ValueError, SafetensorError) as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".") + "."
        raise UserError(
            f"cannot load {source}: {first_line} Use model.path=/folder/with/safetensors, or model.weights=random "
            "for the same architecture with seeded weights"
        ) from error


def _loaded(source: str, model: ModelSpec) -> Any:
    from transformers import AutoModel

    options: dict[str, Any] = {
        "revision": None if model.path else model.revision,
        "use_safetensors": True,
    }
    try:
        network, found = AutoModel.from_pretrained(
            source, output_loading_info=True, attn_implementation=_ATTENTION, **options
        )
    except ValueError as error:
        if "attention implementation" not in str(error):
            raise
        # An architecture without attention, or with one of its own.
        network, found = AutoModel.from_pretrained(source, output_loading_info=True, **options)
    if any(name.startswith("pooler.") for name in found["missing_keys"]):
        # A checkpoint of a classifier: a pooler of random weights would be put on top of the trained ones.
        network.pooler = None
    # Of a model for pictures and text, the half that sees.
    return getattr(network, "vision_model", network)


def _pooled(network: Any, model: ModelSpec) -> Any:
    """The network itself if it pools, else one around it that does as its authors advise."""
    import torch

    if network.config.model_type == "dinov2":
        return network
    with torch.inference_mode():
        output = network(pixel_values=torch.zeros(1, 3, model.input_px, model.input_px))
    vectors = getattr(output, "pooler_output", None)
    return network if vectors is not None and vectors.ndim == 2 else _pooling(network)


def _pooling(network: Any) -> Any:
    """A network that pools another's output: its own pooled map laid flat, its class token, or the mean of its map."""
    import torch
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    class Pooling(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.config = network, network.config

        def forward(self, pixel_values: Any) -> Any:
            output = self.network(pixel_values=pixel_values)
            vectors, states = getattr(output, "pooler_output", None), output.last_hidden_state
            if vectors is not None:
                vectors = vectors.flatten(1)
            else:
                vectors = states[:, 0] if states.ndim == 3 else states.mean(dim=(2, 3))
            return BaseModelOutputWithPooling(pooler_output=vectors)

    return Pooling().eval()


def digest_of(network: Any) -> tuple[str, int]:
    """sha256 of all parameters, and how many numbers they are."""
    digest, count = hashlib.sha256(), 0
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        count += value.numel()
    return digest.hexdigest(), count


_LOADERS: dict[str, Callable[[ModelSpec], Any]] = {"random": _random, "pretrained": _pretrained}
