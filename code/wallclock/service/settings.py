"""The settings of a service: `key=value` on the command line, over those of a YAML file."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from wallclock.constraints import (
    Help,
    OneOf,
    Range,
    Setting,
    build,
    describe_setting,
    texts_of,
    value_of,
)
from wallclock.errors import UsageError, check_name, first_line, import_extra
from wallclock.machine import usable_cores
from wallclock.recipe import Positive

if TYPE_CHECKING:
    from wallclock.service.module import Module

_Tasks = Annotated[int, Range(1, 10_000)]
_Seconds = Annotated[float, Range(0, 43_200)]
_SecondsOfTry = Annotated[float, Range(0.001, 3600)]


@dataclass(frozen=True)
class ServiceSettings:
    """One service."""

    module: Annotated[str, Help("package.module:Class; its parameters are settings")] = (
        "wallclock.service.modules:Embedding"
    )
    batch: Annotated[int, Range(1, 65_536), Help("most rows of a batch")] = 64
    max_wait_s: Annotated[_Seconds, Help("seconds that a batch's first row waits for others")] = (
        0.02
    )
    workers: Annotated[int, Range(0, 1024), Help("threads of preprocess; 0: one per core")] = 0
    pulls: Annotated[int, Range(1, 100), Help("receives from the queue at a time")] = 3
    downloads: Annotated[_Tasks, Help("downloads at a time")] = 32
    callbacks: Annotated[_Tasks, Help("callbacks at a time")] = 32
    max_held: Annotated[
        int, Range(20, 100_000), Help("most messages held at a time, in any state")
    ] = 2_000
    buffer_mb: Annotated[Positive, Help("MB of images in the buffers; above it none is pulled")] = (
        512
    )
    wait_s: Annotated[int, Range(0, 20), Help("seconds that a receive waits for messages")] = 5
    visibility_s: Annotated[
        int, Range(0, 43_200), Help("visibility timeout in seconds; 0: the queue's own")
    ] = 0
    dead_letter: Annotated[
        str, Help("URL of the dead-letter queue; empty: as RedrivePolicy says")
    ] = ""
    max_receives: Annotated[
        int, Range(1, 1000), Help("deliveries at most, if no RedrivePolicy says it")
    ] = 5
    retry_s: Annotated[_Seconds, Help("seconds before the second delivery; then doubled")] = 10.0
    callback_url: Annotated[str, Help("callback of messages without one, as S3's events are")] = ""
    callback_patience_s: Annotated[
        _Seconds, Help("seconds that a result waits for a receiver that is down")
    ] = 300.0
    notify_failures: Annotated[
        bool, Help("call back the reason, too, where an image is given up")
    ] = False
    grace_s: Annotated[_Seconds, Help("seconds from SIGTERM until unfinished work is returned")] = (
        30.0
    )
    stall_s: Annotated[_Seconds, Help("seconds of one batch above which /health fails")] = 300.0
    host: Annotated[str, Help("address of /health, /ready and /metrics")] = "127.0.0.1"
    port: Annotated[
        int, Range(0, 65_535), Help("port of /health, /ready and /metrics; 0: none")
    ] = 8080
    log: Annotated[str, OneOf(("debug", "info", "warning")), Help("least level that is logged")] = (
        "info"
    )

    @property
    def n_workers(self) -> int:
        """Threads of `preprocess`."""
        return self.workers or usable_cores()


@dataclass(frozen=True)
class ClientSettings:
    """Requests to hosts that messages name."""

    allow_private: Annotated[bool, Help("allow any address and port: for hosts of one's own")] = (
        False
    )
    ports: Annotated[str, Help("ports that URLs may name, with commas")] = "80,443"
    connect_s: Annotated[_SecondsOfTry, Help("seconds to connect, of one try")] = 5.0
    read_s: Annotated[
        _SecondsOfTry, Help("seconds of silence, or of less than 1 kB/s, of one try")
    ] = 10.0
    total_s: Annotated[_SecondsOfTry, Help("seconds of one try, redirects included")] = 30.0
    attempts: Annotated[int, Range(1, 100), Help("tries, with random growing pauses")] = 4

    def __post_init__(self) -> None:
        self.allowed_ports()

    def allowed_ports(self) -> frozenset[int]:
        """The ports; none for all. Raises UsageError: they are no numbers."""
        try:
            ports = frozenset(int(port) for port in self.ports.split(","))
        except ValueError as error:
            raise UsageError(f"ports={self.ports}: give numbers, as in 80,443") from error
        return frozenset() if self.allow_private else ports


@dataclass(frozen=True)
class DownloadSettings(ClientSettings):
    """Downloads of images."""

    max_bytes: Annotated[int, Range(1, 1 << 31), Help("most bytes of an image")] = 50_000_000
    max_redirects: Annotated[
        int, Range(0, 20), Help("redirects to an image, each checked as its URL")
    ] = 3


@dataclass(frozen=True)
class CallbackSettings(ClientSettings):
    """Callbacks; redirects are not followed."""


@dataclass(frozen=True)
class Setup:
    """All settings, each where it belongs. `options`: of the module's `__init__`."""

    service: ServiceSettings
    download: DownloadSettings
    callback: CallbackSettings
    module: "type[Module]"
    options: Mapping[str, Any]


def read(words: Sequence[str], values: Mapping[str, Any]) -> Setup:
    """The settings of `key=value` words, over the values of a file.

    `download.KEY` and `callback.KEY` are settings of one of these; a KEY of theirs alone sets both.
    Raises UsageError: one line that names the setting.
    """
    file_values = _flatten(values)
    module_name = last_text(words, "module") or file_values.get("module", ServiceSettings.module)
    module = find_module(str(module_name))
    options = {name: item.default for name, item in parameters_of(module).items()}
    defaults = {
        "": _defaults_of(ServiceSettings),
        "download.": _defaults_of(DownloadSettings),
        "callback.": _defaults_of(CallbackSettings),
        "module.": options,
    }
    names = {"config"}
    for prefix, group in defaults.items():
        names.update(group)
        names.update(prefix + name for name in group)
    for name in file_values:
        check_name(name, names, "setting")
    sources = (file_values, texts_of(words, names))

    def given(prefix: str) -> dict[str, Any]:
        return _given(defaults[prefix], prefix, sources)

    service = build(ServiceSettings, given(""), "")
    # A parameter with the name of a setting of the service gets that.
    shared = {name: getattr(service, name) for name in options if name in defaults[""]}
    return Setup(
        service,
        build(DownloadSettings, given("download."), ""),
        build(CallbackSettings, given("callback."), ""),
        module,
        shared | given("module."),
    )


def read_file(path: str) -> Mapping[str, Any]:
    """The settings in a YAML file.

    Raises UsageError: it cannot be read, is no YAML, or has no settings; UserError: PyYAML is not
    installed.
    """
    yaml = import_extra("yaml", "config=FILE", "queue")
    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"config={path}: {first_line(error)}") from error
    if not isinstance(values, Mapping):
        raise UsageError(f"config={path}: give it lines of `setting: value`")
    return values


def find_module(name: str) -> "type[Module]":
    """The class that `package.module:Class` names. Raises UsageError: there is none."""
    base: type[Module] = import_extra("wallclock.service.module", "wallclock serve", "queue").Module
    path, _, attribute = name.partition(":")
    try:
        module = getattr(import_module(path), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        why = first_line(error)
        raise UsageError(f"module={name}: {why}; give package.module:Class") from error
    if not (isinstance(module, type) and issubclass(module, base)):
        raise UsageError(f"module={name}: derive it from wallclock.service.module.Module")
    return module


def parameters_of(module: "type[Module]") -> Mapping[str, inspect.Parameter]:
    """The parameters of a module's `__init__`, which are settings."""
    parameters = inspect.signature(module).parameters
    return {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }


def describe_module(module: "type[Module]") -> list[Setting]:
    """The settings of a module, but those that it shares with the service.

    A parameter has a meaning where its annotation has a `Help`.
    """
    shared = _defaults_of(ServiceSettings)
    return [
        describe_setting(name, parameter.annotation, parameter.default)
        for name, parameter in parameters_of(module).items()
        if name not in shared
    ]


def last_text(words: Sequence[str], key: str) -> str:
    """The text of the last word `key=text`; empty without one."""
    for word in reversed(words):
        name, _, text = word.removeprefix("--").partition("=")
        if name == key:
            return text
    return ""


def _defaults_of(cls: Any) -> dict[str, Any]:
    return {item.name: item.default for item in fields(cls)}


def _given(
    defaults: Mapping[str, Any], prefix: str, sources: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Of the settings in `defaults`, those that a source has.

    A later source wins over an earlier one; within a source, `prefix.KEY` over KEY.
    """
    values: dict[str, Any] = {}
    for source in sources:
        for name, default in defaults.items():
            for key in (name, prefix + name):
                value = source.get(key)
                if value is not None:
                    values[name] = value_of(value, default) if isinstance(value, str) else value
    return values


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{download: {attempts: 3}}` as `{download.attempts: 3}`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{key}": nested for key, nested in value.items()})
        else:
            flat[str(name)] = value
    return flat
