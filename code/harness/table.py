"""Tables: what a column is, and the one way that a table is written and read.

Every column is declared, in columns.txt or where an experiment defines its tables: its unit, which
says what a cell holds, its kind, which says how two runs compare, and its meaning. The same rows
always give the same bytes. What a spreadsheet saved is read, too: a byte-order mark, UTF-16,
semicolons or tabs, decimal commas.
"""

import codecs
import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from wallclock.clock import STAGES
from wallclock.errors import UserError
from wallclock.files import atomic_open

#: A row of a table by column: numbers, None where there is none; True, False or None; text.
Row = Mapping[str, Any]

DECLARATIONS = Path(__file__).with_name("columns.txt")
KINDS = ("setting", "fact", "computed", "measured", "status", "note")
YES_OR_NO = "yes or no"
_WORDS = {"yes": True, "no": False, "": None}
_EXTREMES = {"_min": "lowest of the repeats", "_max": "highest of the repeats"}
_DELIMITERS = ",;\t"


@dataclass(frozen=True)
class Column:
    """A column of a table, as it is declared; an undeclared one holds text."""

    name: str
    unit: str = ""
    kind: str = "setting"
    meaning: str = ""

    @property
    def is_number(self) -> bool:
        """Whether its cells hold numbers."""
        return self.unit not in ("", YES_OR_NO)

    @property
    def is_exact(self) -> bool:
        """Whether one repeat is as good as many."""
        return self.kind == "fact"

    @property
    def limits(self) -> tuple[str, str]:
        """The names of the columns of its lowest and its highest repeat."""
        return f"{self.name}_min", f"{self.name}_max"

    def parse(self, cell: str) -> Any:
        """What a cell says: a number, True, False or text; None if it is empty or NaN.

        Raises ValueError for text where a number belongs, or another word than yes or no.
        """
        if self.unit == YES_OR_NO:
            if cell not in _WORDS:
                raise ValueError(f"'{cell}' is neither yes nor no")
            return _WORDS[cell]
        return _number(cell) if self.is_number else cell


def declaration(table: str, name: str) -> tuple[str, str] | None:
    """Section and name of the line that declares a table's column; None if no line does.

    The table's own lines win over the common ones, which have an empty section.
    """
    stage, _, rest = name.partition("_")
    names = [name, f"<stage>_{rest}" if stage in STAGES else name]
    names += [each[:-4] for each in names if each[-4:] in _EXTREMES]
    for section in (table, ""):
        for each in names:
            if each in declarations().get(section, {}):
                return section, each
    return None


def column(table: str, name: str) -> Column:
    """A table's column; one that nothing declares holds text and names rows."""
    place = declaration(table, name)
    if place is None:
        return Column(name)
    declared = declarations()[place[0]][place[1]]
    is_extreme = name[-4:] in _EXTREMES and declared.name[-4:] != name[-4:]
    meaning = _EXTREMES[name[-4:]] if is_extreme else declared.meaning
    return replace(declared, name=name, meaning=meaning)


@cache
def declarations() -> dict[str, dict[str, Column]]:
    """All declared columns: section → name → column. Common columns are in section ``""``."""
    declared: dict[str, dict[str, Column]] = {}
    _declare(DECLARATIONS.read_text(encoding="utf-8"), [""], declared)
    # By name: the experiments import this module, not the other way round.
    for text, tables in import_module("experiments.contents").meanings():
        _declare(text, tables, declared)
    return declared


def _declare(text: str, tables: Iterable[str], declared: dict[str, dict[str, Column]]) -> None:
    """Add the lines of a text; those above its first section are of these tables."""
    sections = [declared.setdefault(table, {}) for table in tables]
    for line in text.replace("\n  ", " ").splitlines():
        if line.startswith("["):
            sections = [declared.setdefault(table, {}) for table in line[1:-1].split()]
        elif line and not line.startswith("#"):
            name, unit, kind, meaning = (part.strip() for part in line.split("|"))
            assert kind in KINDS, f"{name} has the kind '{kind}': give one of {', '.join(KINDS)}"
            for section in sections:
                assert name not in section, f"{name} is declared twice"
                section[name] = Column(name, unit, kind, meaning)


def table_of(path: Path) -> str:
    """The name by which the table in a file is declared: with as many folders as stand there."""
    names = ["/".join(path.parts[-n:]) for n in (3, 2)]
    return next((name for name in names if name in declarations()), path.name)


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Write `rows` under `columns`, in the orders given: UTF-8, LF, floats as `%.6g`.

    None and NaN become empty cells, True and False become `yes` and `no`. A line break in a text (a
    tool's error message, say) becomes a space: a row is one line, in every tool that reads it.

    Raises ValueError if a column is declared twice, a row misses a column or has one that is not
    declared, or a value has no form in a table (a list, say).
    """
    declared = set(columns)
    if len(declared) != len(columns):
        raise ValueError(f"{path.name}: a column is declared twice: {', '.join(columns)}")
    lines = []
    for index, row in enumerate(rows, start=1):
        if row.keys() != declared:
            lacks, extra = sorted(declared - row.keys()), sorted(row.keys() - declared)
            raise ValueError(f"{path.name}, row {index}: lacks {lacks}, undeclared: {extra}")
        lines.append([cell_of(row[name]) for name in columns])
    with atomic_open(path) as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(lines)


def read_table(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table, each a mapping from column to what its cell says.

    Raises UserError if the file has no header, a row has more or fewer cells than the header, or a
    cell does not hold what its column's unit says.
    """
    header, lines, has_decimal_commas = _read(path)
    columns = [column(table_of(path), name) for name in header]
    rows = []
    for index, line in enumerate(lines, start=1):
        row = {}
        for each, cell in zip(columns, line, strict=True):
            if has_decimal_commas and each.is_number:
                cell = cell.replace(",", ".")
            try:
                row[each.name] = each.parse(cell)
            except ValueError as error:
                raise UserError(f"{path}, row {index}, column {each.name}: {error}") from error
        rows.append(row)
    return rows


def read_columns(path: Path) -> list[str]:
    """Return the columns of a table, also of one without rows. Raises like `read_table`."""
    return _read(path)[0]


def cell_of(value: object) -> str:
    """A value as a table has it. Raises ValueError if it has no form there."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return ""
    if isinstance(value, str):
        return " ".join(value.splitlines())
    if isinstance(value, bool):  # before int, which bool is a kind of
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return "" if math.isnan(value) else f"{float(value):.6g}"
    raise ValueError(f"a {type(value).__name__} has no form in a table: {value!r}")


def ok_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows that hold a measurement: those whose status is `ok`, and all of a table of spans."""
    return [row for row in rows if row.get("status", "ok") == "ok"]


def distinct(rows: Sequence[Row], name: str) -> list[Any]:
    """The values of a column, each once, in order of appearance; empty cells left out."""
    return list(dict.fromkeys(row[name] for row in rows if row.get(name) not in (None, "")))


def join_distinct(rows: Sequence[Row], name: str, labels: Mapping[str, str] | None = None) -> str:
    """The distinct values of a column as `a / b`, by their labels where there are any."""
    return " / ".join(labels[value] if labels else cell_of(value) for value in distinct(rows, name))


def _number(cell: str) -> float | None:
    if not cell:
        return None
    try:
        value = int(cell) if cell.removeprefix("-").isdecimal() else float(cell)
    except ValueError as error:
        raise ValueError(f"'{cell}' is not a number") from error
    return None if math.isnan(value) else value


def _read(path: Path) -> tuple[list[str], list[list[str]], bool]:
    """The header, the rows, and whether their numbers may have decimal commas."""
    text = _text(path)
    first = text.partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first.count)
    lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    header = lines.pop(0) if lines else []
    if not header:
        raise UserError(f"{path} has no header line; delete it and run its experiment again")
    for index, line in enumerate(lines, start=1):
        if len(line) != len(header):
            counts = f"{len(line)} cells under {len(header)} columns"
            raise UserError(
                f"{path}, row {index}: {counts}; delete it and run its experiment again"
            )
    return header, lines, delimiter != ","


def _text(path: Path) -> str:
    data = path.read_bytes()
    is_utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if is_utf_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not in UTF-8: save it as CSV in UTF-8") from error
