"""The composed configuration → `Settings`: `auto` resolved, every value checked.

Knows nothing of Hydra: takes plain mappings and lists.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any

from experiments.contents import ORDER
from harness import decoders, provenance, runtimes
from harness.corpora.folder import require_path
from harness.spec import (
    AUGMENT,
    CORPUS_SETTINGS,
    IMAGE_SETS,
    SINKS,
    CorpusSpec,
    Recipe,
    Repeats,
    Settings,
)
from paper import counts
from wallclock import checkpoint, machine
from wallclock import recipe as recipes
from wallclock.constraints import Range, build, check
from wallclock.errors import UserError, check_name
from wallclock.preprocess import preprocess_of
from wallclock.recipe import Count, ModelSpec, Positive

#: Options of experiments: lists of changes to a recipe, and lists of names.
_RECIPE_LISTS = frozenset({"recipes", "loaders", "checks"})
_NAME_LISTS = {
    "augment": AUGMENT,
    "decoders": decoders.NAMES,
    "dtypes": recipes.DTYPES["pytorch"],
    "formats": SINKS,
    "image_sets": IMAGE_SETS,
}
_MAX_IMAGES = Mapping[str, Mapping[str, Positive | None]]
_REPEATS = Mapping[str, Repeats]
_NOT_NEGATIVE = Annotated[float, Range(0)]


def build_settings(plain: Mapping[str, Any], option_defaults: Mapping[str, Any]) -> Settings:
    """Resolve a configuration; `option_defaults`: experiment → its file's options, in full size.

    Raises UserError: a value outside its setting's range or choices, or one that nothing would use.
    """
    plain = dict(plain)
    notes: list[str] = []
    device = resolve_device(plain["device"], "device")
    is_quick = plain.pop("use_quick_repeats")
    default_repeats = plain.pop("profile_repeats")
    repeats_of = dict(check(_REPEATS, plain.pop("profile_repeats_of"), "profile_repeats_of"))
    experiments = {}
    selected = plain.pop("experiment")
    for name in sorted(selected, key=_position):
        key = f"experiment.{name}"
        if not isinstance(selected[name], Mapping):
            raise UserError(f"{key}={selected[name]}: it has settings of its own")
        options = dict(selected[name])
        quick_repeats = check(_REPEATS, options.pop("quick_repeats", {}), f"{key}.quick_repeats")
        if is_quick and device in quick_repeats:
            repeats_of[name] = quick_repeats[device]
        experiments[name] = _options(options, option_defaults[name], device, key, notes)
    if plain["repeats"] is None:
        plain["repeats"] = default_repeats
    else:
        # The user's number counts for every experiment.
        repeats_of = {}
    is_long = plain.pop("full_sizes") and not is_quick
    plain |= {
        "device": device,
        "experiments": experiments,
        "corpus": _corpus(plain["corpus"]),
        "model": _model(plain["model"]),
        "recipe": _recipe(plain["recipe"], device, "recipe", notes),
        "out": _folder("out", plain["out"]),
        "figures": _folder("figures", plain["figures"]),
        "max_images": check(_MAX_IMAGES, plain["max_images"], "max_images")[device],
        "repeats_of": repeats_of,
    }
    settings: Settings = build(Settings, plain, "")
    fewer = counts.note(settings, option_defaults, is_quick=is_quick, is_long=is_long)
    return replace(settings, notes=tuple(filter(None, dict.fromkeys([*notes, fewer]))))


def _position(experiment: str) -> int:
    """The place of an experiment in a run; those on request come last."""
    return ORDER.index(experiment) if experiment in ORDER else len(ORDER)


def resolve_device(name: str, key: str) -> str:
    """`cpu` or `cuda`, for `auto` what this machine has; a `UserError` for a GPU that it lacks."""
    check_name(name, ("auto", "cpu", "cuda"), key)
    if name == "cuda" and not machine.gpus():
        raise UserError(f"{key}=cuda, but there is no NVIDIA GPU; set {key}=auto or {key}=cpu")
    if name == "auto":
        return "cuda" if machine.gpus() else "cpu"
    return name


def _folder(key: str, text: Any) -> Path:
    if not isinstance(text, str) or not text:
        raise UserError(f"{key}={text}: give a folder")
    return (provenance.ROOT / Path(text).expanduser()).resolve()


def _recipe(choices: Mapping[str, Any], device: str, key: str, notes: list[str]) -> Recipe:
    if choices["device"] != "auto":
        device = resolve_device(choices["device"], f"{key}.device")
    recipe = build(Recipe, dict(choices) | {"device": device}, key)
    check_name(recipe.decoder, decoders.DECODERS, f"{key}.decoder")
    owner = f"{key}.interpolation of resizer={recipe.resizer}"
    check_name(recipe.interpolation, recipes.INTERPOLATIONS[recipe.resizer], owner)
    runtimes.check(recipe, key)
    for name in ("start_method", "prefetch"):
        if recipe.engine != "dataloader" and getattr(recipe, name) != getattr(Recipe, name):
            raise UserError(f"{key}.{name}={getattr(recipe, name)}: needs engine=dataloader")
    if recipe.prefetch != Recipe.prefetch and not recipe.workers:
        raise UserError(f"{key}.prefetch={recipe.prefetch}: needs workers, which fetch ahead")
    if not recipe.pin_memory and not replace(recipe, pin_memory=True).pins:
        raise UserError(f"{key}.pin_memory=false: nothing is pinned on a CPU or by engine=serial")
    if recipe.dct_scale == "full" and recipe.dct_margin != Recipe.dct_margin:
        raise UserError(f"{key}.dct_margin={recipe.dct_margin}: needs dct_scale=auto")
    if recipe.resizer == "opencv" and recipe.preprocess != "squash":
        fix = f"resizer=opencv only squashes; set {key}.resizer=torch or pil"
        raise UserError(f"{key}.preprocess={recipe.preprocess}: {fix}")
    if preprocess_of(recipe, 224).rotate:
        as_stored = "experiments take images as they are stored; leave out rotate"
        raise UserError(f"{key}.preprocess={recipe.preprocess}: {as_stored}")
    if recipe.runtime == "tensorrt" and recipe.device == "cpu":
        raise UserError(f"{key}.runtime=tensorrt: needs an NVIDIA GPU; this run is on the CPU")
    if recipe.engine == "serial" and recipe.workers:
        notes.append(f"{key}.workers={recipe.workers} is not used: engine=serial has no workers")
        recipe = replace(recipe, workers=0)
    return recipe


def _options(
    options: Mapping[str, Any], defaults: Mapping[str, Any], device: str, key: str, notes: list[str]
) -> dict[str, Any]:
    """An experiment's options, each of the type of its default; recipes are built."""
    recipe_fields = {field.name for field in fields(Recipe)}
    checked = {}
    for name, value in options.items():
        if isinstance(value, Mapping) and recipe_fields <= value.keys():
            value = _recipe(value, device, f"{key}.{name}", notes)
        else:
            check_name(name, defaults, f"setting of {key}")
            _check_option(value, defaults[name], f"{key}.{name}")
        checked[name] = value
    return checked


def _check_option(value: Any, default: Any, key: str) -> None:
    """Refuse a value of another type than the default's; numbers are finite and not negative."""
    name = key.rpartition(".")[2]
    if isinstance(default, dict):
        if not isinstance(value, Mapping):
            raise UserError(f"{key}={value}: it has settings of its own: {', '.join(default)}")
        for item in value:
            check_name(item, default, f"setting of {key}")
            _check_option(value[item], default[item], f"{key}.{item}")
    elif isinstance(default, list):
        # A grid of names or numbers holds at least one; a list of extra cases need not.
        may_be_empty = not default or isinstance(default[0], Mapping)
        if not isinstance(value, list) or not (value or may_be_empty):
            raise UserError(f"{key}={value}: give a list, for example {default[:1]}")
        for item in value:
            _check_item(item, default, key)
    elif default is None:
        check(Positive | None, value, key)
    elif isinstance(default, float) or "seconds" in key or "_ms" in key:
        check(_NOT_NEGATIVE, value, key)
    elif type(default) is int:
        may_be_zero = default == 0 or name.startswith(("max_", "warmup_", "vectors"))
        check(Count if may_be_zero else Positive, value, key)
    else:
        check(type(default), value, key)


def _check_item(item: Any, default: Sequence[Any], key: str) -> None:
    """Check an element of a list against the elements of the default."""
    name = key.rpartition(".")[2]
    if not isinstance(item, Mapping) or not isinstance(next(iter(default), None), dict):
        if name in _NAME_LISTS:
            check_name(item, _NAME_LISTS[name], key)
        elif default:
            _check_option(item, default[0], key)
    elif name in _RECIPE_LISTS:
        _recipe(asdict(Recipe("")) | dict(item), "cpu", key, [])
    else:
        valid = set().union(*default)
        for field, value in item.items():
            check_name(field, valid, f"setting of {key}")
            if isinstance(value, float):
                check(_NOT_NEGATIVE, value, f"{key}.{field}")


def _corpus(choices: Any) -> CorpusSpec:
    corpus = build(CorpusSpec, choices, "corpus")
    check_name(corpus.kind, CORPUS_SETTINGS, "corpus")
    valid = ("kind", *CORPUS_SETTINGS[corpus.kind])
    for name in choices:
        check_name(name, valid, f"setting of corpus={corpus.kind}")
    if corpus.kind == "folder":
        require_path(corpus)
    for name in corpus.prefixes:
        check_name(name, IMAGE_SETS, "corpus.prefixes")
    if corpus.endpoint and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", corpus.endpoint):
        fix = "give http://host:port or https://host, or nothing for AWS"
        raise UserError(f"corpus.endpoint={corpus.endpoint}: {fix}")
    return corpus


def has_weights(model: ModelSpec) -> bool:
    """Whether pretrained weights can be had: from the disk, or from a hub that the user set up.

    A guess would hang on a machine without one.
    """
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()
    folder = cache / f"models--{model.hub_id}".replace("/", "--") / "snapshots" / model.revision
    hub = model.path or os.environ.get("HF_ENDPOINT") or os.environ.get("HF_TOKEN")
    return bool(hub) or (folder / "model.safetensors").is_file()


def _model(choices: Any) -> ModelSpec:
    if isinstance(choices, Mapping) and choices["weights"] == "auto":
        random = build(ModelSpec, dict(choices) | {"weights": "random"}, "model")
        weights = "pretrained" if has_weights(random) else "random"
        choices = dict(choices) | {"weights": weights}
    model = build(ModelSpec, choices, "model")
    for name in ("service_ms", "service_ms_per_image"):
        if getattr(model, name) and model.weights != "none":
            raise UserError(f"model.{name}={getattr(model, name):g}: needs model=null, the mock")
    if model.path and model.weights != "pretrained":
        raise UserError(f"model.path={model.path}: needs model.weights=pretrained")
    if not (model.input_px and model.dim and model.mean and model.std):
        if not model.path and not model.hub_id:
            raise UserError(
                "model=any needs the model: add model.path=/folder or model.hub_id=owner/name"
            )
        model = checkpoint.resolve(model, model.pool)
    if len(model.mean) != 3 or len(model.std) != 3 or not all(value > 0 for value in model.std):
        raise UserError("model.mean and model.std: give three numbers each, the latter above 0")
    if model.weights == "none" and model.dim > 3 * model.input_px**2:
        raise UserError(f"model.dim={model.dim}: the mock model copies pixels, and has fewer")
    if model.pruned and model.weights == "none":
        raise UserError(f"model.pruned={model.pruned:g}: the mock has no network to prune")
    if model.weights == "random" and (model.dim % 6 or model.input_px < 14):
        raise UserError(
            f"model.dim={model.dim}, model.input_px={model.input_px}: the random DINOv2 needs a "
            "multiple of 6 (its heads) and at least 14 px (its patch)"
        )
    return model
