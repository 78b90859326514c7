"""What a setting may be: constraints declared with a dataclass's field, checked in one place."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from wallclock.errors import UserError, check_name

T = TypeVar("T")

_TYPES: dict[Any, tuple[Any, str]] = {
    int: (int, "a whole number"),
    float: (int | float, "a number"),
    str: (str, "a text"),
    bool: (bool, "true or false"),
}


@dataclass(frozen=True)
class Range:
    """A finite number from `least` to `most`, both included; odd on request."""

    least: float = 0
    most: float = math.inf
    odd: bool = False

    def __str__(self) -> str:
        if self.odd:
            return "that is odd, so that one pass is the median"
        if self.most == math.inf:
            return f"of at least {self.least:g}"
        return f"from {self.least:g} to {self.most:.10g}"

    def allows(self, value: float) -> bool:
        """Whether a setting may have this value."""
        within = math.isfinite(value) and self.least <= value <= self.most
        return within and (not self.odd or value % 2 == 1)


@dataclass(frozen=True)
class OneOf:
    """One of these names."""

    names: Collection[str]


def build(cls: type[T], values: Any, key: str) -> T:
    """Return `cls(**values)` after checking each value against its field's annotation.

    Raises UserError: one line that names the setting (`key`, a dot, the field) and what it may be.
    """
    hints = get_type_hints(cls, include_extras=True)
    if not isinstance(values, Mapping):
        raise UserError(f"{key}={values}: it has settings of its own: {', '.join(hints)}")
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
            raise UserError(f"{key}={value}: give a list")
        return tuple(check(arguments[0], item, key) for item in value)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise UserError(f"{key}={value}: it has settings of its own")
        return {name: check(arguments[1], item, f"{key}.{name}") for name, item in value.items()}
    if base not in _TYPES:
        nested = is_dataclass(base) and not isinstance(value, base)  # type: ignore[arg-type]
        return build(base, value, key) if nested else value
    types, expected = _TYPES[base]
    if not isinstance(value, types) or (isinstance(value, bool) and base is not bool):
        raise UserError(f"{key}={value}: give {expected}")
    for limit in constraints:
        if isinstance(limit, OneOf):
            check_name(value, limit.names, key)
        elif not limit.allows(value):
            raise UserError(f"{key}={value}: give {expected} {limit}")
    return base(value)


def values_of(cls: Any, words: Sequence[str]) -> dict[str, Any]:
    """Values from `key=value` words, each of the type of its field's default in `cls`.

    Raises UserError: one line with the nearest names.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.removeprefix("--").partition("=")
        check_name(name, [item.name for item in fields(cls)], "setting")
        if not equals:
            raise UserError(f"{word}: give it a value, {name}=…")
        values[name] = value_of(text, getattr(cls, name))
    return values


def value_of(text: str, default: Any) -> Any:
    """A word as the type of its setting's default has it; the check says what it should be."""
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(default, str):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
