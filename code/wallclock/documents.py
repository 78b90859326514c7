"""JSON from outside: bounded, an object, its fields as a schema has them; else one line.

A schema maps a field's name to its annotation (`constraints`). It holds wherever the name stands;
that of `part.name` only there. With `EACH` it is that of all within a list or an object too: 224,
[224, 224] and {"height": 224, "width": 224} are sizes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, get_args

from wallclock.constraints import check
from wallclock.errors import UsageError, UserError, first_line

Schema: TypeAlias = Mapping[str, Any]

EACH = "each"
#: The labels of 21,843 classes, twice, take two million.
_MOST_BYTES = 4 << 20
_MOST_DEPTH = 32


def read_file(path: Path, schema: Schema, fix: str) -> Mapping[str, Any]:
    """The object in a file; empty where there is no file. Raises as `parse` does."""
    if not path.is_file():
        return {}
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}", fix) from error
    return parse(data, str(path), schema, fix)


def parse(data: bytes, where: str, schema: Schema, fix: str) -> Mapping[str, Any]:
    """As `load`. `where`: the file's name, `fix`: what its user may do. Raises UserError."""
    try:
        return load(data, schema)
    except ValueError as error:
        raise UserError(f"{where} cannot be read: {first_line(error)}", fix) from error


def load(data: bytes, schema: Schema) -> Mapping[str, Any]:
    """A JSON text's object, without nulls. Raises ValueError: it is not what the schema says."""
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
    try:
        content = json.loads(data, object_pairs_hook=_without_nulls)
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
        _check(schema, content, "", None, _MOST_DEPTH)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except UsageError as error:
        raise ValueError(str(error)) from error
    return content


def _without_nulls(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if value is not None}


def _check(schema: Schema, value: Any, key: str, hint: Any, depth: int) -> None:
    """Check a value by the annotation of its name or, of a part, of what it is a part of."""
    if depth == 0:
        raise RecursionError
    if hint is not None and EACH not in get_args(hint):
        value, hint = check(hint, value, key), None
    if isinstance(value, Mapping):
        for name, part in value.items():
            dotted = f"{key}.{name}" if key else name
            inner = schema.get(dotted, schema.get(name, hint))
            _check(schema, part, dotted, inner, depth - 1)
    elif isinstance(value, list | tuple):
        for part in value:
            _check(schema, part, key, hint, depth - 1)
    elif hint is not None and value is not None:
        check(hint, value, key)
    elif isinstance(value, str):
        value.encode()  # no half of a surrogate pair
