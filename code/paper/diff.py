"""Two regenerated folders compared, in what both of them ran: what must be equal, what may vary.

A column's kind says how its cells compare (`harness.table`): measured numbers may lie apart by a
tolerance that the caller gives, facts and computed ones by rounding. Beyond the tolerance a number
`differs`; it is `inconclusive` where the repeats of both sides overlap all the same. A table, a row
or a column that one folder lacks is counted and not compared. First come the numbers that matter:
those that the claims cite.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from experiments.opt import cells as opt
from experiments.t4 import cells as t4
from harness.drawing.format import count_noun
from harness.table import Column, Row, cell_of, column, read_columns, read_table, table_of
from paper import claims
from paper.claims import DIFFERS, HEADLINE, HELD, INCONCLUSIVE
from wallclock.errors import UsageError, UserError

#: Verdicts, which only restate other tables, and recorded spans, which differ from run to run.
SKIPPED = frozenset({claims.CSV, t4.TIMELINE_CSV, opt.TIMELINE_CSV})
#: Relative difference that rounding makes: a spreadsheet's three digits, too.
ROUNDING = 5e-3
#: A share, or a stage's share of the wall time, below this is noise, however large the ratio.
NOISE_FLOOR = 0.01
#: So many numbers come first.
N_FIRST = 10
#: Exit status where nothing differs, but one folder lacks a table, rows or a column.
ONE_SIDED = 3
#: A row with one of these was not run: here it cannot be.
_NOT_RUN = ("unavailable", "not applicable")


class Number(NamedTuple):
    """A number that a claim cites, as both folders have it, in the claim's unit."""

    claim: claims.Claim
    a: float
    b: float
    verdict: str


class Difference(NamedTuple):
    """One cell that differs, or whose repeats leave it open: `verdict` says which."""

    csv: str
    row: str
    column: str
    a: str
    b: str
    verdict: str = DIFFERS


@dataclass
class Comparison:
    """What differs, and in a line for each what only one folder ran."""

    numbers: list[Number]
    differences: list[Difference] = field(default_factory=list)
    one_sided: list[str] = field(default_factory=list)
    #: What both folders have a result for.
    n_tables: int = 0
    n_rows: int = 0
    n_cells: int = 0

    @property
    def status(self) -> int:
        """Exit status: 1 where a number differs; 3 where one folder lacks something; else 0."""
        verdicts = {each.verdict for each in self.differences} | {n.verdict for n in self.numbers}
        if DIFFERS in verdicts:
            return 1
        return ONE_SIDED if self.one_sided else 0

    @property
    def verdicts(self) -> "Counter[str]":
        """How many cells held, differ or are inconclusive."""
        counts = Counter(difference.verdict for difference in self.differences)
        counts[HELD] = self.n_cells - len(self.differences)
        return counts


def compare(dir_a: Path, dir_b: Path, tolerance: float) -> Comparison:
    """Compare the tables of two folders, in the order of their names.

    `tolerance`: how far two measured numbers may lie apart, relative to the larger one. Raises
    UserError if a folder is missing or holds no tables, they have none in common, or a table is
    damaged.
    """
    names_a, names_b = _tables(dir_a), _tables(dir_b)
    if not names_a & names_b:
        raise UserError(f"{dir_a} and {dir_b} have no table in common: there is nothing to compare")
    result = Comparison(_numbers(dir_a, dir_b, tolerance))
    for side, names in (("A", names_a - names_b), ("B", names_b - names_a)):
        if names:
            tables = f"{count_noun(len(names), 'table')} only in {side}"
            result.one_sided.append(f"{tables}: {', '.join(sorted(names))}")
    for name in sorted(names_a & names_b):
        _compare_tables(dir_a / name, dir_b / name, tolerance, result)
    return result


def _tables(folder: Path) -> set[str]:
    names = {path.name for path in folder.glob("*.csv")} - SKIPPED
    if not names:
        raise UsageError(f"no tables in {folder}; give a folder that a run wrote, such as data/")
    return names


def _numbers(dir_a: Path, dir_b: Path, tolerance: float) -> list[Number]:
    """The numbers that matter most of those that both folders have; each quantity once."""
    cited = claims.load(claims.CLAIMS)
    counted = claims.counting(cited)
    a, b = claims.measure(cited, dir_a), claims.measure(cited, dir_b)
    both = [claim for claim in cited if claim.id in a.keys() & b.keys() & counted]
    first = sorted(both, key=lambda claim: claim.role != HEADLINE)[:N_FIRST]
    numbers = []
    for claim in first:
        (x, *of_a), (y, *of_b) = a[claim.id], b[claim.id]
        margin = tolerance * max(abs(x), abs(y))
        numbers.append(Number(claim, x, y, _verdict(x, y, margin, of_a, of_b)))
    return numbers


def _verdict(
    x: float, y: float, margin: float, of_a: Sequence[float], of_b: Sequence[float]
) -> str:
    """`of_a`, `of_b`: lowest and highest repeat of each side; empty where they are not known."""
    if abs(x - y) <= margin:
        return HELD
    has_limits = of_a and of_b and of_a[0] < of_a[1] and of_b[0] < of_b[1]
    if has_limits and of_a[0] <= of_b[1] and of_b[0] <= of_a[1]:
        return INCONCLUSIVE
    return DIFFERS


def _compare_tables(path_a: Path, path_b: Path, tolerance: float, result: Comparison) -> None:
    a, b = read_table(path_a), read_table(path_b)
    names_a, names_b = read_columns(path_a), read_columns(path_b)
    columns = [column(table_of(path_a), name) for name in names_a if name in names_b]
    keys = _keys(columns, a, b)
    rows_a, rows_b = _named(a, keys), _named(b, keys)
    pairs = [(row, rows_b[name]) for name, row in rows_a.items() if name in rows_b]
    only = {"A": len(a) - len(pairs), "B": len(b) - len(pairs)}
    ran = []
    for x, y in pairs:
        lacks_a, lacks_b = (row.get("status") in _NOT_RUN for row in (x, y))
        only["A"] += lacks_b and not lacks_a
        only["B"] += lacks_a and not lacks_b
        if not lacks_a and not lacks_b:
            ran.append((x, y))
    lines = [f"{count_noun(n, 'row')} only in {side}" for side, n in only.items() if n]
    for side, extra in (("A", {*names_a} - {*names_b}), ("B", {*names_b} - {*names_a})):
        if extra:
            lines.append(f"the column {', '.join(sorted(extra))} only in {side}")
    if lines:
        result.one_sided.append(f"{path_a.name}: {', '.join(lines)}")
    if ran:
        result.n_tables += 1
        result.n_rows += len(ran)
    number_of = {id(row): number for number, row in enumerate(a, start=1)}
    labels = [f"{number_of[id(x)]} {_label(x, keys or _facts(columns, x))}".strip() for x, _ in ran]
    extremes = {end for each in columns for end in each.limits if {*each.limits} <= {*names_a}}
    for each in columns:
        if each.kind != "note" and each.name not in extremes:
            compared = [
                (label, x, y)
                for label, (x, y) in zip(labels, ran, strict=True)
                # Of a result that one side alone has, its status says enough.
                if each.name == "status" or x.get("status") == y.get("status")
            ]
            result.n_cells += len(compared)
            result.differences += _unlike_cells(path_a.name, each, compared, tolerance)


def _keys(columns: Sequence[Column], a: Sequence[Row], b: Sequence[Row]) -> list[str]:
    """The columns that name a table's rows: of its settings, the fewest that tell them apart.

    A setting that is the same in all rows is none: it must be equal, and may differ. Where settings
    do not suffice, the number of images does.
    """

    def n_told(names: Sequence[str]) -> list[int]:
        return [len({tuple(row[name] for name in names) for row in rows}) for rows in (a, b)]

    settings = [each.name for each in columns if each.kind == "setting"]
    images = [each.name for each in columns if each.name == "n_images"]
    keys: list[str] = []
    for name in (*settings, *images):
        if n_told([*keys, name]) != n_told(keys):
            keys.append(name)
    # A later one may tell apart what an earlier one did: of a loader the images, not its variant.
    for name in keys[1:]:
        others = [key for key in keys if key != name]
        if n_told(others) == n_told(keys):
            keys = others
    return keys


def _named(rows: Sequence[Row], keys: Sequence[str]) -> dict[tuple[object, ...], Row]:
    """The rows by their keys, and of rows with equal keys by their order."""
    seen: Counter[tuple[object, ...]] = Counter()
    named = {}
    for row in rows:
        name = tuple(row[key] for key in keys)
        named[(*name, seen[name])] = row
        seen[name] += 1
    return named


def _facts(columns: Sequence[Column], row: Row) -> list[str]:
    """What names the only row of a table: its first two settings."""
    return [each.name for each in columns if each.kind == "setting" and cell_of(row[each.name])][:2]


def _label(row: Row, names: Sequence[str]) -> str:
    return " ".join(filter(None, (cell_of(row[name]) for name in names)))


def _unlike_cells(
    csv: str, column: Column, compared: Sequence[tuple[str, Row, Row]], tolerance: float
) -> Iterator[Difference]:
    """The cells of a column that do not hold; one difference for all rows where it is the same."""
    unlike = []
    for label, a, b in compared:
        verdict = _verdict_of_cells(column, a, b, tolerance)
        if verdict != HELD:
            cells = cell_of(a[column.name]), cell_of(b[column.name])
            unlike.append(Difference(csv, label, column.name, *cells, verdict))
    if len(unlike) == len(compared) > 1 and len({difference[3:] for difference in unlike}) == 1:
        yield unlike[0]._replace(row=f"all {len(unlike)} rows")
        return
    yield from unlike


def _verdict_of_cells(column: Column, a: Row, b: Row, tolerance: float) -> str:
    x, y = a[column.name], b[column.name]
    if x == y:
        return HELD
    if x is None or y is None or not column.is_number:
        return DIFFERS
    if column.kind == "measured":
        margin = max(tolerance * max(abs(x), abs(y)), _floor(column, a, b))
        ends = [[row[end] for end in column.limits if row.get(end) is not None] for row in (a, b)]
        return _verdict(x, y, margin, *ends)
    is_count = isinstance(x, int) and isinstance(y, int)
    return _verdict(x, y, 0 if is_count else ROUNDING * max(abs(x), abs(y)), (), ())


def _floor(column: Column, a: Row, b: Row) -> float:
    """The difference below which a number is noise, in its own unit; 0 where there is none."""
    if column.unit in ("0 to 1", "relative"):
        return NOISE_FLOOR
    walls = [row["wall_s"] for row in (a, b) if row.get("wall_s") is not None]
    return NOISE_FLOOR * max(walls) if column.unit == "s" and len(walls) == 2 else 0.0
