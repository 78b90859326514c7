"""Tables, verdicts and differences on a terminal: aligned, in colour, readable without it."""

import textwrap
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from harness.drawing.format import EMPTY, count_noun, digits, factor, percent, with_unit
from harness.table import Row, read_table
from paper.claims import (
    ARITHMETIC,
    CALIBRATION,
    DIFFERS,
    HEADLINE,
    HELD,
    INCONCLUSIVE,
    JUDGED,
    NOT_APPLICABLE,
    NOT_RUN,
    VERDICTS,
    Claim,
    Verdict,
    counting,
)
from paper.diff import Comparison, Difference
from wallclock.clock import STAGES

_STYLES = {
    HELD: "green",
    DIFFERS: "bold red",
    INCONCLUSIVE: "yellow",
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
    print_counts(verdicts, console)


def print_counts(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print a line for each source of claims: how many quantities have which verdict.

    A quantity that is cited twice counts once; what arithmetic settles is counted apart. No line
    for a source of which nothing was run.
    """
    counted = counting([verdict.claim for verdict in verdicts])
    for source in dict.fromkeys(verdict.claim.source for verdict in verdicts):
        group = [verdict for verdict in verdicts if verdict.claim.source == source]
        if all(verdict.verdict == NOT_RUN for verdict in group):
            continue
        counts = Counter(v.verdict for v in group if v.claim.id in counted)
        parts = [Text(f"{counts[word]} {word}", _STYLES[word]) for word in VERDICTS if counts[word]]
        if settled := sum(v.claim.role == ARITHMETIC and v.verdict == HELD for v in group):
            parts.append(Text(f"{settled} held by construction", style="dim"))
        heading = f"{source}, {count_noun(len(group), 'number')}: "
        console.print(Text(heading) + Text(" · ").join(parts))


def print_headlines(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print the numbers of the paper that matter most, ours, and where ours stand."""
    first = [verdict for verdict in verdicts if verdict.claim.role == HEADLINE]
    _print_numbers(
        ("paper", "ours"),
        [
            (each.claim, each.claim.paper_value, each.ours, _allowed(each.claim), each.verdict)
            for each in first
        ],
        console,
    )


def print_comparison(
    comparison: Comparison, tolerance: float, console: Console, detail: str = ""
) -> None:
    """Print the numbers that matter, what one side did not run, and how many cells differ.

    `detail`: `all` lists every cell that does not hold, `short` prints the last line alone.
    """
    if detail != "short":
        allowed = f"± {100 * tolerance:.3g} %"
        numbers = [(n.claim, n.a, n.b, allowed, n.verdict) for n in comparison.numbers]
        _print_numbers(("A", "B"), numbers, console)
        for line in comparison.one_sided:
            console.print(Text(f"not compared: {line}", style="dim"))
    if detail == "all":
        for csv, differences in groupby(comparison.differences, key=_table_of):
            console.print(Text(csv, style="bold"))
            rows = [(f"  {d.row}", d.column, d.a, d.b, _styled(d.verdict)) for d in differences]
            headings = ("  row", "column", "a", "b", "verdict")
            print_table(headings, rows, console, right=("a", "b"))
    parts = [
        Text(f"{comparison.verdicts[word]:,} {word}", _STYLES[word])
        for word in (DIFFERS, INCONCLUSIVE, HELD)
        if comparison.verdicts[word]
    ]
    tables = count_noun(comparison.n_tables, "table")
    both = f"cells in {count_noun(comparison.n_rows, 'row')} of {tables} that both ran: "
    if comparison.one_sided:
        parts.append(Text(f"{count_noun(len(comparison.one_sided), 'line')} not compared", "dim"))
    console.print(Text(both) + Text(" · ").join(parts))
    if comparison.differences and not detail:
        print_line("ALL=1 lists the cells that differ or are inconclusive", console)


def _print_numbers(
    sides: tuple[str, str],
    numbers: Sequence[tuple[Claim, float, float | None, str, str]],
    console: Console,
) -> None:
    """A line for each number: both sides, allowed, verdict; below it table, row and column."""
    if not numbers:
        return
    lines: list[tuple[str, ...]] = [("number", *sides, "ratio", "allowed", "verdict")]
    for claim, a, b, allowed, verdict in numbers:
        ratio = factor(b / a) if b is not None and a else EMPTY
        values = (with_unit(value, claim.unit) for value in (a, b))
        lines.append((claim.id, *values, ratio, allowed, verdict))
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for index, (name, *cells, verdict) in enumerate(lines):
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:-1], strict=True)]
        line = Text(" ".join([name.ljust(widths[0]), *padded, ""]))
        console.print(line + (_styled(verdict) if index else Text(verdict)))
        for csv, row, column in numbers[index - 1][0].cells() if index else ():
            console.print(Text(f"  {csv}, {row}: {column}", style="dim"))


def _allowed(claim: Claim) -> str:
    return "at most" if claim.tolerance is None else f"± {100 * claim.tolerance:.3g} %"


def _styled(verdict: str) -> Text:
    return Text(verdict, style=_STYLES[verdict])


def _table_of(difference: Difference) -> str:
    return difference.csv


def _experiment_of(verdict: Verdict) -> str:
    return verdict.claim.experiment


def _name(row: Row, columns: Sequence[str]) -> str:
    parts = [_word(column, row[column]) for column in columns if row.get(column)]
    if "model" in columns and row.get("pruned"):
        parts.append(f"pruned {percent(row['pruned'], 0)}")
    return " ".join(dict.fromkeys(part for part in parts if part not in ("", "null", "all")))


def _word(column: str, cell: Any) -> str:
    """A cell as it reads without its column's name."""
    if column == "fsync":
        return "with fsync" if cell else ""
    return f"{cell} boxes" if column == "boxes" else str(cell)


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
        return str(row.get("reason", ""))
    shares = [(row.get(f"{stage}_share") or 0.0, stage) for stage in STAGES]
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
