"""What a model's own files say of it: input size, width of its vector, pixel statistics. Loads no network.

transformers' checkpoints say it in config.json and preprocessor_config.json, timm's in config.json alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wallclock.errors import UserError
from wallclock.spec import IMAGENET_MEAN, IMAGENET_STD, ModelSpec

_CONFIG, _PREPROCESSOR = "config.json", "preprocessor_config.json"

#: Where configurations keep the width of the pooled vector, the first that is there.
_WIDTHS = ("hidden_size", "hidden_sizes", "num_features", "embed_dim", "hidden_dim")


def complete(model: ModelSpec) -> ModelSpec:
    """Fill in what the settings left open (0, empty): `input_px`, `dim`, `mean`, `std`, the hub's commit.

    Raises:
        UserError: neither folder nor hub id, files that cannot be had, or a size that they do not tell.
    """
    if model.input_px and model.dim and model.mean and model.std:
        return model
    if not model.path and not model.hub_id:
        raise UserError(
            "model=any needs the model: add model.path=/folder or model.hub_id=owner/name"
        )
    model, config, preprocessor = _read(model)
    source = model.path or model.hub_id
    mean, std = _statistics(config, preprocessor)
    return replace(
        model,
        name=Path(source).name if model.name == "any" else model.name,
        input_px=model.input_px or _told(_input_px(config, preprocessor), "model.input_px", source),
        dim=model.dim or _told(width(config), "model.dim", source),
        mean=model.mean or mean,
        std=model.std or std,
    )


def width(config: Mapping[str, Any]) -> int:
    """How many numbers a model's pooled vector has, by its configuration; 0 where it does not tell."""
    # Of a model for pictures and text, the half that sees.
    config = config.get("vision_config") or config
    found = next((config[name] for name in _WIDTHS if config.get(name)), 0)
    return int(found[-1] if isinstance(found, Sequence) else found)


def is_timm(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is timm's: transformers then loads it through timm."""
    return "pretrained_cfg" in config or config.get("model_type") == "timm_wrapper"


def _read(model: ModelSpec) -> tuple[ModelSpec, dict[str, Any], dict[str, Any]]:
    if model.path:
        folder = Path(model.path).expanduser().resolve()
        if not folder.is_dir():
            raise UserError(
                f"model.path: {folder} is no folder; give the one with {_CONFIG} and model.safetensors"
            )
        model = replace(model, path=str(folder))
        files = {
            name: folder / name for name in (_CONFIG, _PREPROCESSOR) if (folder / name).is_file()
        }
    else:
        files = _downloaded(model)
        # The cache holds a snapshot under its commit: the name of a branch pins nothing.
        model = replace(model, revision=files[_CONFIG].parent.name)
    if _CONFIG not in files:
        raise UserError(
            f"{model.path}: no {_CONFIG} in it; give the folder of a model that save_pretrained wrote"
        )
    return (
        model,
        _json(files[_CONFIG]),
        _json(files[_PREPROCESSOR]) if _PREPROCESSOR in files else {},
    )


def _downloaded(model: ModelSpec) -> dict[str, Path]:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
    )

    found = {}
    for name in (_CONFIG, _PREPROCESSOR):
        try:
            found[name] = Path(hf_hub_download(model.hub_id, name, revision=model.revision))
        except (HfHubHTTPError, HFValidationError, OSError) as error:
            absent = isinstance(error, EntryNotFoundError) and not isinstance(
                error, LocalEntryNotFoundError
            )
            if name == _PREPROCESSOR and absent:
                continue
            line = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise UserError(
                f"cannot load {model.hub_id}: {line}. Without the hub: model.path=/folder/with/safetensors"
            ) from error
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; download the model again") from error
    return found if isinstance(found, dict) else {}


def _input_px(config: Mapping[str, Any], preprocessor: Mapping[str, Any]) -> int:
    """Side of the square that the model is fed: what is cropped, else what is resized to, else what it was made for."""
    timm = config.get("pretrained_cfg", {}).get("input_size")
    vision = config.get("vision_config") or config
    for found in (
        timm,
        preprocessor.get("crop_size"),
        preprocessor.get("size"),
        vision.get("image_size"),
    ):
        if side := _side(found):
            return side
    return 0


def _side(size: Any) -> int:
    if isinstance(size, Mapping):
        return _side(size.get("height") or size.get("shortest_edge") or size.get("longest_edge"))
    if isinstance(size, Sequence) and not isinstance(size, str) and size:
        return _side(size[-1])
    return int(size) if isinstance(size, int | float) else 0


def _statistics(
    config: Mapping[str, Any], preprocessor: Mapping[str, Any]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if preprocessor.get("do_normalize") is False:
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    timm = config.get("pretrained_cfg", {})
    mean = preprocessor.get("image_mean") or timm.get("mean") or IMAGENET_MEAN
    std = preprocessor.get("image_std") or timm.get("std") or IMAGENET_STD
    return tuple(map(float, mean)), tuple(map(float, std))


def _told(value: int, setting: str, source: str) -> int:
    if not value:
        raise UserError(
            f"the configuration of {source} does not tell {setting.removeprefix('model.')}; set {setting}"
        )
    return value
