"""Command line → Hydra overrides → Hydra's configuration → frozen dataclasses.

The only module besides main.py that knows Hydra. The dataclasses of `spec` are the configuration's
schema: their defaults are registered as `schema` in the groups recipe, model and corpus, so that
the files in conf/ list differences only.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments import ORDER, QUICK
from wallclock import checkpoint, provenance
from wallclock.constraints import Range, build, check
from wallclock.errors import UserError, check_name
from wallclock.spec import (
    CORPUS_SETTINGS,
    DTYPES,
    IMAGE_SETS,
    INTERPOLATIONS,
    SINKS,
    CorpusSpec,
    ModelSpec,
    Positive,
    Recipe,
    Settings,
)
from wallclock.stages import decode

CONF = provenance.ROOT / "conf"

_GROUPS = ("corpus", "model", "recipe", "profile", "experiment")

#: Settings that are paths: Hydra's grammar would stop at commas, brackets and non-ASCII letters.
_PATHS = frozenset({"corpus.path", "model.path", "out", "figures", "export"})

#: Options of experiments: lists of changes to a recipe, and lists of names.
_RECIPE_LISTS = frozenset({"recipes", "loaders", "checks"})
_NAME_LISTS = {
    "decoders": decode.NAMES,
    "dtypes": DTYPES,
    "formats": SINKS,
    "image_sets": IMAGE_SETS,
}

#: The article's flags; all others are Hydra's.
_FLAGS = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
_FLAGS.add_argument("--quick", action="store_true")
for _name in ("--n", "--experiment", "--export"):
    _FLAGS.add_argument(_name)


def translate(arguments: Sequence[str]) -> list[str]:
    """Turn the article's flags into Hydra overrides; return Hydra's own flags, then all overrides.

    `--quick` → profile=quick; `--n N` → n=N; `--export DIR` → export=DIR; `--experiment a,b` →
    experiment=[a,b], or all of them for `all`. Without an experiment: all, or with profile=quick
    the short ones. `model=null` names the mock model; Hydra would take null for no model at all.

    Raises:
        UserError: a flag without its value.
    """
    try:
        flags, rest = _FLAGS.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise UserError(str(error)) from error
    sweeps = "--multirun" in rest or "-m" in rest
    # Hydra accepts its flags only before the overrides.
    hydra_flags = [word for word in rest if word.startswith("-") or "=" not in word]
    overrides = ["profile=quick"] if flags.quick else []
    if flags.n is not None:
        overrides.append(f"n={flags.n}")
    if flags.export is not None:
        overrides.append(f"export={_quoted(flags.export)}")
    if flags.experiment is not None:
        names = [name for name in re.split(r"[\[\], ]+", flags.experiment) if name]
        overrides.append(f"experiment=[{','.join(ORDER if 'all' in names else names)}]")
    overrides += [_override(word, sweeps) for word in rest if word not in hydra_flags]
    if not any(override.startswith("experiment=") for override in overrides):
        default = QUICK if "profile=quick" in overrides else ORDER
        overrides.append(f"experiment=[{','.join(default)}]")
    return [*hydra_flags, *overrides]


def _override(word: str, sweeps: bool) -> str:
    name, _, value = word.partition("=")
    if word == "model=null":
        return "model='null'"
    return f"{name}={_quoted(value)}" if name.lstrip("+") in _PATHS and not sweeps else word


def _quoted(path: str) -> str:
    if not path or path[0] in "'\"":
        return path
    # Inside quotes a backslash counts only before a quote.
    escaped = re.sub(r"(\\*)('|$)", lambda hit: hit[1] * 2 + ("\\'" if hit[2] else ""), path)
    return f"'{escaped}'"


def load(overrides: Sequence[str]) -> Settings:
    """Compose the configuration and resolve it.

    Raises:
        UserError: the overrides do not fit the configuration; one line with the nearest names.
    """
    check_names(overrides)
    try:
        config = _compose(overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_explain(error, overrides)) from error
    return resolve(config, overrides)


def check_names(overrides: Sequence[str]) -> None:
    """Raise `UserError` for a choice that its group does not have, and for removed settings."""
    for override in overrides:
        group, _, value = override.lstrip("+").partition("=")
        if override.startswith("~"):
            raise UserError(f"{override}: a setting can be changed, not removed")
        if group in _GROUPS:
            valid = [path.stem for path in (CONF / group).glob("*.yaml")]
            # `a,b` without brackets is Hydra's multirun sweep: each name must exist all the same.
            for name in value.strip("[]'\"").split(","):
                check_name(name.strip().strip("[]'\""), valid, group)


def resolve(config: DictConfig, overrides: Sequence[str] = ()) -> Settings:
    """Turn a composed configuration into checked settings; nothing `auto` is left.

    Raises:
        UserError: a value outside its setting's range or choices, or one that nothing would use.
    """
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise UserError(str(error).splitlines()[0]) from error
    notes: list[str] = []
    device = _device(plain["device"], "device")
    selected = plain.pop("experiment")
    names = sorted(selected, key=lambda name: (*ORDER, name).index(name))
    repeats, default_repeats = plain.pop("repeats"), plain.pop("profile_repeats")
    quick_repeats = {name: _quick_repeats(selected[name], name, device) for name in names}
    use_quick = plain.pop("use_quick_repeats") and repeats is None
    max_images = check(_MAX_IMAGES, plain["max_images"], "max_images")
    settings = build(
        Settings,
        {
            **plain,
            "experiments": {name: _options(name, selected[name], device, notes) for name in names},
            "corpus": _corpus(plain["corpus"]),
            "model": _model(plain["model"]),
            "recipe": _recipe(plain["recipe"], device, "recipe", notes),
            "device": device,
            "out": _folder("out", plain["out"]),
            "figures": _folder("figures", plain["figures"]),
            "export": _folder("export", plain["export"]) if plain["export"] else None,
            "max_images": max_images[device],
            "repeats": default_repeats if repeats is None else repeats,
            "repeats_of": {k: v for k, v in quick_repeats.items() if v} if use_quick else {},
        },
        "",
    )
    _check_recipe_used(settings, overrides)
    return replace(settings, notes=tuple(dict.fromkeys(notes)))


_MAX_IMAGES = Mapping[str, Mapping[str, Positive | None]]


def _compose(overrides: Sequence[str]) -> DictConfig:
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


def _register_schemas() -> None:
    store = ConfigStore.instance()
    store.store("schema", _defaults(Recipe), group="recipe")
    store.store("schema", _defaults(ModelSpec), group="model")
    corpus = _defaults(CorpusSpec)
    # A constant: only tests vary it.
    del corpus["limits"]["max_scans"]
    for kind, names in CORPUS_SETTINGS.items():
        schema = {"kind": kind, **{name: corpus[name] for name in names}}
        store.store(f"schema_{kind}", schema, group="corpus")


def _defaults(cls: Any) -> dict[str, Any]:
    required = {item.name for item in fields(cls) if item.default is item.default_factory}
    instance = cls(**dict.fromkeys(required, "???"))
    # OmegaConf has lists and no tuples.
    plain: dict[str, Any] = json.loads(json.dumps(asdict(instance)))
    return plain


def _if_quick_cpu(fewer: Any, full: Any, *, _root_: DictConfig) -> Any:
    """`${if_quick_cpu:[1],[1, 2]}` in an experiment's file: the first with --quick on a CPU."""
    quick = _root_.use_quick_repeats and _device(_root_.device, "device") == "cpu"
    return fewer if quick else full


_register_schemas()
OmegaConf.register_new_resolver("if_quick_cpu", _if_quick_cpu, replace=True)


def _explain(error: Exception, overrides: Sequence[str]) -> str:
    """One line about the override that Hydra refused."""
    choices = [override for override in overrides if override.partition("=")[0] in _GROUPS]
    try:
        known = _keys(OmegaConf.to_container(_compose(choices), resolve=False))
    except (HydraException, OmegaConfBaseException):
        known = []
    for override in overrides:
        key = override.lstrip("+").partition("=")[0]
        if not known or key in (*known, *_GROUPS) or key.startswith("hydra"):
            continue
        for kind, names in CORPUS_SETTINGS.items():
            if key.startswith("corpus.") and key.removeprefix("corpus.") in names:
                return f"{key} is a setting of corpus={kind}; add that"
        close = difflib.get_close_matches(key, [*known, "corpus.path"], n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else "`--cfg job` shows all settings"
        return f"there is no setting '{key}'; {hint}"
    line = str(error).strip().splitlines()[0]
    return f"{error.override}: {line}" if isinstance(error, OverrideParseException) else line


def _keys(node: Any, prefix: str = "") -> list[str]:
    if not isinstance(node, dict):
        return []
    return [
        key
        for name, value in node.items()
        for key in (f"{prefix}{name}", *_keys(value, f"{prefix}{name}."))
    ]


def _check_recipe_used(settings: Settings, overrides: Sequence[str]) -> None:
    """Refuse changes to `recipe` where every selected experiment has recipes of its own."""
    own = {}
    for name, options in settings.experiments.items():
        own[name] = [option for option, value in options.items() if isinstance(value, Recipe)]
    for override in overrides:
        if re.match(r"recipe[.=]", override) and all(own.values()):
            name, (option, *_) = next(iter(own.items()))
            raise UserError(
                f"{override}: {name} does not use it; give experiment.{name}.{option}.<setting>"
            )


def _device(name: str, key: str) -> str:
    check_name(name, ("auto", "cpu", "cuda"), key)
    if name == "cuda" and not provenance.gpus():
        raise UserError(f"{key}=cuda, but there is no NVIDIA GPU; set {key}=auto or {key}=cpu")
    return name if name != "auto" else "cuda" if provenance.gpus() else "cpu"


def _folder(key: str, text: Any) -> Path:
    if not isinstance(text, str) or not text:
        raise UserError(f"{key}={text}: give a folder")
    return (provenance.ROOT / Path(text).expanduser()).resolve()


def _recipe(choices: Mapping[str, Any], device: str, key: str, notes: list[str]) -> Recipe:
    if choices["device"] != "auto":
        device = _device(choices["device"], f"{key}.device")
    recipe = build(Recipe, {**choices, "device": device}, key)
    check_name(recipe.decoder, decode.NAMES, f"{key}.decoder")
    resizer = recipe.resizer
    check_name(
        recipe.interpolation, INTERPOLATIONS[resizer], f"{key}.interpolation of resizer={resizer}"
    )
    default = Recipe("")
    unused = {
        "start_method": recipe.engine != "dataloader" and "needs engine=dataloader",
        "dct_margin": recipe.dct_scale == "full" and "needs dct_scale=auto",
        "compile": recipe.runtime != "pytorch" and "needs runtime=pytorch",
    }
    for name, reason in unused.items():
        value = getattr(recipe, name)
        if reason and value != getattr(default, name):
            raise UserError(f"{key}.{name}={value}: {reason}")
    if recipe.runtime == "tensorrt" and recipe.device == "cpu":
        raise UserError(f"{key}.runtime=tensorrt: needs an NVIDIA GPU; this run is on the CPU")
    if recipe.runtime != "pytorch" and recipe.dtype == "bf16":
        raise UserError(f"{key}.dtype=bf16: needs runtime=pytorch, not {recipe.runtime}")
    if recipe.engine == "serial" and recipe.workers:
        notes.append(f"{key}.workers={recipe.workers} is not used: engine=serial has no workers")
        recipe = replace(recipe, workers=0)
    return recipe


def _quick_repeats(options: Any, name: str, device: str) -> int | None:
    """Take an experiment's `quick_repeats` out of its options; None where it has none."""
    if not isinstance(options, dict):
        raise UserError(f"experiment.{name}={options}: it has settings of its own")
    values = options.pop("quick_repeats", {})
    hint = Mapping[str, Positive]
    repeats: int | None = check(hint, values, f"experiment.{name}.quick_repeats").get(device)
    return repeats


def _options(
    experiment: str, options: Mapping[str, Any], device: str, notes: list[str]
) -> dict[str, Any]:
    """An experiment's options, each of the type that its file gives; recipes are built."""
    raw: Any = OmegaConf.load(CONF / "experiment" / f"{experiment}.yaml")
    # The file alone, as the paper's profile resolves it.
    file = OmegaConf.create({"use_quick_repeats": False, "device": device, "file": raw})
    defaults: Any = OmegaConf.to_container(file, resolve=True)
    recipe_fields = {item.name for item in fields(Recipe)}
    checked = {}
    for name, value in options.items():
        key = f"experiment.{experiment}.{name}"
        if isinstance(value, Mapping) and recipe_fields <= value.keys():
            checked[name] = _recipe(value, device, key, notes)
        elif name not in defaults["file"]:
            raise UserError(f"{key}={value}: {experiment} has no such setting")
        else:
            _check_option(value, defaults["file"][name], key)
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
        if not isinstance(value, list) or not (value or not default):
            raise UserError(f"{key}={value}: give a list, for example {default[:1]}")
        for item in value:
            _check_item(item, default, key)
    elif default is None:
        check(Positive | None, value, key)
    elif isinstance(default, float) or "seconds" in key or "_ms" in key:
        check(Annotated[float, Range(0)], value, key)
    elif type(default) is int:
        may_be_zero = default == 0 or name.startswith(("max_", "warmup_", "vectors"))
        check(Annotated[int, Range(0 if may_be_zero else 1)], value, key)
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
        _recipe({**asdict(Recipe("")), **item}, "cpu", key, [])
    else:
        names = {name for choices in default for name in choices}
        for name, value in item.items():
            check_name(name, names, f"setting of {key}")
            if isinstance(value, float):
                check(Annotated[float, Range(0)], value, f"{key}.{name}")


def _corpus(choices: Any) -> CorpusSpec:
    spec = build(CorpusSpec, choices, "corpus")
    check_name(spec.kind, CORPUS_SETTINGS, "corpus")
    for name in choices:
        check_name(name, ("kind", *CORPUS_SETTINGS[spec.kind]), f"setting of corpus={spec.kind}")
    for name in spec.prefixes:
        check_name(name, IMAGE_SETS, "corpus.prefixes")
    if spec.source == "remote" and spec.layout != "files":
        raise UserError(
            f"corpus.layout={spec.layout}: corpus.source=remote reads object by object; "
            "it needs corpus.layout=files"
        )
    if spec.endpoint and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", spec.endpoint):
        raise UserError(
            f"corpus.endpoint={spec.endpoint}: give http://host:port or https://host, "
            "or nothing for AWS"
        )
    return spec


def _model(choices: Any) -> ModelSpec:
    if isinstance(choices, Mapping) and choices["weights"] == "auto":
        # Pretrained where the user configured a hub: a guess would hang on a machine without one.
        hub = choices["path"] or os.environ.get("HF_ENDPOINT") or os.environ.get("HF_TOKEN")
        choices = {**choices, "weights": "pretrained" if hub else "random"}
    model = build(ModelSpec, choices, "model")
    for name in ("service_ms", "service_ms_per_image"):
        if getattr(model, name) and model.weights != "none":
            raise UserError(f"model.{name}={getattr(model, name):g}: needs model=null, the mock")
    if model.path and model.weights != "pretrained":
        raise UserError(f"model.path={model.path}: needs model.weights=pretrained")
    model = checkpoint.complete(model)
    if len(model.mean) != 3 or len(model.std) != 3 or not all(value > 0 for value in model.std):
        raise UserError("model.mean and model.std: give three numbers each, the latter above 0")
    if model.weights == "none" and model.dim > 3 * model.input_px**2:
        raise UserError(f"model.dim={model.dim}: the mock model copies pixels, and has fewer")
    if model.weights == "random" and (model.dim % 6 or model.input_px < 14):
        raise UserError(
            f"model.dim={model.dim}, model.input_px={model.input_px}: the random DINOv2 needs a "
            "multiple of 6 (its heads) and at least 14 px (its patch)"
        )
    return model
