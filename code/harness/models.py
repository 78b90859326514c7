"""Networks of published sizes with random weights, as folders that any library loads.

They take as long as a hub's.
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from wallclock.files import pretty_json
from wallclock.recipe import IMAGENET_MEAN, IMAGENET_STD, ModelSpec

_PX = 224
_SQUARE = {"height": _PX, "width": _PX}
_CROP: dict[str, Any] = {"crop_size": _SQUARE, "do_center_crop": True}
_IMAGENET = {"image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD}
_CLIP = {
    "image_mean": (0.48145466, 0.4578275, 0.40821073),
    "image_std": (0.26862954, 0.26130258, 0.27577711),
}
_HALF = {"image_mean": (0.5,) * 3, "image_std": (0.5,) * 3}
_SHORT_EDGE = {"image_processor_type": "CLIPImageProcessor", **_CROP}
#: Name → transformers' type of model, numbers of a vector, what of its configuration is not the
#: default, its processor.
_NETWORKS: Mapping[str, tuple[str, int, dict[str, Any], dict[str, Any]]] = {
    "dinov2-small": (
        "dinov2",
        384,
        {"hidden_size": 384, "num_attention_heads": 6, "patch_size": 14, "image_size": 518},
        {**_SHORT_EDGE, **_IMAGENET, "size": {"shortest_edge": 256}},
    ),
    "clip-vit-b32": (
        "clip_vision_model",
        768,
        {},
        {**_SHORT_EDGE, **_CLIP, "size": {"shortest_edge": _PX}},
    ),
    "resnet-50": ("resnet", 2048, {}, {**_SHORT_EDGE, **_IMAGENET, "size": {"shortest_edge": 256}}),
    "siglip-b16": (
        "siglip_vision_model",
        768,
        {},
        {"image_processor_type": "SiglipImageProcessor", **_HALF, "size": _SQUARE},
    ),
}
NAMES = tuple(_NETWORKS)


def spec(name: str) -> ModelSpec:
    """A network of `NAMES`, in squares of 224 px."""
    _, dim, _, processor = _NETWORKS[name]
    return ModelSpec(name, dim=dim, mean=processor["image_mean"], std=processor["image_std"])


def on_disk(model: ModelSpec, cache: Path) -> ModelSpec:
    """The model from its folder, if it is one of `spec`: the product makes no other random one."""
    if model.weights != "random" or model.name == "dinov2-small" or model.name not in NAMES:
        return model
    return replace(model, weights="pretrained", path=str(folder(model.name, cache)))


def folder(name: str, cache: Path) -> Path:
    """The folder of a network of `NAMES`, made once: its configuration, weights and processor."""
    made = cache / "models" / name
    if made.exists():
        return made
    import torch
    from transformers import AutoConfig, AutoModel

    make_network: Any = AutoModel.from_config
    kind, _, sizes, processor = _NETWORKS[name]
    processor = {"do_resize": True, "resample": 3, "do_normalize": True, **processor}
    made.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(mkdtemp(prefix=".", dir=made.parent))
    try:
        torch.manual_seed(0)
        network = make_network(AutoConfig.for_model(kind, **sizes))
        network.save_pretrained(unfinished)
        path = unfinished / "preprocessor_config.json"
        path.write_text(pretty_json(processor), encoding="utf-8")
        unfinished.rename(made)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return made
