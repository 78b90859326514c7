"""The numbers in the documents: each is computed from the tables that docs/numbers.txt names.

    <!--=vs_next-->1.03        <!--=proved_median-->5.0 %

`python -m paper footnotes --write` rewrites what follows such a marker; a test compares.
"""

import re
import statistics
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from harness import provenance
from harness.table import Row, cell_of, read_table
from paper import claims
from wallclock.errors import UserError

SOURCES = provenance.ROOT / "docs" / "numbers.txt"
#: The marker, its name or expression, the number, and the sign of a percentage.
MARKED = re.compile(r"(<!--=(.+?)-->)([+-]?\d(?:[\d,]*\d)?(?:\.\d+)?)(\s%)?")
TERM = re.compile(r"(?:(max|median|count) )?(\w+)\[(.*?)\]\.(\w+)")
_CONDITION = re.compile(r"(\w+)(!?)=(.*)")


@cache
def sources() -> dict[str, str]:
    """Name → path of a table, or expression. Raises UserError if a name stands there twice."""
    named: dict[str, str] = {}
    for line in SOURCES.read_text(encoding="utf-8").splitlines():
        name, is_source, value = line.partition(" = ")
        if is_source and not line.startswith("#"):
            if name in named:
                raise UserError(f"docs/numbers.txt: {name} stands there twice")
            named[name] = value
    return named


def files() -> dict[str, Path]:
    """Name → path of the tables."""
    named = {name: value for name, value in sources().items() if value.endswith(".csv")}
    return {name: provenance.ROOT / path for name, path in named.items()}


def rewritten(text: str) -> str:
    """A document with every marked number as its source has it, to the digits that it has there.

    Raises UserError: an expression cannot be read, or matches another number of rows than one.
    """

    def number(match: re.Match[str]) -> str:
        marker, body, old, percent = match.groups("")
        return f"{marker}{formatted(body, old, percent)}{percent}"

    return MARKED.sub(number, text)


def formatted(body: str, like: str, percent: str) -> str:
    """The value of a name or an expression, with as many digits as `like`."""
    first, *rest = map(value_of, sources().get(body, body).split(" / "))
    value = first / rest[0] if rest else first
    digits = len(like.partition(".")[2])
    sign = "+" if like[:1] in "+-" else ""
    return f"{value * (100 if percent else 1):{sign},.{digits}f}"


def value_of(term: str) -> float:
    """The value of `[max|median|count] file[column=value; column!=value].column`."""
    match = TERM.fullmatch(term)
    if match is None or match[2] not in files():
        raise UserError(f"docs/numbers.txt: cannot read '{term}'")
    function, name, conditions, column = match.groups()
    rows = [row for row in _table(name) if _meets(row, conditions)]
    if function == "count":
        return len(rows)
    # A row without a measurement has no value to compare.
    values: Sequence[float] = [row[column] for row in rows if row[column] is not None]
    if not function and len(values) == 1:
        return values[0]
    if not function or not values:
        raise UserError(f"docs/numbers.txt: {len(values)} rows match '{term}'")
    return (statistics.median if function == "median" else max)(map(abs, values))


@cache
def _table(name: str) -> Sequence[Row]:
    path = files()[name]
    rows = read_table(path)
    return claims.annotated(rows) if path.name == claims.CSV else rows


def _meets(row: Row, conditions: str) -> bool:
    for condition in filter(None, conditions.split("; ")):
        match = _CONDITION.fullmatch(condition)
        if match is None or match[1] not in row:
            raise UserError(f"docs/numbers.txt: cannot read the condition '{condition}'")
        if (cell_of(row[match[1]]) == match[3]) == bool(match[2]):
            return False
    return True
