"""`python -m wallclock.drift --a DIR --b DIR`: have the images of a job changed, and where? Table and drift.csv.

A job grows slower over months without a change of its own when its images grow. Each measure of the two folders
is compared by its median and p90, and by the two-sample Kolmogorov-Smirnov statistic: the largest distance
between the two cumulative distributions.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wallclock import provenance
from wallclock.corpus import folder
from wallclock.corpus import image_stats as corpus_stats
from wallclock.corpus import manifest as manifests
from wallclock.corpus.image_stats import MEASURES, ImageStats
from wallclock.errors import UserError
from wallclock.paper.csvfile import read_table, write_table
from wallclock.paper.format import digits
from wallclock.run.progress import CorpusProgress, Screen
from wallclock.spec import CorpusSpec
from wallclock.summary import kolmogorov_smirnov, quantile

COLUMNS = (
    *(
        "measure",
        "a_p50",
        "a_p90",
        "b_p50",
        "b_p90",
        "shift",
        "ks",
        "ks_limit",
        "drifted",
        "verdict",
    ),
    *("a_images", "b_images", "origin", "status", "reason"),
)

#: The statistic passes its limit by chance once in a thousand comparisons of equal folders.
_ALPHA = 0.001
#: A difference that is certain but smaller than this changes no job: medians or p90s apart by so much.
_NOTICEABLE = 0.1
#: The same for a share of the images, absolute.
_NOTICEABLE_SHARE = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two folders; 0 whether or not they differ, 1 where the request cannot be met."""
    parser = argparse.ArgumentParser(prog="python -m wallclock.drift", description=__doc__)
    parser.add_argument("--a", type=Path, required=True, help="the folder as it was")
    parser.add_argument("--b", type=Path, required=True, help="the folder as it is")
    parser.add_argument(
        "--n", type=int, default=1000, help="images of each, a seeded sample (default 1000)"
    )
    parser.add_argument("--out", type=Path, default=provenance.ROOT / "data")
    options = parser.parse_args(arguments)
    console = Console()
    try:
        if options.n < 1:
            raise UserError(f"--n {options.n}: compare at least one image of each folder")
        with Screen(console).bars() as bars:
            progress = CorpusProgress(bars)
            a, b = (
                _look(path, options.n, options.out / "corpora", progress)
                for path in (options.a, options.b)
            )
        write_table(options.out / "drift.csv", COLUMNS, compare(a, b))
    except UserError as error:
        print(f"wallclock: {error}", file=sys.stderr)
        return 1
    print_drift(read_table(options.out / "drift.csv"), console)
    return 0


def _look(path: Path, n: int, cache: Path, progress: Callable[[int, int, str], None]) -> ImageStats:
    made = folder.prepare(CorpusSpec("folder", path=str(path), sample=True), n, cache, progress)
    return corpus_stats.measure(manifests.load(Path(made.manifest)).first(made.n))


def compare(a: ImageStats, b: ImageStats) -> list[dict[str, object]]:
    """A row a measure, then a row a format with its share of the images in place of the medians."""
    n, m = (len(traits.values["kb"]) for traits in (a, b))
    rows = [_measure_row(name, a.values[name], b.values[name]) for name in MEASURES]
    for name in sorted({*a.formats, *b.formats}):
        rows.append(_share_row(name, a.formats.get(name, 0) / n, b.formats.get(name, 0) / m, n, m))
    end = {"a_images": n, "b_images": m, "origin": "measured", "status": "ok", "reason": ""}
    return [{**dict.fromkeys(COLUMNS), **row, **end} for row in rows]


def _measure_row(name: str, a: Sequence[float], b: Sequence[float]) -> dict[str, object]:
    found = {
        f"{whose}_p{q}": quantile(values, q / 100)
        for whose, values in (("a", a), ("b", b))
        for q in (50, 90)
    }
    shift, tail = (
        found[f"b_p{q}"] / found[f"a_p{q}"] - 1 if found[f"a_p{q}"] else math.inf for q in (50, 90)
    )
    ks, limit = kolmogorov_smirnov(a, b), _limit(len(a), len(b))
    far = max(abs(shift), abs(tail)) >= _NOTICEABLE
    if ks > limit and far:
        verdict = f"drifted: median {shift:+.0%}, p90 {tail:+.0%}"
    elif ks > limit:
        verdict = "differs, too little to matter"
    else:
        verdict = "no drift"
    return {
        **found,
        "measure": name,
        "shift": shift,
        "ks": ks,
        "ks_limit": limit,
        "verdict": verdict,
    } | {"drifted": ks > limit and far}


def _share_row(name: str, a: float, b: float, n: int, m: int) -> dict[str, object]:
    """Of two values, the Kolmogorov-Smirnov statistic is the difference of the shares."""
    limit = _limit(n, m)
    drifted = abs(b - a) > limit and abs(b - a) >= _NOTICEABLE_SHARE
    row = {
        "measure": f"share of {name}",
        "a_p50": a,
        "b_p50": b,
        "shift": b - a,
        "ks": abs(b - a),
        "ks_limit": limit,
    }
    verdict = f"drifted: {a:.0%} to {b:.0%} of the images" if drifted else "no drift"
    return {**row, "drifted": drifted, "verdict": verdict}


def _limit(n: int, m: int) -> float:
    """The value that the statistic of two equal folders passes with probability alpha (Smirnov 1939, large samples)."""
    return math.sqrt(-math.log(_ALPHA / 2) / 2 * (n + m) / (n * m))


def print_drift(rows: Sequence[dict[str, str]], console: Console) -> None:
    """Print drift.csv, what drifted in colour, and one line that sums it up."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in (
        "",
        "A median",
        "A p90",
        "B median",
        "B p90",
        "shift",
        "KS",
        "limit",
        "verdict",
    ):
        table.add_column(heading, justify="left" if heading in ("", "verdict") else "right")
    for row in rows:
        words = [digits(row[name]) for name in ("a_p50", "a_p90", "b_p50", "b_p90")]
        words = [
            row["measure"],
            *words,
            f"{float(row['shift']):+.1%}",
            digits(row["ks"]),
            digits(row["ks_limit"]),
        ]
        style = "bold red" if row["drifted"] == "yes" else None
        table.add_row(*(Text(word) for word in (*words, row["verdict"].split(":")[0])), style=style)
    console.print(table)
    drifted = [row["measure"] for row in rows if row["drifted"] == "yes"]
    said = f"{rows[0]['a_images']} images of A, {rows[0]['b_images']} of B: "
    console.print(
        Text(said + (f"drift in {', '.join(drifted)}" if drifted else "no drift"), style="bold")
    )


if __name__ == "__main__":
    sys.exit(main())
