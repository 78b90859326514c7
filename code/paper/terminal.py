"""Tables, verdicts and differences on a terminal: aligned, in colour, readable without it."""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from experiments._sentences import RESULTS
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
from paper.csvfile import Row, number, read_table
from paper.diff import Difference
from paper.format import count_noun, digits, factor, percent, with_unit
from wallclock.clock import STAGES

_STYLES = {
    HELD: "green",
    DIFFERS: "bold red",
    CANNOT_TELL: "yellow",
    CALIBRATION: "yellow",
    NOT_APPLICABLE: "yellow",
    NOT_RUN: "dim",
}
#: Of a longer table only the number of rows is printed.
_MAX_ROWS = 100
#: Columns that name a row, in the order in which they are shown.
_NAME_COLUMNS = (
    "system",
    "what",
    "stage",
    "recipe",
    "decoder",
    "runtime",
    "dtype",
    "model",
    "format",
    "image_set",
    "subset",
    "context",
)


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
    """Print rows under headings, aligned, without lines; columns in `right` are right-aligned."""
    table = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    console.print(table)


def print_results(paths: Sequence[Path], console: Console) -> None:
    """Print a line for each row of each table: its name, result, largest stages or status."""
    lines: list[tuple[str, str, str, str]] = []
    for path in paths:
        rows = read_table(path)
        if rows and ("status" not in rows[0] or len(rows) > _MAX_ROWS):
            noun = "row" if "status" in rows[0] else "span"
            lines += [(path.stem, "", count_noun(len(rows), noun), ""), ("", "", "", "")]
            continue
        for index, row in enumerate(rows):
            lines.append((path.stem if index == 0 else "", _name(row), _result(row), _detail(row)))
        lines.append(("", "", "", ""))
    if lines:
        print_table(("table", "row", "result", ""), lines, console, right=("result",))


def print_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print a line for each verdict, grouped by experiment.

    Below: the reasons, where the judged numbers stand, and the counts.
    """
    numbers = ("paper", "ours", "ratio")
    # The longest word has the shortest marks: a terminal of 80 characters has no room for more.
    by_length = sorted(verdicts, key=lambda verdict: verdict.verdict != NOT_APPLICABLE)
    reasons = list(dict.fromkeys(verdict.reason for verdict in by_length if verdict.reason))
    rows: list[list[Text]] = []
    for _, group in groupby(verdicts, key=_experiment_of):
        rows += [_cells(verdict, reasons) for verdict in group]
        rows.append([])
    print_table(("claim", *numbers, "verdict"), rows, console, numbers, gap=1)
    for mark, reason in enumerate(reasons, start=1):
        console.print(Text(f"{mark}: {reason}"))
    places = _places(verdicts)
    if places:
        console.print(Text("\nWhere the judged numbers stand:"))
    for place, ids in places.items():
        console.print(Text(f"[{', '.join(ids)}] {place}"))
    counts = Counter(verdict.verdict for verdict in verdicts)
    parts = [Text(f"{counts[word]} {word}", style=_STYLES[word]) for word in VERDICTS]
    console.print(Text(f"\n{len(verdicts)} claims: ") + Text(" · ").join(parts))


def _places(verdicts: Sequence[Verdict]) -> dict[str, list[str]]:
    """Where in the source, and what it says elsewhere → the ids of the judged claims."""
    places: dict[str, list[str]] = {}
    for verdict in verdicts:
        claim = verdict.claim
        if verdict.verdict in JUDGED:
            place = claim.where
            if claim.other_value is not None:
                other = with_unit(claim.other_value, claim.unit)
                place += f"; elsewhere {other}: {claim.other_where}"
            places.setdefault(place, []).append(claim.id)
    return places


def print_differences(differences: Sequence[Difference], console: Console) -> None:
    """Print a line for each difference, or one line that there is none."""
    if not differences:
        console.print(Text("no difference beyond the tolerance", style="green"))
        return
    rows = [(d.csv, d.row, d.column, d.a, d.b) for d in differences]
    print_table(("table", "row", "column", "a", "b"), rows, console, right=("a", "b"))
    console.print(Text(f"\n{count_noun(len(differences), 'difference')}", style="bold red"))


def _experiment_of(verdict: Verdict) -> str:
    return verdict.claim.experiment


def _name(row: Row) -> str:
    parts = [row[column] for column in _NAME_COLUMNS if row.get(column) and row[column] != "null"]
    if row.get("fsync") == "yes":
        parts.append("with fsync")
    if row.get("pruned", "") not in ("", "0"):
        parts.append(f"pruned {percent(row['pruned'], 0)}")
    return " ".join(dict.fromkeys(parts))


def _result(row: Row) -> str:
    for column, unit in RESULTS.items():
        if row.get(column):
            return f"{digits(row[column])} {unit}"
    if row.get("gain"):
        return f"gain {factor(row['gain'])}"
    if row.get("utilization"):
        return f"{percent(row['utilization'])} busy"
    if row.get("max_relative_difference"):
        return f"{percent(row['max_relative_difference'])} apart at most"
    return row.get("status", "")


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
    mark = f" {reasons.index(verdict.reason) + 1}" if verdict.reason else ""
    return [
        Text(claim.id),
        Text(with_unit(claim.paper_value, claim.unit)),
        Text("" if verdict.ours is None else ours),
        Text("" if verdict.ratio is None else factor(verdict.ratio)),
        Text(verdict.verdict + mark, style=_STYLES[verdict.verdict]),
    ]
