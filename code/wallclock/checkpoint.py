"""Input size, vector width and pixel statistics from a model's own files. Loads no network.

transformers' checkpoints have config.json and preprocessor_config.json, timm's config.json alone.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wallclock.errors import UserError, first_line, import_extra
from wallclock.recipe import IMAGENET_MEAN, IMAGENET_STD, ModelSpec, Statistics

_CONFIG, _PREPROCESSOR = "config.json", "preprocessor_config.json"

#: conf/model/dinov2-small.yaml, with random weights.
DEFAULT = ModelSpec(
    "dinov2-small",
    hub_id="facebook/dinov2-small",
    revision="ed25f3a31f01632728cabb09d1542f84ab7b0056",
)

#: The keys of the pooled vector's width; the first that a configuration has counts.
_WIDTHS = ("hidden_size", "hidden_sizes", "num_features", "embed_dim", "hidden_dim")

_Json = Mapping[str, Any]


def has_hub(model: ModelSpec) -> bool:
    """Whether pretrained weights can be had: from the disk, or from a hub that the user set up.

    A guess would hang on a machine without one.
    """
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()
    folder = cache / f"models--{model.hub_id}".replace("/", "--") / "snapshots" / model.revision
    hub = model.path or os.environ.get("HF_ENDPOINT") or os.environ.get("HF_TOKEN")
    return bool(hub) or (folder / "model.safetensors").is_file()


def complete(model: ModelSpec) -> ModelSpec:
    """Fill in what the settings left open (0, empty): `input_px`, `dim`, `mean`, `std`, the commit.

    Raises UserError: no folder nor hub id, files that cannot be loaded, or a size that they lack.
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
        input_px=model.input_px or _required(_input_px(config, preprocessor), "input_px", source),
        dim=model.dim or _required(width(config), "dim", source),
        mean=model.mean or mean,
        std=model.std or std,
    )


def width(config: _Json) -> int:
    """The width of a model's pooled vector by its configuration; 0 where it does not say."""
    config = _vision_tower(config)
    value = next((config[name] for name in _WIDTHS if config.get(name)), 0)
    return int(value[-1] if isinstance(value, Sequence) else value)


def check_folder(folder: Path) -> None:
    """Raise `UserError` where a model's folder is not there."""
    if not folder.is_dir():
        wanted = f"give the one with {_CONFIG} and model.safetensors"
        raise UserError(f"model.path: {folder} is no folder; {wanted}")


def _read(model: ModelSpec) -> tuple[ModelSpec, _Json, _Json]:
    if model.path:
        folder = Path(model.path).expanduser().resolve()
        check_folder(folder)
        model = replace(model, path=str(folder))
        paths = [folder / name for name in (_CONFIG, _PREPROCESSOR)]
        files = {path.name: path for path in paths if path.is_file()}
    else:
        files = _downloaded(model)
        # The cache keeps a snapshot under its commit: the name of a branch pins nothing.
        model = replace(model, revision=files[_CONFIG].parent.name)
    if _CONFIG not in files:
        raise UserError(f"{model.path}: no {_CONFIG} in it; save_pretrained writes such a folder")
    preprocessor = _json(files[_PREPROCESSOR]) if _PREPROCESSOR in files else {}
    return model, _json(files[_CONFIG]), preprocessor


def _downloaded(model: ModelSpec) -> dict[str, Path]:
    hub = import_extra("huggingface_hub", f"model {model.hub_id}", "embed")
    errors = import_extra("huggingface_hub.errors", f"model {model.hub_id}", "embed")
    files = {}
    for name in (_CONFIG, _PREPROCESSOR):
        try:
            files[name] = Path(hub.hf_hub_download(model.hub_id, name, revision=model.revision))
        except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
            absent = isinstance(error, errors.EntryNotFoundError)
            offline = isinstance(error, errors.LocalEntryNotFoundError)
            if name == _PREPROCESSOR and absent and not offline:
                continue
            raise UserError(
                f"cannot load {model.hub_id}: {first_line(error).rstrip('.')}. Without the hub: "
                "model.path=/folder/with/safetensors"
            ) from error
    return files


def _json(path: Path) -> _Json:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; download the model again") from error
    return content if isinstance(content, dict) else {}


def _vision_tower(config: _Json) -> _Json:
    """Of a multimodal model's configuration, the part for images."""
    tower: _Json = config.get("vision_config") or config
    return tower


def _input_px(config: _Json, preprocessor: _Json) -> int:
    """The input's side: timm's size, else that of the crop, of the resize, or of the training."""
    sizes = (
        config.get("pretrained_cfg", {}).get("input_size"),
        preprocessor.get("crop_size"),
        preprocessor.get("size"),
        _vision_tower(config).get("image_size"),
    )
    return next((side for side in map(_side, sizes) if side), 0)


def _side(size: Any) -> int:
    if isinstance(size, Mapping):
        return _side(size.get("height") or size.get("shortest_edge") or size.get("longest_edge"))
    if isinstance(size, Sequence) and not isinstance(size, str) and size:
        return _side(size[-1])
    return int(size) if isinstance(size, int | float) else 0


def _statistics(config: _Json, preprocessor: _Json) -> Statistics:
    if preprocessor.get("do_normalize") is False:
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    timm = config.get("pretrained_cfg", {})
    mean = preprocessor.get("image_mean") or timm.get("mean") or IMAGENET_MEAN
    std = preprocessor.get("image_std") or timm.get("std") or IMAGENET_STD
    return tuple(map(float, mean)), tuple(map(float, std))


def _required(value: int, name: str, source: str) -> int:
    if not value:
        raise UserError(f"the configuration of {source} has no {name}; set model.{name}")
    return value
