"""Input size, vector width and pixel statistics from a model's own files. Loads no network.

transformers' checkpoints have config.json and preprocessor_config.json, timm's config.json alone.
"""

import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from wallclock import documents
from wallclock.constraints import OneOf, Range
from wallclock.documents import EACH
from wallclock.errors import (
    NoWeightsError,
    Unavailable,
    UserError,
    first_line,
    import_extra,
    reason_of,
)
from wallclock.outside import printable
from wallclock.recipe import IMAGENET_MEAN, IMAGENET_STD, ModelSpec, Statistics

#: The network's configuration; the image processor's, or a part of the whole processor's.
CONFIG, PREPROCESSOR, PROCESSOR = "config.json", "preprocessor_config.json", "processor_config.json"
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_AGAIN = "download the model again, or correct it"
_Px = Annotated[int, Range(1, 4096), EACH]
_Width = Annotated[int, Range(1, 65_536), EACH]
_Count = Annotated[int, Range(0, 65_536), EACH]
_Statistic = Annotated[float, Range(-1000, 1000), EACH]
_Attention = Annotated[
    str, OneOf(("eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3"))
]
_Object = Mapping[str, Any]
#: Of what is read here, and of what the library makes loops or lists of before a network is there.
_SCHEMA: documents.Schema = {
    "architectures": tuple[str, ...],
    **dict.fromkeys(("model_type", "image_processor_type"), str),
    **dict.fromkeys(("vision_config", "pretrained_cfg", "image_processor", "auto_map"), _Object),
    "weight_map": Mapping[str, str],
    **dict.fromkeys(("image_size", "size", "crop_size", "input_size", "patch_size"), _Px),
    **dict.fromkeys(("hidden_size", "hidden_sizes", "embed_dim", "hidden_dim"), _Width),
    **dict.fromkeys(("num_features", "projection_dim"), _Width),
    **dict.fromkeys(("image_mean", "image_std", "mean", "std"), _Statistic),
    "crop_pct": Annotated[float, Range(0.1, 1)],
    # Any other name is of code that the library would get from a hub.
    **dict.fromkeys(("attn_implementation", "_attn_implementation"), _Attention),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "depths", "num_labels"), _Count),
}
#: Seconds that a hub has to say whether it has a model.
_PROBE_S = 5.0
#: Layers and their parts; the largest networks of images have some thousands.
_MOST_MODULES = 20_000

#: conf/model/dinov2-small.yaml, with random weights.
DEFAULT = ModelSpec(
    "dinov2-small",
    hub_id="facebook/dinov2-small",
    revision="ed25f3a31f01632728cabb09d1542f84ab7b0056",
)

#: The keys of the pooled vector's width; the first that a configuration has counts.
_WIDTHS = ("hidden_size", "hidden_sizes", "num_features", "embed_dim", "hidden_dim")

#: Types of models whose `get_image_features` gives one vector that is compared with a text's.
_CONTRASTIVE = {
    *("aimv2", "align", "altclip", "blip", "chinese_clip", "clip", "clipseg", "groupvit"),
    *("metaclip_2", "owlv2", "owlvit", "siglip", "siglip2", "tipsv2", "vision-text-dual-encoder"),
}
#: Of them, those whose vector is the tower's own.
_UNPROJECTED = {"siglip", "siglip2", "align", "tipsv2"}


def resolve(model: ModelSpec, pool: str) -> ModelSpec:
    """Fill in what is open (0, empty): `input_px`, `dim`, `mean`, `std`, the commit.

    `pool`: one of `recipe.POOLS`, or auto. Raises `NoWeightsError` where the files cannot be had;
    `UserError` where they cannot be loaded, or lack a size.
    """
    folder = folder_of(model)
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: no {CONFIG} in it; save_pretrained writes such a folder")
    config = read_json(folder / CONFIG)
    # The cache keeps a snapshot under its commit: the name of a branch pins nothing.
    path, revision = (str(folder), model.revision) if model.path else ("", folder.name)
    pool = _default_pool(config) if pool == "auto" else pool
    model = replace(model, path=path, revision=revision, pool=pool)
    source = model.path or model.hub_id
    preprocessor = processor_values(folder)
    input_px = model.input_px or _input_px(config, preprocessor)
    dim = model.dim or width(config, model.pool)
    if not (input_px and dim):
        # Files leave out what is the library's default.
        with library(folder / CONFIG, _AGAIN) as transformers:
            loaded = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
            config = {**config, **loaded.to_dict()}
        input_px = input_px or _input_px(config, preprocessor)
        dim = dim or width(config, model.pool)
    dim = dim or (_width_of_skeleton(folder, input_px) if input_px else 0)
    for name, value in (("input_px", input_px), ("dim", dim)):
        if not value:
            raise UserError(f"the configuration of {source} has no {name}; set model.{name}")
    try:
        mean, std = _statistics(config, preprocessor)
    except ValueError as error:
        raise UserError(f"{source}: {first_line(error)}; correct its image processor") from error
    return replace(
        model,
        name=Path(source).name if model.name == "any" else model.name,
        input_px=input_px,
        dim=dim,
        mean=model.mean or mean,
        std=model.std or std,
    )


def width(config: _Object, pool: str = "tower") -> int:
    """The width of a model's vector by its configuration; 0 where it does not say."""
    if pool == "projection" and config.get("model_type") not in _UNPROJECTED:
        return _side(config.get("projection_dim"))
    config = config.get("vision_config") or config
    return next((_side(config[name]) for name in _WIDTHS if config.get(name)), 0)


def _default_pool(config: _Object) -> str:
    """projection where the model was trained to compare its images' vectors with texts'."""
    architecture = next(iter(config.get("architectures") or []), "")
    if architecture.endswith("VisionModelWithProjection"):
        return "projection"
    # A classifier's checkpoint, for one, has no projection.
    is_whole = not architecture or architecture.endswith("Model")
    return "projection" if config.get("model_type") in _CONTRASTIVE and is_whole else "tower"


def _width_of_skeleton(folder: Path, input_px: int) -> int:
    """The network's width where no configuration has it, by one without weights; 0 for none."""
    torch = import_extra("torch", f"model {folder.name}", "embed")
    with library(folder / CONFIG, _AGAIN) as transformers, bounded():
        config = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        with torch.device("meta"), torch.inference_mode():
            network = transformers.AutoModel.from_config(config, trust_remote_code=False).eval()
            output = network(pixel_values=torch.zeros(1, 3, input_px, input_px))
        pooled = getattr(output, "pooler_output", None)
        return 0 if pooled is None else int(pooled.flatten(1).shape[1])


def folder_of(model: ModelSpec) -> Path:
    """The folder of the model's configuration. Raises `NoWeightsError`; `UserError`: none there."""
    if model.path:
        folder = Path(os.path.realpath(os.path.expanduser(model.path)))
        if not folder.is_dir():
            wanted = f"give the one with {CONFIG} and {_WEIGHTS}"
            raise UserError(f"model.path: {folder} is not a folder; {wanted}")
        return folder
    return _fetched(model, (CONFIG,), (PREPROCESSOR, PROCESSOR))


def weights_folder_of(model: ModelSpec) -> Path:
    """As `folder_of`, with the weights: model.safetensors, or the parts that its index names."""
    if model.path:
        return folder_of(model)
    folder = _fetched(model, (CONFIG,), (_WEIGHTS,))
    if (folder / _WEIGHTS).is_file():
        return folder
    model = replace(model, revision=folder.name)
    return _fetched(model, (*_parts(_fetched(model, (CONFIG, _INDEX), ())),), ())


def n_weights(folder: Path) -> int:
    """How many numbers a folder's files of weights have. Raises UserError: a file is damaged."""
    from safetensors import safe_open

    names = [_WEIGHTS] if (folder / _WEIGHTS).is_file() else _parts(folder)
    total = 0
    for path in (folder / name for name in names if (folder / name).is_file()):
        with library(path, _AGAIN), safe_open(path, "pt") as file:
            shapes = (file.get_slice(key).get_shape() for key in file.keys())  # noqa: SIM118
            total += sum(map(math.prod, shapes))
    return total


def _parts(folder: Path) -> list[str]:
    """The files of weights that an index names. Raises UserError: one has another kind of name."""
    index = read_json(folder / _INDEX)
    names = sorted({*index.get("weight_map", {}).values()})
    others = [name for name in names if not re.fullmatch(r"[\w.-]+\.safetensors", name)]
    if others or (index and not names):
        named = printable(f"its weight_map names {others}, no .safetensors beside it")
        raise UserError(f"{folder / _INDEX}: {named}; {_AGAIN}")
    return names


def _fetched(model: ModelSpec, needed: tuple[str, ...], optional: tuple[str, ...]) -> Path:
    """The snapshot of a hub's model in the cache, with these files; asks the hub for the rest."""
    hub = import_extra("huggingface_hub", f"model {model.hub_id}", "embed")
    errors = import_extra("huggingface_hub.errors", f"model {model.hub_id}", "embed")
    # And what the library lets through of the one for HTTP that it uses.
    names = (name for name in ("httpx2", "httpx") if find_spec(name))
    of_http = [import_module(name).HTTPError for name in names]
    failures = (errors.HfHubHTTPError, errors.HFValidationError, *of_http, OSError)
    reason = None
    # A commit is what it was: what is cached of it needs no hub.
    is_commit = re.fullmatch("[0-9a-f]{40}", model.revision)
    is_local = bool(is_commit) and _is_cached(hub, model, needed, optional)
    if not is_local:
        # The library would ask one that does not answer six times, in 24 seconds.
        try:
            url = hub.hf_hub_url(model.hub_id, needed[0], revision=model.revision)
            hub.get_hf_file_metadata(url, timeout=_PROBE_S)
        except failures as error:
            reason, is_local = error, True
    load = partial(hub.hf_hub_download, model.hub_id, local_files_only=is_local)
    try:
        # The first one notes which commit a branch is; the others are of that commit.
        paths = [load(needed[0], revision=model.revision)]
        commit = Path(paths[0]).parent.name
        paths += [load(name, revision=commit) for name in needed[1:]]
        for name in () if is_local else optional:
            with suppress(errors.RemoteEntryNotFoundError):
                load(name, revision=commit)
    except failures as error:
        raise _no_weights(model, reason or error) from (reason or error)
    return Path(paths[0]).parent


def _no_weights(model: ModelSpec, reason: Exception) -> NoWeightsError:
    """The line that says why a hub's model cannot be had, and what to do."""
    fix = (
        f"set HF_TOKEN or HF_ENDPOINT, run `hf download {model.hub_id}` where the hub answers, or "
        "give a folder with config.json and model.safetensors (model=/folder; in the suite "
        "model.path=/folder)"
    )
    if model.hub_id == DEFAULT.hub_id:
        fix += ", or weights=random for a test of speed (in the suite model.weights=random)"
    return NoWeightsError(f"cannot load {model.hub_id}: {first_line(reason).rstrip('.')}; {fix}")


def _is_cached(hub: Any, model: ModelSpec, needed: Sequence[str], optional: Sequence[str]) -> bool:
    """Whether the cache has the needed files, and has or misses on purpose each optional one."""
    look_up = partial(hub.try_to_load_from_cache, model.hub_id, revision=model.revision)
    has_needed = all(isinstance(look_up(name), str) for name in needed)
    return has_needed and all(look_up(name) is not None for name in optional)


def processor_values(folder: Path) -> _Object:
    """The settings in the file that transformers would read: the whole processor's come first."""
    alone, whole = read_json(folder / PREPROCESSOR), read_json(folder / PROCESSOR)
    return whole.get("image_processor") or alone


def read_json(path: Path) -> _Object:
    """One of a model's files of JSON; empty where there is none. Raises as `documents` does."""
    return documents.read_file(path, _SCHEMA, _AGAIN)


def _input_px(config: _Object, preprocessor: _Object) -> int:
    """The input's side: timm's size, else that of the crop, of the resize, or of the training."""
    sizes = (
        (config.get("pretrained_cfg") or {}).get("input_size"),
        preprocessor.get("crop_size"),
        preprocessor.get("size"),
        (config.get("vision_config") or config).get("image_size"),
    )
    return next((side for side in map(_side, sizes) if side), 0)


def _side(size: Any) -> int:
    if isinstance(size, Mapping):
        return _side(size.get("height") or size.get("shortest_edge") or size.get("longest_edge"))
    if isinstance(size, Sequence) and not isinstance(size, str) and size:
        return _side(size[-1])
    return int(size) if isinstance(size, int | float) else 0


def _statistics(config: _Object, preprocessor: _Object) -> Statistics:
    if preprocessor.get("do_normalize") is False:
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    timm = config.get("pretrained_cfg") or {}
    means = preprocessor.get("image_mean"), timm.get("mean"), IMAGENET_MEAN
    stds = preprocessor.get("image_std"), timm.get("std"), IMAGENET_STD
    mean, std = (next(value for value in given if value is not None) for given in (means, stds))
    return channels(mean, "image_mean"), channels(std, "image_std")


def channels(value: Any, name: str) -> tuple[float, ...]:
    """A processor's statistic, of three channels. Raises ValueError: none, or not above 0."""
    numbers = [value] * 3 if isinstance(value, int | float) else value
    is_list = isinstance(numbers, Sequence) and len(numbers) == 3
    if not is_list or not all(isinstance(number, int | float) for number in numbers):
        raise ValueError(f"{name}={value} is not of three channels")
    if name == "image_std" and min(numbers) <= 0:
        raise ValueError(f"{name}={value} is not above 0")
    return tuple(map(float, numbers))


# --- transformers, run over a model's files: quiet, in bounds, in one line ------------------------


@contextmanager
def quiet(what: str) -> Iterator[Any]:
    """transformers, without its warnings and bars while the block runs. `what`: needs it."""
    transformers = import_extra("transformers", what, "embed")
    logging = transformers.utils.logging
    verbosity, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):  # torch's, of layers without a weight
            yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if has_bar:
            logging.enable_progress_bar()


@contextmanager
def library(where: object, fix: str) -> Iterator[Any]:
    """transformers, quiet, about one file or model; `fix`: what to do. Raises UserError."""
    try:
        with quiet(f"model {where}") as transformers:
            yield transformers
    except UserError:
        raise
    except ImportError as error:
        raise Unavailable(
            f"{where} needs a library that is not installed: {first_line(error)} For timm's models "
            "type `pip install timm` (it brings torchvision: take the build for this torch)"
        ) from error
    except Exception as error:  # of what a file may say there is no end
        raise UserError(f"cannot load {where}: {reason_of(error).rstrip('.')}; {fix}") from error


@contextmanager
def bounded(most_numbers: float = math.inf) -> Iterator[None]:
    """Build a network without memory for weights; ValueError: over `most_numbers`, or layers."""
    import torch
    from torch.nn.modules import module as hooks

    n_modules = n_numbers = 0

    def count(parent: Any, name: str, child: Any) -> None:
        nonlocal n_modules, n_numbers
        if isinstance(child, torch.nn.Module):
            n_modules += 1
        elif child is not None and child.is_meta:  # what is read from files comes later
            n_numbers += child.numel()
        if n_modules > _MOST_MODULES:
            raise ValueError(f"its network has more than {_MOST_MODULES:,} layers")
        if n_numbers > most_numbers:
            layer = type(parent).__name__
            raise ValueError(f"its network has more weights than its files, as a {layer}.{name}")

    with ExitStack() as stack:
        for register in (
            hooks.register_module_module_registration_hook,
            hooks.register_module_parameter_registration_hook,
            hooks.register_module_buffer_registration_hook,
        ):
            stack.callback(register(count).remove)
        yield
