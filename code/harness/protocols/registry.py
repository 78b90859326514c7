"""Protocols by name: the module that measures each, and the code that its records depend on.

A module of this package declares what its protocols time, protocol by protocol:

    TIMED = {"storage": ("wallclock.fetch",)}

A package stands for all its modules. The declaration is read from the source, as a literal:
importing the module would load torch, which the runner never does.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wallclock.errors import check_name

#: What every cell depends on: the images' bytes, formats, geometry and errors, clocks, threads,
#: page cache.
IN_EVERY_CELL = (
    "harness.corpora.manifest",
    "harness.corpora.readers",
    "harness.protocols.protocol",
    "wallclock.av1",
    "wallclock.clock",
    "wallclock.errors",
    "wallclock.fetch.reader",
    "wallclock.formats",
    "wallclock.isobmff",
    "wallclock.machine",
    "wallclock.preprocess",
    "wallclock.tiff",
)


@dataclass(frozen=True)
class Declaration:
    """A protocol: the module that defines it, and the modules and packages that it times."""

    module: str
    timed: tuple[str, ...]


@cache
def declarations() -> Mapping[str, Declaration]:
    """Protocol → its declaration. Raises ValueError: two modules declare one protocol."""
    protocols: dict[str, Declaration] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        module = f"{__package__}.{path.stem}"
        for name, timed in _declared_in(path).items():
            if name in protocols:
                raise ValueError(f"{module} and {protocols[name].module} declare {name}")
            protocols[name] = Declaration(module, timed)
    return protocols


def module_of(protocol: str) -> str:
    """The module that defines a protocol. Raises UserError: there is no such protocol."""
    return _declaration(protocol).module


def timed_by(protocol: str) -> tuple[str, ...]:
    """All code that a protocol's records depend on: module and package names, sorted.

    Its own module, what that declares in `TIMED`, and `IN_EVERY_CELL`.

    Raises:
        UserError: there is no such protocol.
    """
    declaration = _declaration(protocol)
    return tuple(sorted({declaration.module, *declaration.timed, *IN_EVERY_CELL}))


def _declaration(protocol: str) -> Declaration:
    protocols = declarations()
    return protocols[check_name(protocol, protocols, "protocol")]


def _declared_in(path: Path) -> Mapping[str, tuple[str, ...]]:
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "TIMED":
            declared: dict[str, tuple[str, ...]] = ast.literal_eval(statement.value)
            return declared
    return {}
