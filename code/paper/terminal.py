"""Tables, verdicts and differences on a terminal: aligned, in colour, readable without it."""

import textwrap
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from harness.csvfile import Row, number, read_table
from harness.drawing.format import count_noun, digits, factor, percent, with_unit
from paper.claims import (
    CALIBRATION,
    CANNOT_TELL,
    DIFFERS,
    HELD,
    JUDGED,
    NOT_APPLICABLE,
    NOT_RUN,
    VERDICTS,
    Verdict,
)
from paper.diff import Comparison, Difference
from wallclock.clock import STAGES

_STYLES = {
    HELD: "green",
    DIFFERS: "bold red",
    CANNOT_TELL: "yellow",
    CALIBRATION: "yellow",
    NOT_APPLICABLE: "yellow",
    NOT_RUN: "dim",
}
#: Of a longer table only the number of rows is printed; of rows in columns so many lines.
_MAX_ROWS, _MAX_LINES = 100, 3
#: Columns that name a row, in the order in which they are shown; and those that rows share.
_NAME_COLUMNS = (
    "system",
    "implementation",
    "what",
    "stage",
    "recipe",
    "decoder",
    "runtime",
    "dtype",
    "model",
    "format",
)
_SHARED_COLUMNS = ("image_set", "subset", "fsync", "boxes")
#: Column and unit: the first that a row fills is its result, in the terminal.
_RESULTS = {
    "img_per_s": "img/s",
    "vectors_per_s": "vectors/s",
    "mean_ms": "ms",
    "ns_per_call": "ns a call",
}
#: Statuses of rows that cannot be measured here.
_MISSING = ("unavailable", "not applicable")
_NO_BREAK = "\N{NO-BREAK SPACE}"


def print_line(text: str, console: Console) -> None:
    """Print one line as it is: no markup, no wrapping, no highlighting."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    console: Console,
    right: Collection[str] = (),
    gap: int = 2,
) -> None:
    """Print rows under headings, aligned, without lines; columns in `right` are right-aligned.

    Without a line of headings where all are empty.
    """
    table = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    table.show_header = any(headings)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    console.print(table)


def print_results(paths: Sequence[Path], console: Console) -> None:
    """Print each table under its name: a line for a row that has stages, others in columns.

    Rows that could not be measured here are counted, with the reason of the first. Stages that do
    nothing are left out.
    """
    for path in paths:
        rows = [row for row in read_table(path) if row.get("decoder") != "null"]
        is_timeline = bool(rows) and "status" not in rows[0]
        if is_timeline or len(rows) > _MAX_ROWS:
            count = count_noun(len(rows), "span" if is_timeline else "row")
            print_line(f"{path.stem}: {count}", console)
            continue
        missing = [row for row in rows if row["status"] in _MISSING]
        heading = Text(path.stem, style="bold")
        if missing:
            count = count_noun(len(missing), "row")
            heading.append(f": {count} not measured, {missing[0]['reason']}", style="dim")
        heading.truncate(console.width, overflow="ellipsis")
        console.print(heading)
        _print_rows([row for row in rows if row not in missing], console)


def _print_rows(rows: Sequence[Row], console: Console) -> None:
    """Rows without details in columns, grouped by what they share; the others line by line."""
    names = _distinguishing(rows)
    groups: dict[str, list[str]] = {}
    detailed = []
    for row in rows:
        value, unit = _result(row)
        detail = _detail(row)
        if detail:
            name = f"  {_name(row, (*names, *_SHARED_COLUMNS))}"
            detailed.append((name, f"{value} {unit}".strip(), detail))
            continue
        shared = ", ".join(filter(None, (_name(row, _SHARED_COLUMNS), unit)))
        groups.setdefault(shared, []).append(f"{_name(row, names)} {value}".strip())
    for shared, items in groups.items():
        _print_group(shared, items, console)
    if detailed:
        print_table(("", "", ""), detailed, console)


def _print_group(shared: str, items: Sequence[str], console: Console) -> None:
    """Print items on a line, none broken, as many as have room in a few lines."""
    for n in range(len(items), 0, -1):
        printed = [*items[:n], *([f"{len(items) - n} more"] if n < len(items) else [])]
        text = " · ".join(item.replace(" ", _NO_BREAK) for item in printed)
        lines = textwrap.wrap(
            f"{shared}: {text}" if shared else text,
            console.width,
            initial_indent="  ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
        if len(lines) <= _MAX_LINES:
            break
    for line in lines:
        print_line(line.replace(_NO_BREAK, " "), console)


def _distinguishing(rows: Sequence[Row]) -> list[str]:
    """The first columns that tell rows apart; of a single row the first that names it."""
    names: list[str] = []
    for column in _NAME_COLUMNS:
        keys = [[*_SHARED_COLUMNS, *names], [*_SHARED_COLUMNS, *names, column]]
        before, after = (
            len({tuple(row.get(key) for key in wanted) for row in rows}) for wanted in keys
        )
        if after > before:
            names.append(column)
    named = [column for column in _NAME_COLUMNS if rows and rows[0].get(column)]
    return names or named[:1]


def print_verdicts(
    verdicts: Sequence[Verdict], console: Console, judged_of: Collection[str] | None = None
) -> None:
    """Print a line for each verdict, grouped by experiment; below, the reasons and the counts.

    With `judged_of`, lines for the judged claims of these experiments alone, without reasons.
    """
    rows: list[list[Text]] = []
    reasons: list[str] = []
    listed = verdicts
    if judged_of is None:
        # The longest word has the shortest marks: a terminal of 80 characters has no room for more.
        by_length = sorted(verdicts, key=lambda verdict: verdict.verdict != NOT_APPLICABLE)
        reasons = list(dict.fromkeys(verdict.reason for verdict in by_length if verdict.reason))
    else:
        judged = [verdict for verdict in verdicts if verdict.verdict in JUDGED]
        listed = [verdict for verdict in judged if _experiment_of(verdict) in judged_of]
    for _, group in groupby(listed, key=_experiment_of):
        rows += [_cells(verdict, reasons) for verdict in group]
        if judged_of is None:
            rows.append([])
    if rows:
        numbers = ("paper", "ours", "ratio")
        print_table(("claim", *numbers, "verdict"), rows, console, numbers, gap=1)
    for mark, reason in enumerate(reasons, start=1):
        console.print(Text(f"{mark}: {reason}"))
    counts = Counter(verdict.verdict for verdict in verdicts)
    parts = [
        Text(f"{counts[word]} {word}", style=_STYLES[word]) for word in VERDICTS if counts[word]
    ]
    console.print(Text(f"{len(verdicts)} claims: ") + Text(" · ").join(parts))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print under each table a line for each difference; what one side did not run; the counts."""
    for csv, differences in groupby(comparison.differences, key=_table_of):
        console.print(Text(csv, style="bold"))
        rows = [(f"  {d.row}", d.column, d.a, d.b) for d in differences]
        print_table(("  row", "column", "a", "b"), rows, console, right=("a", "b"))
    for line in comparison.one_sided:
        console.print(Text(f"not compared: {line}", style="dim"))
    tables = count_noun(comparison.n_tables, "table")
    both = f"in {count_noun(comparison.n_rows, 'row')} of {tables} that both ran"
    if n := len(comparison.differences):
        console.print(Text(f"{count_noun(n, 'difference')} {both}", style="bold red"))
    else:
        console.print(Text(f"no difference beyond the tolerance {both}", style="green"))


def _table_of(difference: Difference) -> str:
    return difference.csv


def _experiment_of(verdict: Verdict) -> str:
    return verdict.claim.experiment


def _name(row: Row, columns: Sequence[str]) -> str:
    parts = [_word(column, row[column]) for column in columns if row.get(column)]
    if "model" in columns and row.get("pruned", "") not in ("", "0"):
        parts.append(f"pruned {percent(row['pruned'], 0)}")
    return " ".join(dict.fromkeys(part for part in parts if part not in ("", "null", "all")))


def _word(column: str, cell: str) -> str:
    """A cell as it reads without its column's name."""
    if column == "fsync":
        return "with fsync" if cell == "yes" else ""
    return f"{cell} boxes" if column == "boxes" else cell


def _result(row: Row) -> tuple[str, str]:
    """The number that a row is about, and its unit, if it has a usual one."""
    for column, unit in _RESULTS.items():
        if row.get(column):
            return digits(row[column]), unit
    if row.get("gain"):
        return f"gain {factor(row['gain'])}", ""
    if row.get("utilization"):
        return f"{percent(row['utilization'])} busy", ""
    if row.get("max_relative_difference"):
        return f"{percent(row['max_relative_difference'])} apart at most", ""
    return row.get("status", ""), ""


def _detail(row: Row) -> str:
    if row.get("status", "ok") != "ok":
        return row.get("reason", "")
    shares = [(number(row.get(f"{stage}_share", "")) or 0.0, stage) for stage in STAGES]
    largest = sorted(shares, reverse=True)[:3]
    return " · ".join(f"{stage} {percent(share, 0)}" for share, stage in largest if share >= 0.01)


def _cells(verdict: Verdict, reasons: Sequence[str]) -> list[Text]:
    claim = verdict.claim
    # The unit is in the column before; a terminal of 80 characters has no room to repeat it.
    relative = claim.unit in ("fraction", "ratio")
    ours = with_unit(verdict.ours, claim.unit) if relative else digits(verdict.ours)
    mark = f" {reasons.index(verdict.reason) + 1}" if verdict.reason in reasons else ""
    return [
        Text(claim.id),
        Text(with_unit(claim.paper_value, claim.unit)),
        Text("" if verdict.ours is None else ours),
        Text("" if verdict.ratio is None else factor(verdict.ratio)),
        Text(verdict.verdict + mark, style=_STYLES[verdict.verdict]),
    ]
