"""A diagnosis on a terminal: the verdict, the ranked fixes, the path of the complete page."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from wallclock.paper.csvfile import number
from wallclock.paper.diagnosis import words
from wallclock.paper.diagnosis.words import Diagnosis
from wallclock.paper.format import digits, factor, percent, signed_percent
from wallclock.paper.terminal import print_line, print_table

#: Stages below this share of the time are not named.
_NAMED_SHARE = 0.01


def print_diagnosis(diagnosis: Diagnosis, page: Path, console: Console) -> None:
    """Print where the time goes, what to fix first, what each fix will bring, and the proof."""
    console.print()
    console.print(Text(words.headline(diagnosis), style="bold green"))
    print_line(f"· {_time(diagnosis)}", console)
    for line in words.verdict(diagnosis):
        print_line(f"· {line}", console)
    console.print()
    _print_fixes(diagnosis, console)
    console.print()
    unproved = "Predicted, not measured: PROVE=1 (experiment.diagnose.prove=true) runs every fix."
    console.print(Text(words.proof(diagnosis) or unproved, style="bold"))
    print_line(f"Every stage, image statistic, check and library version: {page}", console)


def _time(diagnosis: Diagnosis) -> str:
    stages = sorted(diagnosis.stages, key=lambda row: -(number(row["share"]) or 0))
    total = sum(number(row["ms_per_image"]) or 0 for row in stages)
    named = [row for row in stages if float(row["share"]) >= _NAMED_SHARE]
    shares = [f"{row['stage']} {percent(row['share'], 0)}" for row in named]
    return f"Where the time of an image goes ({digits(total)} ms): {', '.join(shares)}."


def _print_fixes(diagnosis: Diagnosis, console: Console) -> None:
    """The present recipe, each fix alone by its predicted speedup, then all fixes together."""
    numbers = ["gain", "img/s", "interval"] + ["measured", "error"] * bool(diagnosis.proved)
    rows: list[list[str]] = []
    for row in (diagnosis.present, *diagnosis.fixes, *diagnosis.stacked[-1:]):
        stacked = row["kind"] == "stacked"
        title = "all of them" if stacked else row["fix"]
        if row["status"] != "ok":
            rows.append([title, *[""] * len(numbers), f"{row['status']}: {row['reason']}"])
            continue
        cells = {
            "gain": factor(row["predicted_speedup"]),
            "img/s": digits(row["predicted_img_per_s"]),
            "interval": f"{digits(row['low_img_per_s'])} to {digits(row['high_img_per_s'])}",
            "measured": digits(row["measured_img_per_s"]),
            "error": signed_percent(row["error"]),
        }
        cost = "each fix on top of the last" if stacked else row["fix_cost"]
        rows.append([title, *(cells[name] for name in numbers), cost])
    print_table(["fix", *numbers, "what it costs"], rows, console, right=numbers)
