"""Verdicts and differences on a terminal: aligned, in colour, readable without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wallclock.paper.check import Discrepancy
from wallclock.paper.claims import DIFFERS, HELD, NOT_APPLICABLE, NOT_RUN, VERDICTS, Verdict
from wallclock.paper.diff import Difference

_STYLES = {HELD: "green", DIFFERS: "bold red", NOT_APPLICABLE: "yellow", NOT_RUN: "dim"}
#: A reason that several claims share is printed once, below the table, if it is longer than this.
_SHORT = 24
#: A terminal narrower than this has no room for reasons in the table: all are printed below it.
_WIDE = 100


def print_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print a row for each verdict, a rule between experiments, then shared reasons and counts."""
    wide = console.width >= _WIDE
    notes = _notes(verdicts, wide)
    table = _table(gap=2 if wide else 1)
    table.add_column("claim", no_wrap=True)
    for heading in ("paper", "ours", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("reason" if wide else "", overflow="fold", min_width=4)
    previous = ""
    for verdict in verdicts:
        if previous and previous != verdict.claim.experiment:
            table.add_row()
        previous = verdict.claim.experiment
        table.add_row(*_cells(verdict, notes))
    console.print(table)
    if notes:
        console.print()
    for reason, mark in notes.items():
        console.print(Text(f"[{mark}] {reason}"))
    console.print()
    console.print(_counts(verdicts))


def print_differences(differences: Sequence[Difference], console: Console) -> None:
    """Print a row for each difference, or one line that says there is none."""
    if not differences:
        console.print(Text("no difference beyond the tolerance", style="green"))
        return
    table = _table(gap=2)
    table.add_column("table", no_wrap=True)
    table.add_column("row", overflow="fold")
    table.add_column("column", overflow="fold")
    table.add_column("a", justify="right", overflow="fold")
    table.add_column("b", justify="right", overflow="fold")
    for difference in differences:
        cells = (difference.csv, difference.row, difference.column, difference.a, difference.b)
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    plural = "" if len(differences) == 1 else "s"
    console.print(Text(f"\n{len(differences)} difference{plural}", style="bold red"))


def print_discrepancies(discrepancies: Sequence[Discrepancy], console: Console) -> None:
    """Print a line for each file in which a reference run and its records disagree, and how it differs."""
    words = {"missing": "missing: its records make it", "extra": "extra: no record makes it"}
    width = max(len(found.path) for found in discrepancies)
    lines = []
    for found in discrepancies:
        what = words.get(found.what, f"differs in line {found.line}" if found.line else "differs")
        lines.append(f"  {found.path:<{width}}  {what}")
        if found.line:
            lines += [f"      committed  {found.committed}", f"      rebuilt    {found.rebuilt}"]
    console.print(Text("\n".join(lines)), soft_wrap=True)
    plural = "" if len(discrepancies) == 1 else "s"
    console.print(
        Text(f"\n{len(discrepancies)} file{plural} not as the records make them", style="bold red")
    )


def _table(gap: int) -> Table:
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")


def _cells(verdict: Verdict, notes: dict[str, int]) -> list[Text]:
    claim = verdict.claim
    unit = "" if claim.unit in ("ratio", "fraction") else f" {claim.unit}"
    mark = notes.get(verdict.reason)
    return [
        Text(claim.id),
        Text(f"{claim.paper_value:.6g}{unit}"),
        Text("" if verdict.ours is None else _short(verdict.ours)),
        Text("" if verdict.ratio is None else f"{verdict.ratio:.2f}"),
        Text(verdict.verdict, style=_STYLES[verdict.verdict]),
        Text(verdict.reason if mark is None else f"[{mark}]"),
    ]


def _short(value: float) -> str:
    """Four significant digits, and never an exponent for a rate."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _notes(verdicts: Sequence[Verdict], wide: bool) -> dict[str, int]:
    """Reasons to print below the table, numbered in order of appearance."""
    counts = Counter(verdict.reason for verdict in verdicts)
    below = [
        reason
        for reason, count in counts.items()
        if not wide or (count > 1 and len(reason) > _SHORT)
    ]
    return {reason: mark for mark, reason in enumerate(below, start=1)}


def _counts(verdicts: Sequence[Verdict]) -> Text:
    counts = Counter(verdict.verdict for verdict in verdicts)
    parts = [Text(f"{counts[word]} {word}", style=_STYLES[word]) for word in VERDICTS]
    return Text(f"{len(verdicts)} claims: ") + Text(" · ").join(parts)
