"""Hydra's configuration → frozen dataclasses. The only module beside main.py that knows Hydra."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments import ORDER, QUICK
from wallclock import checkpoint, provenance
from wallclock.errors import UserError, check_name, nearest
from wallclock.run.plan import Settings
from wallclock.run.runner import ALLOCATORS
from wallclock.spec import (
    COMPILERS,
    ENGINES,
    IMAGE_SETS,
    LAYOUTS,
    SOURCES,
    CorpusSpec,
    Limits,
    ModelSpec,
    Recipe,
)
from wallclock.stages import decode, resize

CONF = provenance.ROOT / "conf"

_GROUPS = {
    "corpus": "corpus",
    "model": "model",
    "recipe": "recipe",
    "profile": "profile",
    "experiment": "experiment",
}

#: Settings that are paths.
_PATHS = frozenset({"corpus.path", "model.path", "out", "figures", "export"})

#: The article's flags that take a value, and one for each.
_EXAMPLES = {"--n": "1000", "--experiment": "serial", "--export": "/var/lib/node_exporter"}

#: What a setting is called, by the dataclass that takes it; what it may be, by its declared type.
_SECTIONS: dict[type, str] = {
    Recipe: "recipe",
    CorpusSpec: "corpus",
    Limits: "corpus.limits",
    ModelSpec: "model",
}
_KINDS: dict[Any, tuple[Any, str]] = {
    int: (int, "a whole number"),
    float: (int | float, "a number"),
    str: (str, "a text"),
    bool: (bool, "true or false"),
}

T = TypeVar("T")


def translate(arguments: Sequence[str]) -> list[str]:
    """Turn the article's flags into Hydra overrides; leave everything else as it is.

    `--quick` → profile=quick, with the short experiments unless others are named; `--n N` → n=N;
    `--experiment a,b` → experiment=[a,b]; `--export DIR` → export=DIR;
    `--experiment all` → every experiment, in order. `model=null` names the mock model model, where
    Hydra would take null for "no model at all".

    Raises:
        UserError: a flag without its value.
    """
    overrides: list[str] = []
    flags: list[str] = []
    rest = list(arguments)
    sweeps = "--multirun" in rest or "-m" in rest
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if argument == "--quick":
            overrides.append("profile=quick")
        elif name in _EXAMPLES:
            if not equals:
                if not rest or rest[0].startswith("-") or ("=" in rest[0] and name != "--export"):
                    raise UserError(f"{name} needs a value, for example {name} {_EXAMPLES[name]}")
                value = rest.pop(0)
            overrides.append(_override(name, value))
        elif argument == "model=null":
            overrides.append("model='null'")
        elif equals and name.lstrip("+") in _PATHS and not sweeps:
            overrides.append(f"{name}={_quoted(value)}")
        else:
            (flags if argument.startswith("-") else overrides).append(argument)
    if "profile=quick" in overrides and not any(
        word.startswith("experiment=") for word in overrides
    ):
        overrides.append(f"experiment=[{','.join(QUICK)}]")
    # Hydra takes flags and overrides in any order, but a flag's value must follow it: flags that
    # take one (`--cfg job`) are kept together with it here.
    return [*_pair(flags, overrides), *overrides]


def _override(flag: str, value: str) -> str:
    if flag == "--experiment":
        return f"experiment=[{_experiments(value)}]"
    return f"n={value}" if flag == "--n" else f"export={_quoted(value)}"


def _pair(flags: list[str], overrides: list[str]) -> list[str]:
    paired: list[str] = []
    for flag in flags:
        paired.append(flag)
        if flag in (
            "--cfg",
            "-c",
            "--package",
            "-p",
            "--config-dir",
            "-cd",
            "--config-name",
            "-cn",
            "--info",
            "-i",
        ):
            value = next((word for word in overrides if "=" not in word), None)
            if value is not None:
                overrides.remove(value)
                paired.append(value)
    return paired


def _quoted(path: str) -> str:
    """A path that Hydra takes as it is: bare, its grammar stops at commas, brackets and letters beyond ASCII."""
    if not path or path[0] in "'\"":
        return path
    # Inside quotes a backslash counts only before a quote.
    return (
        "'"
        + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), path)
        + "'"
    )


def _experiments(value: str) -> str:
    names = [name.strip() for name in value.strip("[]").split(",") if name.strip()]
    chosen = list(ORDER) if "all" in names else names
    return ",".join(chosen)


def check_names(overrides: Sequence[str]) -> None:
    """Raise `UserError` with the nearest names where a group is asked for what it does not have."""
    for override in overrides:
        name, equals, value = override.lstrip("+~").partition("=")
        if equals and name in _GROUPS and not override.startswith("~"):
            _check_choice(_GROUPS[name], value)


def check(overrides: Sequence[str]) -> None:
    """Compose the configuration once, so that a typo becomes one line with the nearest names.

    Raises:
        UserError: the overrides do not fit the configuration.
    """
    check_names(overrides)
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            resolve(compose("config", overrides=list(overrides)))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_one_line(error, overrides)) from error


def _check_choice(group: str, value: str) -> None:
    valid = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    for name in value.strip("[]'\"").split(","):
        # `a,b` without brackets is Hydra's multirun sweep: each name must exist all the same.
        check_name(name.strip().strip("[]'\""), valid, group)


def _one_line(error: Exception, overrides: Sequence[str]) -> str:
    first = str(error).strip().splitlines()[0]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        keys = _keys(OmegaConf.to_container(compose("config"), resolve=False))
    # A choice of a group can have settings of its own: corpus.path is one of corpus=folder.
    special: dict[str, str] = {}
    for group in ("corpus", "model", "recipe"):
        for path in sorted((CONF / group).glob("*.yaml")):
            own = _keys({group: OmegaConf.to_container(OmegaConf.load(path), resolve=False)})
            special |= {key: f"{group}={path.stem}" for key in own if key not in keys}
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key in special and special[key] not in overrides:
            return f"{key} is a setting of {special[key]}; add that"
        if key not in (*keys, *special, *_GROUPS) and not key.startswith("hydra"):
            close = difflib.get_close_matches(key, sorted({*keys, *special}), n=3, cutoff=0.5)
            hint = (
                f"; did you mean {' or '.join(close)}?"
                if close
                else "; `--cfg job` shows all settings"
            )
            return f"there is no setting '{key}'{hint}"
    return first


def _keys(node: Any, prefix: str = "") -> list[str]:
    if not isinstance(node, dict):
        return []
    found = []
    for name, value in node.items():
        found.append(f"{prefix}{name}")
        found.extend(_keys(value, f"{prefix}{name}."))
    return found


def _if_quick_cpu(fewer: Any, full: Any, *, _root_: DictConfig) -> Any:
    """`${if_quick_cpu:[1],[1, 2]}` in an experiment's file: the first with --quick on a CPU."""
    return fewer if _root_.use_quick_repeats and _device(_root_.device) == "cpu" else full


OmegaConf.register_new_resolver("if_quick_cpu", _if_quick_cpu, replace=True)


def resolve(config: DictConfig) -> Settings:
    """Turn a composed configuration into settings; nothing `auto` is left.

    Raises:
        UserError: an unknown name, or a value of the wrong kind.
    """
    plain: Any = OmegaConf.to_container(config, resolve=True)
    device = _device(plain["device"])
    recipe = make_recipe(plain["recipe"], device)
    experiments = {name: _options(plain["experiment"][name], device) for name in _selected(plain)}
    return Settings(
        experiments=experiments,
        corpus=_corpus(plain["corpus"]),
        model=_model(plain["model"]),
        recipe=recipe,
        device=device,
        out=_path("out", plain["out"]),
        figures=_path("figures", plain["figures"]),
        repeats=_whole("repeats", plain["repeats"]),
        repeats_of=plain["repeats_of"][device],
        seed=_whole("seed", plain["seed"], least=0),
        n=None if plain["n"] is None else _whole("n", plain["n"]),
        cap=plain["cap"][device],
        page_cache=check_name(plain["page_cache"], ("warm", "cold"), "page_cache"),
        seconds=_seconds(plain["seconds"]),
        longest=_whole("longest", plain["longest"]),
        allocator=check_name(plain["allocator"], ALLOCATORS, "allocator"),
        max_failures=_whole("max_failures", plain["max_failures"], least=0),
        only=check_name(plain["only"], ("all", "data"), "only"),
        cost=plain["cost"],
        export=_path("export", plain["export"]) if plain["export"] else None,
    )


def make_recipe(choices: Mapping[str, Any], device: str) -> Recipe:
    """A checked recipe on a device that is resolved."""
    recipe = _build(
        Recipe, {**choices, "device": device if choices["device"] == "auto" else choices["device"]}
    )
    check_name(recipe.decoder, decode.NAMES, "decoder")
    check_name(recipe.resizer, resize.RESIZERS, "resizer")
    check_name(recipe.engine, ENGINES, "engine")
    check_name(recipe.dct_scale, ("full", "auto"), "dct_scale")
    check_name(recipe.normalize_on, ("host", "device"), "normalize_on")
    check_name(recipe.compile, COMPILERS, "compile")
    if recipe.dct_margin < 1:
        raise UserError(
            f"recipe.dct_margin={recipe.dct_margin}: below 1, decode would make less than the model's input"
        )
    if recipe.batch_size < 1:
        raise UserError(f"recipe.batch_size={recipe.batch_size}: a batch holds at least one image")
    return recipe


def _selected(plain: Mapping[str, Any]) -> list[str]:
    chosen = plain.get("experiment") or {}
    if not chosen:
        raise UserError(f"no experiment chosen; --experiment takes {', '.join(ORDER)} or all")
    return sorted(chosen, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


def _options(options: Mapping[str, Any], device: str) -> dict[str, Any]:
    """An experiment's own options; whatever among them is a recipe becomes one."""
    is_recipe = {
        name: isinstance(value, Mapping) and "decoder" in value for name, value in options.items()
    }
    for image_set, n in options.get("images", {}).items():
        _whole(f"images.{image_set}", n)
    return {
        name: make_recipe(value, device) if is_recipe[name] else value
        for name, value in options.items()
    }


def _corpus(choices: Mapping[str, Any]) -> CorpusSpec:
    spec = _build(CorpusSpec, {**choices, "limits": _build(Limits, choices["limits"])})
    check_name(spec.image_set, IMAGE_SETS, "corpus.image_set")
    _whole("corpus.seed", spec.seed, least=0)
    if not 0 <= spec.progressive_share <= 1:
        raise UserError(
            f"corpus.progressive_share={spec.progressive_share}: a share lies between 0 and 1"
        )
    if spec.kind == "abo":
        _check_store(spec)
    return spec


def _check_store(spec: CorpusSpec) -> None:
    check_name(spec.layout, LAYOUTS, "corpus.layout")
    check_name(spec.source, SOURCES, "corpus.source")
    if spec.source == "remote" and spec.layout != "files":
        raise UserError(
            f"corpus.source=remote reads object by object; corpus.layout={spec.layout} is for local"
        )
    for name in ("threads", "attempts"):
        _whole(f"corpus.{name}", getattr(spec, name))
    for name in ("connect_timeout_s", "read_timeout_s"):
        if getattr(spec, name) <= 0:
            raise UserError(f"corpus.{name}={getattr(spec, name)}: give seconds above 0")
    for name, count in spec.prefixes.items():
        if _whole(f"corpus.prefixes.{check_name(name, IMAGE_SETS, 'image set')}", count) > 256:
            raise UserError(f"corpus.prefixes.{name}={count}: there are 256")
    if spec.endpoint and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", spec.endpoint):
        raise UserError(
            f"corpus.endpoint={spec.endpoint}: give http://host:port or https://host, or nothing for AWS"
        )


def _model(choices: Mapping[str, Any]) -> ModelSpec:
    weights = choices["weights"]
    if weights == "auto":
        # A hub is configured where someone said which; a guess would hang on a machine without one.
        configured = bool(
            choices["path"] or os.environ.get("HF_ENDPOINT") or os.environ.get("HF_TOKEN")
        )
        weights = "pretrained" if configured else "random"
    return checkpoint.complete(_build(ModelSpec, {**choices, "weights": weights}))


def _device(name: str) -> str:
    check_name(name, ("auto", "cpu", "cuda"), "device")
    if name == "auto":
        return "cuda" if provenance.gpus() else "cpu"
    if name == "cuda" and not provenance.gpus():
        raise UserError(
            "device=cuda, but no NVIDIA GPU is here; leave it at device=auto or set device=cpu"
        )
    return name


def _path(name: str, text: Any) -> Path:
    if not isinstance(text, str) or not text:
        raise UserError(f"{name}={text}: give a folder")
    return (provenance.ROOT / Path(text).expanduser()).resolve()


def _whole(name: str, value: Any, least: int = 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{name}={value}: give a whole number of at least {least}")
    return value


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 3600:
        raise UserError(
            f"seconds={value}: give how long a loader is measured at least, in seconds above 0"
        )
    return float(value)


def _build(kind: type[T], choices: Mapping[str, Any]) -> T:
    """Make a dataclass whose fields are of the declared kinds."""
    known = get_type_hints(kind)
    if not isinstance(choices, Mapping):
        raise UserError(
            f"{_SECTIONS[kind]}={choices}: it has settings of its own: {', '.join(known)}"
        )
    for name, value in choices.items():
        if name not in known:
            raise UserError(nearest(name, known, f"setting of {_SECTIONS[kind]}"))
        types, wanted = _KINDS.get(known[name], (object, ""))
        if not isinstance(value, types) or (isinstance(value, bool) and known[name] is not bool):
            raise UserError(f"{_SECTIONS[kind]}.{name}={value}: give {wanted}")
    return kind(**choices)
