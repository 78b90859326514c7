"""Command line → Hydra overrides → Hydra's configuration → frozen dataclasses.

The only module besides main.py that knows Hydra. The dataclasses of `spec` are the configuration's
schema: their defaults are registered as `schema` in the groups recipe, model and corpus, so that
the files in conf/ list differences only.
"""

import argparse
import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.contents import ON_REQUEST, ORDER, QUICK
from harness import provenance
from harness.spec import CORPUS_SETTINGS, CorpusSpec, Recipe, Settings
from paper.resolve import build_settings, resolve_device
from wallclock.errors import UsageError, UserError, check_name
from wallclock.recipe import FAST, ModelSpec

CONF = provenance.ROOT / "conf"

_GROUPS = ("corpus", "model", "recipe", "profile", "experiment")

#: Settings that are paths: Hydra's grammar would stop at commas, brackets and non-ASCII letters.
_PATHS = frozenset({"corpus.path", "model.path", "out", "figures"})


def _value(word: str) -> str:
    if "=" in word:
        raise argparse.ArgumentTypeError("expected one argument")
    return word


#: Those of Hydra's flags that a run may have; each is passed on.
_HYDRA_FLAGS = (
    "--cfg",
    "-c",
    "--hydra-help",
    "--info",
    "--multirun",
    "-m",
    "--package",
    "--resolve",
)

#: The article's flags.
_FLAGS = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
_FLAGS.add_argument("--quick", action="store_true")
_FLAGS.add_argument("--n", type=_value)
_FLAGS.add_argument("--experiment", type=_value)
_OWN_FLAGS = ("--quick", "--n", "--experiment", "--help", "--version")


def translate(arguments: Sequence[str]) -> list[str]:
    """Turn the article's flags into Hydra overrides; return Hydra's own flags, then all overrides.

    `--quick` → profile=quick; `--n N` → n=N; `--experiment a,b` → experiment=[a,b], or all of them
    for `all`. Without an experiment: all, or with profile=quick
    the short ones. Without a corpus, and not with profile=quick: the paper's images, where `make
    data` has brought them. `model=null` names the mock model; Hydra would take null for no model.

    Raises UsageError: a flag without its value, an unknown flag, or a word that is no setting.
    """
    try:
        flags, rest = _FLAGS.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from error
    for before, word in pairwise(["", *rest]):
        if word.startswith("-"):
            check_name(word.partition("=")[0], (*_OWN_FLAGS, *_HYDRA_FLAGS), "flag")
        elif "=" not in word and word[:1] != "~" and before not in _HYDRA_FLAGS:
            is_name = word in (*ORDER, *ON_REQUEST, "all")
            fix = f"--experiment {word}" if is_name else "key=value, as in seed=1"
            raise UsageError(f"{word}: it is not a setting; write {fix}")
    sweeps = "--multirun" in rest or "-m" in rest
    # Hydra accepts its flags only before the overrides.
    hydra_flags = [word for word in rest if word.startswith("-") or "=" not in word]
    overrides = ["profile=quick"] if flags.quick else []
    if flags.n is not None:
        overrides.append(f"n={flags.n}")
    if flags.experiment is not None:
        names = _names(flags.experiment)
        overrides.append(f"experiment=[{','.join(ORDER if 'all' in names else names)}]")
    overrides += [_override(word, sweeps) for word in rest if word not in hydra_flags]
    if not any(override.startswith("experiment=") for override in overrides):
        is_quick = "profile=quick" in overrides
        overrides.append(f"experiment=[{','.join(QUICK if is_quick else ORDER)}]")
    has_corpus = any(re.match(r"\+?corpus[.=]", override) for override in overrides)
    if not has_corpus and "profile=quick" not in overrides and _has_papers_images(overrides):
        overrides.append("corpus=abo")
    return [*hydra_flags, *overrides]


def _names(text: str) -> list[str]:
    """The names in `a,b`, or `[a,b]`. Raises UsageError: there is none, or one is empty."""
    names = list(dict.fromkeys(name.strip() for name in text.strip("[] ").split(",")))
    if not all(names):
        fix = ",".join(filter(None, names)) or "serial, or all"
        raise UsageError(f"--experiment {text}: a name is empty; write --experiment {fix}")
    return names


def _has_papers_images(overrides: Sequence[str]) -> bool:
    """Whether `out` holds a list of the paper's 256 px images, all of which had arrived."""
    out = next((word[4:].strip("'\"") for word in overrides if word.startswith("out=")), "data")
    corpora = provenance.ROOT / Path(out).expanduser() / "corpora"
    return any(corpora.glob("abo-*/small_256-first*-seed*.csv"))


def _override(word: str, sweeps: bool) -> str:
    name, _, value = word.partition("=")
    if word == "model=null":
        return "model='null'"
    if name.lstrip("+") in _PATHS and not sweeps:
        return f"{name}={_quote(value)}"
    return word


def _quote(path: str) -> str:
    if not path or path[0] in "'\"":
        return path
    # Inside quotes a backslash counts only before a quote.
    escaped = re.sub(r"(\\*)('|$)", _escape, path)
    return f"'{escaped}'"


def _escape(match: re.Match[str]) -> str:
    """Backslashes before a quote or the end, doubled; a quote with one more."""
    backslashes, quote = match.groups()
    return f"{backslashes}{backslashes}\\'" if quote else f"{backslashes}{backslashes}"


def load(overrides: Sequence[str]) -> Settings:
    """Compose the configuration and resolve it.

    Raises UserError: the overrides do not fit the configuration; one line with the nearest names.
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
        group, equals, value = override.lstrip("+").partition("=")
        if override.startswith("~"):
            raise UserError(f"{override}: a setting can be changed, not removed")
        if equals and group in _GROUPS:
            valid = [path.stem for path in (CONF / group).glob("*.yaml")]
            # `a,b` without brackets is Hydra's multirun sweep: each name must exist all the same.
            for name in value.strip("[]'\"").split(","):
                check_name(name.strip().strip("[]'\""), valid, group)


def resolve(config: DictConfig, overrides: Sequence[str] = ()) -> Settings:
    """Turn a composed configuration into checked settings; nothing `auto` is left.

    Raises UserError: a value outside its setting's range or choices, or one that nothing would use.
    """
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        # A resolver of ours may have refused a value: what it says is enough.
        line = str(error).splitlines()[0]
        raise UserError(line.rpartition("while resolving interpolation: ")[2]) from error
    defaults = {name: _option_defaults(name) for name in plain["experiment"]}
    settings = build_settings(plain, defaults)
    _check_recipe_used(settings, overrides)
    return settings


def _option_defaults(experiment: str) -> dict[str, Any]:
    """The options in an experiment's file, as they are without --quick."""
    options: Any = OmegaConf.load(CONF / "experiment" / f"{experiment}.yaml")
    root = OmegaConf.create(
        {"use_quick_repeats": False, "full_sizes": True, "device": "cpu", "options": options}
    )
    plain: Any = OmegaConf.to_container(root, resolve=True)
    defaults: dict[str, Any] = plain["options"]
    return defaults


def _compose(overrides: Sequence[str]) -> DictConfig:
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


def _register_schemas() -> None:
    store = ConfigStore.instance()
    store.store("schema", _defaults(Recipe), group="recipe")
    store.store("product", asdict(FAST), group="recipe")
    store.store("schema", _defaults(ModelSpec), group="model")
    corpus = _defaults(CorpusSpec)
    # A constant: only tests vary it.
    corpus["limits"] = {name: corpus["limits"][name] for name in ("max_pixels", "max_bytes")}
    for kind, names in CORPUS_SETTINGS.items():
        schema = {"kind": kind} | {name: corpus[name] for name in names}
        store.store(f"schema_{kind}", schema, group="corpus")


def _defaults(cls: Any) -> dict[str, Any]:
    # Equal only where a field has neither.
    required = {field.name for field in fields(cls) if field.default is field.default_factory}
    instance = cls(**dict.fromkeys(required, "???"))
    # OmegaConf has lists and no tuples.
    plain: dict[str, Any] = json.loads(json.dumps(asdict(instance)))
    return plain


def _if_quick_cpu(fewer: Any, full: Any, *, _root_: DictConfig) -> Any:
    """`${if_quick_cpu:[1],[1, 2]}` in an experiment's file: the first with --quick on a CPU."""
    return _if_cpu(fewer, full, _root_=_root_) if _root_.use_quick_repeats else full


def _if_cpu(here: Any, elsewhere: Any, *, _root_: DictConfig) -> Any:
    """`${if_cpu:fp32,fp16}` in an experiment's file: the first on a CPU."""
    return here if resolve_device(_root_.device, "device") == "cpu" else elsewhere


def _if_long(full: Any, fewer: Any, *, _root_: DictConfig) -> Any:
    """`${if_long:100000,20000}` in an experiment's file: the first in the profile `long`."""
    return full if _root_.full_sizes else fewer


_register_schemas()
OmegaConf.register_new_resolver("if_quick_cpu", _if_quick_cpu, replace=True)
OmegaConf.register_new_resolver("if_cpu", _if_cpu, replace=True)
OmegaConf.register_new_resolver("if_long", _if_long, replace=True)


def _explain(error: Exception, overrides: Sequence[str]) -> str:
    """One line about the override that Hydra refused."""
    choices = [override for override in overrides if override.partition("=")[0] in _GROUPS]
    try:
        valid = _keys(OmegaConf.to_container(_compose(choices), resolve=False))
    except (HydraException, OmegaConfBaseException):
        valid = []
    keys = [override.lstrip("+").partition("=")[0] for override in overrides] if valid else []
    for key in keys:
        if key not in valid and key not in _GROUPS and not key.startswith("hydra"):
            return _explain_unknown(key, valid)
    line = str(error).strip().splitlines()[0]
    return f"{error.override}: {line}" if isinstance(error, OverrideParseException) else line


def _explain_unknown(key: str, valid: Sequence[str]) -> str:
    """One line about a setting that is not there, with the nearest names."""
    for kind, names in CORPUS_SETTINGS.items():
        if key.startswith("corpus.") and key.removeprefix("corpus.") in names:
            return f"{key} is a setting of corpus={kind}; add that"
    close = difflib.get_close_matches(key, [*valid, "corpus.path"], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "`--cfg job` shows all settings"
    return f"there is no setting '{key}'; {hint}"


def _keys(node: Any, prefix: str = "") -> list[str]:
    if not isinstance(node, dict):
        return []
    keys = []
    for name, value in node.items():
        key = f"{prefix}{name}"
        keys += [key, *_keys(value, f"{key}.")]
    return keys


def _check_recipe_used(settings: Settings, overrides: Sequence[str]) -> None:
    """Refuse changes to `recipe` where every selected experiment has recipes of its own."""
    changes = [override for override in overrides if re.match(r"recipe[.=]", override)]
    if not changes:
        return
    recipe_options = [
        (name, [option for option, value in options.items() if isinstance(value, Recipe)])
        for name, options in settings.experiments.items()
    ]
    if recipe_options and all(options for _, options in recipe_options):
        name, options = recipe_options[0]
        fix = f"give experiment.{name}.{options[0]}.<setting>"
        raise UserError(f"{changes[0]}: {name} does not use it; {fix}")
