"""The settings of a service and of its module: `key=value` on the command line."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

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
from wallclock.errors import UsageError, first_line, import_extra
from wallclock.machine import usable_cores
from wallclock.recipe import Positive

if TYPE_CHECKING:
    from wallclock.service.module import Module

_Tasks = Annotated[int, Range(1, 10_000)]
_Seconds = Annotated[float, Range(0, 43_200)]
_SecondsOfTry = Annotated[float, Range(0.001, 3600)]


@dataclass(frozen=True)
class ServiceSettings:
    """One service, its requests to hosts that messages name included."""

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
    retry_s: Annotated[_Seconds, Help("seconds before the second delivery; then doubled")] = 10.0
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
    allow_private: Annotated[bool, Help("allow any address and port: for hosts of one's own")] = (
        False
    )
    private_callbacks: Annotated[bool, Help("the same for callbacks alone")] = False
    ports: Annotated[str, Help("ports that URLs may name, with commas")] = "80,443"
    connect_s: Annotated[_SecondsOfTry, Help("seconds to connect, of one try")] = 5.0
    read_s: Annotated[
        _SecondsOfTry, Help("seconds of silence, or of less than 1 kB/s, of one try")
    ] = 10.0
    total_s: Annotated[_SecondsOfTry, Help("seconds of one try, redirects included")] = 30.0
    attempts: Annotated[int, Range(1, 100), Help("tries, with random growing pauses")] = 4
    max_bytes: Annotated[int, Range(1, 1 << 31), Help("most bytes of an image")] = 50_000_000
    max_redirects: Annotated[
        int, Range(0, 20), Help("redirects to an image, each checked as its URL")
    ] = 3

    def __post_init__(self) -> None:
        self.allowed_ports()

    @property
    def n_workers(self) -> int:
        """Threads of `preprocess`."""
        return self.workers or usable_cores()

    def allowed_ports(self) -> frozenset[int]:
        """The ports that URLs may name. Raises UsageError: they are no numbers."""
        try:
            return frozenset(int(port) for port in self.ports.split(","))
        except ValueError as error:
            raise UsageError(f"ports={self.ports}: give numbers, as in 80,443") from error


def read(words: Sequence[str]) -> tuple[ServiceSettings, "Callable[[], Module]"]:
    """The settings of `key=value` words, and what makes the module with its own.

    Raises UsageError: one line that names the setting.

    A parameter of the module with the name of a setting of the service gets that.
    """
    module = find_module(last_text(words, "module") or ServiceSettings.module)
    own = {item.name: item.default for item in fields(ServiceSettings)}
    options = {name: item.default for name, item in parameters_of(module).items()}
    defaults = options | own
    texts = texts_of(words, defaults)
    values = {name: value_of(text, defaults[name]) for name, text in texts.items()}
    service = build(ServiceSettings, {k: v for k, v in values.items() if k in own}, "")
    shared = {name: getattr(service, name) for name in options if name in own}
    given = {name: value for name, value in values.items() if name in options}
    return service, partial(module, **given | shared)


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
    shared = {item.name for item in fields(ServiceSettings)}
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
