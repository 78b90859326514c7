"""The settings of a service: `key=value` on the command line, over those of a file."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from itertools import product
from typing import Annotated, Any

from wallclock.constraints import OneOf, Range, build, value_of
from wallclock.errors import UserError, check_name, first_line
from wallclock.machine import usable_cores
from wallclock.recipe import Positive
from wallclock.service.callbacks import CallbackSettings
from wallclock.service.download import DownloadSettings
from wallclock.service.module import Module

_Tasks = Annotated[int, Range(1, 10_000)]
_Seconds = Annotated[float, Range(0, 43_200)]


@dataclass(frozen=True)
class ServiceSettings:
    """One service.

    `module`: package.module:Class; the parameters of its `__init__` are settings too. `batch`: the
    most rows of a batch, whose first waits `max_wait_s` at most for the others. `workers`: threads
    of `preprocess`, 0 for as many as cores; `pulls`, `downloads`, `callbacks`: at a time.
    `max_held`, `buffer_mb`: of messages, bounds beside that of the visibility timeout and the rate.
    `wait_s`: of a receive. `visibility_s`: 0 for the queue's own. `dead_letter`: a queue's URL; by
    default, and for `max_receives` too, the queue's RedrivePolicy says it. `retry_s`: pause before
    the second delivery of what failed, doubled before each further one. `callback_patience_s`: for
    so long a result is kept whose receiver is down. `grace_s`: to finish what is held after
    SIGTERM; what is left is returned. `stall_s`: of one batch, after which /health fails. `host`
    and `port`: of /health, /ready and /metrics; port 0 for none.
    """

    module: str = "wallclock.service.modules:Embedding"
    batch: Annotated[int, Range(1, 65_536)] = 64
    max_wait_s: _Seconds = 0.02
    workers: Annotated[int, Range(0, 1024)] = 0
    pulls: Annotated[int, Range(1, 100)] = 3
    downloads: _Tasks = 32
    callbacks: _Tasks = 32
    max_held: Annotated[int, Range(20, 100_000)] = 2_000
    buffer_mb: Positive = 512
    wait_s: Annotated[int, Range(0, 20)] = 5
    visibility_s: Annotated[int, Range(0, 43_200)] = 0
    dead_letter: str = ""
    max_receives: Annotated[int, Range(1, 1000)] = 5
    retry_s: _Seconds = 10.0
    callback_patience_s: _Seconds = 300.0
    grace_s: _Seconds = 30.0
    stall_s: _Seconds = 300.0
    host: str = "127.0.0.1"
    port: Annotated[int, Range(0, 65_535)] = 8080
    log: Annotated[str, OneOf(("debug", "info", "warning"))] = "info"

    @property
    def n_workers(self) -> int:
        """Threads of `preprocess`."""
        return self.workers or usable_cores()


@dataclass(frozen=True)
class Setup:
    """All settings, each where it belongs. `options`: of the module's `__init__`."""

    service: ServiceSettings
    download: DownloadSettings
    callback: CallbackSettings
    module: type[Module]
    options: Mapping[str, Any]


def read(words: Sequence[str], values: Mapping[str, Any]) -> Setup:
    """The settings of `key=value` words, over the values of a file.

    `download.KEY` and `callback.KEY` are settings of one of these; a KEY of theirs alone sets both.
    Raises UserError: one line that names the setting.
    """
    sources = (_flat(values), dict(_word(word) for word in words))
    given = sources[0] | sources[1]
    module = _class(str(given.get("module", ServiceSettings.module)))
    parameters = {
        name: parameter.default
        for name, parameter in inspect.signature(module).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    classes = {"": ServiceSettings, "download": DownloadSettings, "callback": CallbackSettings}
    defaults = {
        key: {item.name: getattr(cls, item.name) for item in fields(cls)}
        for key, cls in classes.items()
    } | {"module": parameters}
    known = {f"{key}.{name}" for key, names in defaults.items() for name in names if key}
    known |= {name for names in defaults.values() for name in names}
    for name in given:
        check_name(name, known, "setting")

    def share(key: str) -> dict[str, Any]:
        """The values of one class; of one source, those that name the class win."""
        found = {}
        for name, default in defaults[key].items():
            for source, long in product(sources, (name, f"{key}.{name}")):
                if (value := source.get(long)) is not None:
                    found[name] = value_of(value, default) if isinstance(value, str) else value
        return found

    service = build(ServiceSettings, share(""), "")
    # A parameter with the name of a setting of the service gets that.
    shared = {name: getattr(service, name) for name in parameters if name in defaults[""]}
    return Setup(
        service,
        build(DownloadSettings, share("download"), ""),
        build(CallbackSettings, share("callback"), ""),
        module,
        shared | share("module"),
    )


def _word(word: str) -> tuple[str, str]:
    name, equals, text = word.removeprefix("--").partition("=")
    if not equals:
        raise UserError(f"{word}: give it a value, {name}=…")
    return name, text


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{download: {attempts: 3}}` as `{download.attempts: 3}`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        nested = value if isinstance(value, Mapping) else {"": value}
        flat |= {f"{name}.{key}".rstrip("."): one for key, one in nested.items()}
    return flat


def _class(name: str) -> type[Module]:
    """The class that `package.module:Class` names. Raises UserError: there is none."""
    path, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(path), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"module={name}: {first_line(error)}; give package.module:Class") from error
    if not (isinstance(found, type) and issubclass(found, Module)):
        raise UserError(f"module={name}: derive it from wallclock.service.module.Module")
    return found
