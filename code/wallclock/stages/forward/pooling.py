"""From a network's output to one vector an image, as `ModelSpec.pool` says.

tower: the pooled output of the vision tower; where it has none with trained weights, the class
token, or the mean of the last map. projection: what the model's `get_image_features` returns, or
the `image_embeds` of a tower saved with its projection. pooler: the pooled output, or an error.
cls: the class token of the last layer, as the library returns it (of CLIP before its last norm).
mean: over the last layer's map, or over its tokens without those that precede the patches (class,
distillation and register tokens). Where the tokens cannot be told apart, nothing is guessed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from wallclock import checkpoint
from wallclock.errors import UserError, first_line
from wallclock.preprocess import Size
from wallclock.recipe import ModelSpec

_TOWER = "vision_model"
_TOWER_PREFIX = f"{_TOWER}."
_PROJECTION = "visual_projection"
#: What only texts need; left out, it takes no memory of the device.
_OF_TEXTS = ("text_model", "text_projection")
#: At most a class and a distillation token, beside the registers.
_MOST_CLASS_TOKENS = 2


def pooled(network: Any, model: ModelSpec, missing: Sequence[str], canvas: Size) -> Any:
    """The network, or its vision tower, that returns the vectors as `pooler_output` (n, dim).

    `missing`: names of the weights that the model's files lack; they have random values. Raises
    UserError: it has no such vector, weights of it are missing, or it is not `model.dim` wide.
    """
    if model.pool == "projection":
        network = _projected(network, model, missing)
        _check_finite(network, model)
    else:
        if (tower := getattr(network, _TOWER, None)) is not None:
            network = tower
            names = [name for name in missing if name.startswith(_TOWER_PREFIX)]
            missing = [name.removeprefix(_TOWER_PREFIX) for name in names]
        has_pooler = not any(name.startswith("pooler.") for name in missing)
        if not has_pooler:
            # A classifier's checkpoint: the library would add a pooler with random weights.
            network.pooler = None
        _check_trained([name for name in missing if not name.startswith("pooler.")], model)
        _check_finite(network, model)
        if model.pool == "tower" and network.config.model_type == "dinov2":
            _check_width(checkpoint.width(network.config.to_dict()), model)
            return network
        _attach(network, model, canvas)
    _check_vectors(network, model, canvas)
    return network


def _check_trained(missing: Sequence[str], model: ModelSpec) -> None:
    """Raise UserError for weights that would be random. A mask's token only serves training."""
    names = [name for name in missing if "mask_token" not in name]
    if names:
        lacks = f"pool={model.pool} needs weights that its files lack: {names[0]}"
        cure = "type another pool, or give a complete checkpoint"
        raise _error(model, f"{lacks} ({len(names)} in all); {cure}")


def _check_finite(network: Any, model: ModelSpec) -> None:
    """Raise UserError for weights with NaN or infinity: every vector would have them."""
    for name, weights in network.named_parameters():
        if not weights.isfinite().all():
            why = f"its weights {name} are not finite, as a training that diverged leaves them"
            raise _error(model, f"{why}; give another checkpoint")


class _Projected(torch.nn.Module):
    """A model of images and text, of which only the images' way to the common space is used."""

    def __init__(self, network: Any, features: Callable[..., Any]) -> None:
        super().__init__()
        self.network, self.config, self._features = network, network.config, features

    def forward(self, pixel_values: Any) -> Any:
        """A `pooler_output` of (n, dim)."""
        output = self._features(pixel_values=pixel_values)
        vectors = output
        if not isinstance(output, torch.Tensor):
            vectors = getattr(output, "image_embeds", None)
            vectors = output.pooler_output if vectors is None else vectors
        return BaseModelOutputWithPooling(pooler_output=vectors)


def _projected(network: Any, model: ModelSpec, missing: Sequence[str]) -> Any:
    features = getattr(network, "get_image_features", None)
    if features is None and not hasattr(network, _PROJECTION):
        needs = "pool=projection needs a model of images and text"
        raise _error(model, f"{needs}; {type(network).__name__} is not one; type pool=tower")
    if hasattr(network, _TOWER):
        missing = [name for name in missing if name.startswith((_TOWER_PREFIX, _PROJECTION))]
        for name in _OF_TEXTS:
            if hasattr(network, name):
                setattr(network, name, None)
    _check_trained(missing, model)
    return _Projected(network, features or network)


def _attach(network: Any, model: ModelSpec, canvas: Size) -> None:
    """Let the network return as `pooler_output` what `model.pool` says."""
    output = _run(network, model, canvas)
    states = getattr(output, "last_hidden_state", None)
    vectors = getattr(output, "pooler_output", None)
    if model.pool in ("tower", "pooler") and vectors is not None:
        if vectors.ndim != 2:
            _replace(network, lambda output: output.pooler_output.flatten(1))
        return
    if model.pool == "pooler":
        raise _error(model, "pool=pooler: it has no trained pooler; type pool=cls or pool=mean")
    if states is None or states.ndim not in (3, 4):
        raise _error(model, f"{type(network).__name__} returns no features of images")
    if states.ndim == 4:
        if model.pool == "cls":
            raise _error(model, "pool=cls: it has a map; type pool=mean")
        _replace(network, lambda output: output.last_hidden_state.mean(dim=(2, 3)))
        return
    before = _tokens_before_patches(network, model, states.shape[1], canvas)
    if model.pool == "mean":
        _replace(network, lambda output: output.last_hidden_state[:, before:].mean(dim=1))
        return
    if before - _registers(network) < 1:
        raise _error(model, "it has no class token; type pool=mean")
    _replace(network, lambda output: output.last_hidden_state[:, 0])


def _replace(network: Any, pool: Callable[[Any], Any]) -> None:
    """Let the network's `pooler_output` be `pool` of its output."""

    def hook(module: Any, arguments: Any, output: Any) -> Any:
        return BaseModelOutputWithPooling(pooler_output=pool(output))

    network.register_forward_hook(hook)


def _registers(network: Any) -> int:
    return int(getattr(network.config, "num_register_tokens", 0) or 0)


def _patch(network: Any) -> Size | None:
    """Height and width of a patch in pixels; None where the configuration does not say."""
    size = getattr(network.config, "patch_size", None)
    height, width = size if isinstance(size, list | tuple) and len(size) == 2 else (size, size)
    if isinstance(height, int) and isinstance(width, int) and min(height, width) > 0:
        return height, width
    return None


def _tokens_before_patches(network: Any, model: ModelSpec, n_tokens: int, canvas: Size) -> int:
    """How many tokens come before those of the patches. Raises UserError: it cannot be told."""
    if patch := _patch(network):
        n_patches = (canvas[0] // patch[0]) * (canvas[1] // patch[1])
        before = n_tokens - n_patches
        if 0 <= before - _registers(network) <= _MOST_CLASS_TOKENS:
            return before
        # Swin halves the rows and columns of its patches before each stage but the first.
        merged: int = 2 ** (len(getattr(network.config, "depths", None) or [0]) - 1)
        if n_tokens * merged * merged == n_patches:
            return 0
    what = f"its {n_tokens} tokens cannot be told apart by its configuration"
    raise _error(model, f"pool={model.pool}: {what}; type another pool")


def _run(network: Any, model: ModelSpec, canvas: Size) -> Any:
    """The output for one image of noise. Raises UserError: the network takes no such image."""
    noise = torch.rand((1, 3, *canvas), generator=torch.Generator().manual_seed(0))
    try:
        with torch.inference_mode():
            return network(pixel_values=noise)
    except Exception as error:
        image = f"an image of {canvas[0]}x{canvas[1]} px ({first_line(error)})"
        cure = "give an image model, and in preprocess= the size that it takes"
        what = f"{network.config.model_type} cannot embed {image}; {cure}"
        raise _error(model, what) from error


def _check_vectors(network: Any, model: ModelSpec, canvas: Size) -> None:
    """Raise UserError for what is no vector, of another width, or another one the next time."""
    first, again = (_run(network, model, canvas).pooler_output for _ in range(2))
    if first is None or first.ndim != 2:
        raise _error(model, f"pool={model.pool} gives no vector for an image; type another pool")
    _check_width(first.shape[1], model)
    if not first.isfinite().all():
        raise _error(model, "its vectors are not finite; give another checkpoint")
    if not torch.allclose(first, again, rtol=1e-3, atol=1e-5):
        why = f"{network.config.model_type} draws at random, as one that masks patches"
        raise _error(model, f"two passes over an image differ: {why}; give a model that does not")


def _check_width(width: int, model: ModelSpec) -> None:
    if width != model.dim:
        says = f"the model's vectors have {width} numbers, model.dim says {model.dim}"
        raise UserError(f"{says}; set model.dim={width}")


def _error(model: ModelSpec, what: str) -> UserError:
    return UserError(f"model {model.path or model.hub_id or model.name}: {what}")
