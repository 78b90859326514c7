"""A diagnosis on a terminal: its five parts, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wallclock.paper import diagnosis
from wallclock.paper.csvfile import number
from wallclock.paper.diagnosis import Diagnosis

#: Characters of a bar that stands for all of the time.
_BAR = 24


def print_diagnosis(found: Diagnosis, console: Console) -> None:
    """Print stages and images, verdict, checklist, predictions, proof."""
    _heading("1  Where the time of an image goes", console)
    console.print(_stages(found))
    console.print()
    console.print(_images(found))
    _heading("2  Verdict", console)
    console.print(Text(diagnosis.headline(found), style="bold green"))
    for line in diagnosis.verdict(found):
        console.print(Text(f"· {line}"))
    _heading("3  Checklist", console)
    console.print(_checklist(found))
    console.print(
        Text(
            "a fix that relieves several stages stands at each; its gain is the whole of it",
            style="dim",
        )
    )
    _heading("4  Predictions", console)
    console.print(_predictions([found.present, *found.fixes, *found.stacked]))
    _heading("5  Proof", console)
    if found.proved:
        console.print(_proof(found.proved))
        console.print()
        console.print(Text(diagnosis.proof(found), style="bold"))
    else:
        console.print(
            Text(
                "not measured; PROVE=1 (experiment.diagnose.prove=true) runs every prediction end to end"
            )
        )
    console.print()


def _heading(text: str, console: Console) -> None:
    console.print()
    console.print(Text(text, style="bold underline"))


def _table(*headings: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


def _stages(found: Diagnosis) -> Table:
    table = _table("stage", "ms", "share", "", right=("ms", "share"))
    for row in found.stages:
        share = float(row["share"])
        bar = "█" * round(share * _BAR) + (
            " ◀ sets the pace" if row["is_bottleneck"] == "yes" else ""
        )
        cells = (row["stage"], f"{float(row['ms_per_image']):.3f}", f"{share:.1%}", bar)
        table.add_row(
            *(Text(cell) for cell in cells), style="bold" if row["is_bottleneck"] == "yes" else None
        )
    return table


def _images(found: Diagnosis) -> Table:
    right = ("median KB", "megapixels", "bytes/pixel", "longest px")
    table = _table("images", *right, "formats", right=right)
    for row in diagnosis.compared_images(found):
        names = ("median_kb", "median_megapixels", "bytes_per_pixel", "median_longest_px")
        cells = (row["source"], *(_short(row, name) for name in names), row["formats"])
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _checklist(found: Diagnosis) -> Table:
    table = _table(
        "stage", "share", "gain", "at most", "fix", "its cost", right=("share", "gain", "at most")
    )
    for row in found.checklist:
        cells = (
            f"{row['stage']} ◀" if row["is_bottleneck"] == "yes" else row["stage"],
            f"{float(row['share']):.1%}",
            _factor(row, "predicted_speedup"),
            _factor(row, "at_most_speedup"),
            row["fix"],
            row["fix_cost"],
        )
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _predictions(rows: Sequence[Mapping[str, str]]) -> Table:
    right = ("img/s", "interval", "gain")
    table = _table("", *right, "then binds", right=right)
    for row in rows:
        title = row["fix"] if row["kind"] != "stacked" else f"stacked: {row['fix']}"
        if row["status"] != "ok":
            table.add_row(Text(title), "", "", "", Text(f"{row['status']}: {row['reason']}"))
            continue
        interval = f"{_short(row, 'low_img_per_s')} – {_short(row, 'high_img_per_s')}"
        cells = (
            title,
            _short(row, "predicted_img_per_s"),
            interval,
            _factor(row, "predicted_speedup"),
        )
        table.add_row(*(Text(cell) for cell in (*cells, row["bottleneck"])))
    return table


def _proof(rows: Sequence[Mapping[str, str]]) -> Table:
    right = ("predicted", "measured", "error")
    table = _table("", *right, right=right)
    for row in rows:
        title = row["fix"] if row["kind"] != "stacked" else f"stacked: {row['fix']}"
        error = float(row["error"])
        cells = (
            title,
            _short(row, "predicted_img_per_s"),
            _short(row, "measured_img_per_s"),
            f"{error:+.1%}",
        )
        table.add_row(
            *(Text(cell) for cell in cells),
            style=None if row["within_interval"] == "yes" else "yellow",
        )
    return table


def _short(row: Mapping[str, str], name: str) -> str:
    value = number(row[name])
    return "" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _factor(row: Mapping[str, str], name: str) -> str:
    value = number(row[name])
    return "" if value is None else f"{value:.2f}×"
