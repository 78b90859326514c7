"""What a setting may be and what it means: declared at a dataclass's field, read in one place.

workers: Annotated[int, Range(0, 1024), Help("threads that load; 0: one per core")] = 0
"""

import math
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from wallclock.errors import UsageError, check_name
from wallclock.outside import printable

T = TypeVar("T")

_TYPES: dict[Any, tuple[Any, str]] = {
    int: (int, "a whole number"),
    float: (int | float, "a number"),
    str: (str, "a text"),
    bool: (bool, "true or false"),
}


@dataclass(frozen=True)
class Range:
    """A finite number from `least` to `most`, both included."""

    least: float = 0
    most: float = math.inf

    def __str__(self) -> str:
        if self.most == math.inf:
            return f"of at least {self.least:g}"
        return f"from {self.least:g} to {self.most:.10g}"

    def allows(self, value: float) -> bool:
        """Whether a setting may have this value."""
        # Not by `isfinite`, which takes no whole number that is larger than any float.
        return self.least <= value <= min(self.most, sys.float_info.max)


@dataclass(frozen=True)
class OneOf:
    """One of these names."""

    names: Collection[str]


@dataclass(frozen=True)
class Help:
    """One line that says what a setting means, for `--help` and the documents."""

    text: str


@dataclass(frozen=True)
class Setting:
    """A setting as it is described to a user."""

    name: str
    default: Any
    #: The text of its `Help`; empty without one.
    meaning: str
    allowed: str


#: Marks of a field: no vector depends on it; a dataset with another value is another one.
NO_VECTOR, OF_DATASET = "no vector depends on it", "a dataset has one value"


def marked(cls: Any, mark: str) -> set[str]:
    """The names of the fields that have a mark in their annotation."""
    hints = get_type_hints(cls, include_extras=True)
    return {name for name, hint in hints.items() if mark in get_args(hint)}


def build(cls: type[T], values: Any, key: str) -> T:
    """`cls(**values)`, each value checked by its annotation. Raises UsageError, which names it."""
    hints = get_type_hints(cls, include_extras=True)
    if not isinstance(values, Mapping):
        raise UsageError(f"{key}={values}: it has settings of its own: {', '.join(hints)}")
    for name in values:
        check_name(name, hints, f"setting of {key}" if key else "setting")
    prefix = f"{key}." if key else ""
    checked = {name: check(hints[name], value, prefix + name) for name, value in values.items()}
    return cls(**checked)


def check(hint: Any, value: Any, key: str) -> Any:
    """Return `value` as the annotation has it, nested dataclasses built. Raises as `build` does."""
    base, *constraints = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    origin, arguments = get_origin(base), get_args(base)
    if origin in (Union, UnionType):
        return None if value is None else check(arguments[0], value, key)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _refused(key, value, "give a list")
        return tuple(check(arguments[0], item, key) for item in value)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise _refused(key, value, "it has settings of its own")
        return {name: check(arguments[1], item, f"{key}.{name}") for name, item in value.items()}
    if base not in _TYPES:
        nested = is_dataclass(base) and not isinstance(value, base)  # type: ignore[arg-type]
        return build(base, value, key) if nested else value
    types, expected = _TYPES[base]
    if not isinstance(value, types) or (isinstance(value, bool) and base is not bool):
        raise _refused(key, value, f"give {expected}")
    for constraint in constraints:
        if isinstance(constraint, OneOf):
            check_name(value, constraint.names, key)
        elif isinstance(constraint, Range) and not constraint.allows(value):
            raise _refused(key, value, f"give {expected} {constraint}")
    return base(value)


def _refused(key: str, value: Any, wanted: str) -> UsageError:
    return UsageError(f"{printable(f'{key}={value}', 100)}: {wanted}")


# --- values as they are typed -------------------------------------------------------------------


def value_of(text: str, default: Any) -> Any:
    """A word as the type of its setting's default has it; the check says what it should be."""
    if isinstance(default, str):
        return text
    if default is None and not text:
        return None
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def text_of(value: Any) -> str:
    """A value as it is typed on the command line; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.10g}" if isinstance(value, float) else str(value)


# --- descriptions -------------------------------------------------------------------------------


def describe(cls: Any) -> list[Setting]:
    """The settings of a dataclass, in the order of its fields."""
    hints = get_type_hints(cls, include_extras=True)
    return [describe_setting(item.name, hints[item.name], item.default) for item in fields(cls)]


def describe_setting(name: str, hint: Any, default: Any) -> Setting:
    """A setting by its annotation and its default."""
    meaning = allowed = ""
    for note in _notes(hint):
        if isinstance(note, Help):
            meaning = note.text
        elif isinstance(note, OneOf):
            allowed = ", ".join(choice for choice in note.names if choice)
        elif isinstance(note, Range) and note.most < math.inf:
            allowed = f"{note.least:g} to {note.most:.10g}"
    return Setting(name, default, meaning, allowed)


def _notes(hint: Any) -> Iterable[Any]:
    """What stands in a type: also what `Annotated` adds, and to the type of `X | None`."""
    for part in get_args(hint):
        yield part
        yield from _notes(part)
