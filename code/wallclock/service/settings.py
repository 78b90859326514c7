"""The settings of a service and of its module: `key=value` on the command line."""

import inspect
from argparse import SUPPRESS
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from wallclock.constraints import Help, OneOf, Range, Setting, build, describe, describe_setting
from wallclock.errors import UsageError, first_line, import_extra
from wallclock.machine import usable_cores
from wallclock.options import Parser
from wallclock.recipe import Positive

if TYPE_CHECKING:
    from wallclock.service.interface import Module

_Tasks = Annotated[int, Range(1, 10_000)]
_Seconds = Annotated[float, Range(0, 43_200)]
_SecondsOfTry = Annotated[float, Range(0.001, 3600)]
#: Listed first by --help.
USUAL = ("module", "batch", "workers", "downloads", "callbacks", "visibility_s", "port", "log")


@dataclass(frozen=True)
class ServiceSettings:
    """One service, its requests to hosts that messages name included."""

    module: Annotated[str, Help("package.module:Class; its parameters are settings")] = (
        "wallclock.service.modules:Embedding"
    )
    batch: Annotated[int, Range(1, 65_536), Help("largest batch")] = 64
    max_wait_s: Annotated[_Seconds, Help("seconds that a batch waits for more images")] = 0.02
    workers: Annotated[int, Range(0, 1024), Help("threads for preprocess; 0: one per core")] = 0
    pulls: Annotated[int, Range(1, 100), Help("concurrent receives from the queue")] = 3
    downloads: Annotated[_Tasks, Help("concurrent downloads")] = 32
    callbacks: Annotated[_Tasks, Help("concurrent callbacks")] = 32
    max_held: Annotated[int, Range(20, 100_000), Help("most messages held at a time")] = 2_000
    buffer_mb: Annotated[Positive, Help("MB of buffered images at which pulling pauses")] = 512
    wait_s: Annotated[int, Range(0, 20), Help("seconds that a receive waits for messages")] = 5
    visibility_s: Annotated[
        int, Range(0, 43_200), Help("visibility timeout in seconds; 0: the queue's own")
    ] = 0
    retry_s: Annotated[_Seconds, Help("seconds before the second delivery, then doubled")] = 10.0
    callback_patience_s: Annotated[_Seconds, Help("seconds to retry a callback that fails")] = 300.0
    notify_failures: Annotated[bool, Help("call back with the reason when an image fails")] = False
    grace_s: Annotated[_Seconds, Help("seconds to finish work after SIGTERM")] = 30.0
    host: Annotated[str, Help("address of /health, /ready and /metrics")] = "127.0.0.1"
    port: Annotated[int, Range(0, 65535), Help("port of /health, /ready, /metrics; 0: none")] = 8080
    log: Annotated[str, OneOf(("debug", "info", "warning")), Help("lowest level logged")] = "info"
    allow_private: Annotated[bool, Help("allow private addresses and any port")] = False
    private_callbacks: Annotated[bool, Help("the same for callbacks alone")] = False
    ports: Annotated[str, Help("ports allowed in URLs, separated by commas")] = "80,443"
    connect_s: Annotated[_SecondsOfTry, Help("seconds to connect, per try")] = 5.0
    read_s: Annotated[_SecondsOfTry, Help("seconds of silence or under 1 kB/s, per try")] = 10.0
    total_s: Annotated[_SecondsOfTry, Help("seconds per try, redirects included")] = 30.0
    attempts: Annotated[int, Range(1, 100), Help("tries of a download, backing off in between")] = 4
    max_bytes: Annotated[int, Range(1, 1 << 31), Help("largest image in bytes")] = 50_000_000
    max_redirects: Annotated[int, Range(0, 20), Help("redirects followed per image")] = 3

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


def parser(name: str, module: "type[Module] | None") -> Parser:
    """The command's parser, with the settings of a module where it can be imported."""
    about = "QUEUE_URL is the URL of an SQS queue. docs/service.md explains messages and modules."
    made = Parser("serve", "QUEUE_URL [options]", about)
    made.add_argument("queue_url", metavar="QUEUE_URL", help=SUPPRESS)
    made.add_settings(describe(ServiceSettings), USUAL)
    if module is not None:
        made.add_settings(describe_module(module), title=f"of {name}")
    return made


def module_name(words: Sequence[str]) -> str:
    """The module that the words name, or the default."""
    first = Parser("serve", "QUEUE_URL [options]")
    first.add_settings(describe(ServiceSettings)[:1])
    given, _ = first.parse_known_args(first.as_options(words))
    return str(getattr(given, "module", ServiceSettings.module))


def extras(words: Sequence[str]) -> str:
    """The extras of the wheel that the service needs with the module that the words name."""
    return "embed,queue" if module_name(words) == ServiceSettings.module else "queue"


def read(words: Sequence[str]) -> tuple[str, ServiceSettings, "Callable[[], Module]"]:
    """The queue's URL, the settings, and what makes the module with its own.

    A parameter of the module with the name of a setting of the service gets that. Raises
    UsageError: one line that names the setting.
    """
    name = module_name(words)
    module = find_module(name)
    given, values = parser(name, module).read(words)
    names, options = {item.name for item in fields(ServiceSettings)}, parameters_of(module)
    service = build(ServiceSettings, {k: v for k, v in values.items() if k in names}, "")
    shared = {name: getattr(service, name) for name in options if name in names}
    of_module = {name: value for name, value in values.items() if name in options}
    return given.queue_url, service, partial(module, **of_module | shared)


def find_module(name: str) -> "type[Module]":
    """The class that `package.module:Class` names. Raises UsageError: there is none."""
    home = import_extra("wallclock.service.interface", "wallclock serve", "queue")
    base: type[Module] = home.Module
    path, _, attribute = name.partition(":")
    try:
        module = getattr(import_module(path), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        why = first_line(error)
        raise UsageError(f"module={name}: {why}; give package.module:Class") from error
    if not (isinstance(module, type) and issubclass(module, base)):
        raise UsageError(f"module={name}: derive it from wallclock.service.Module")
    return module


def parameters_of(module: "type[Module]") -> Mapping[str, inspect.Parameter]:
    """The parameters of a module's `__init__`, which are settings."""
    parameters = inspect.signature(module).parameters.items()
    return {name: kept for name, kept in parameters if kept.kind is not kept.VAR_KEYWORD}


def describe_module(module: "type[Module]") -> list[Setting]:
    """The settings of a module, but those that it shares with the service."""
    shared = {item.name for item in fields(ServiceSettings)}
    return [
        describe_setting(name, parameter.annotation, parameter.default)
        for name, parameter in parameters_of(module).items()
        if name not in shared
    ]
