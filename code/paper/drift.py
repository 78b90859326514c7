"""`python -m paper.drift --a DIR --b DIR`: how have a job's images changed? Also drift.csv.

A job without changes of its own slows down when its images grow. Each measure of the two folders is
compared by median and p90, and by the two-sample Kolmogorov-Smirnov statistic: the largest distance
between the two cumulative distributions.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from harness import provenance
from harness.corpora import ProgressHook, folder, image_stats
from harness.corpora import manifest as manifests
from harness.corpora.image_stats import MEASURES, ImageStats
from harness.drawing.format import digits
from harness.measures import quantile
from harness.spec import CorpusSpec
from harness.table import Row, read_table, write_table
from paper.terminal import print_table
from paper.usage import OneLineParser
from wallclock.errors import UsageError, UserError
from wallclock.outside import guard_screen
from wallclock.progress import CorpusProgress, bars

COLUMNS = (
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
    "a_images",
    "b_images",
    "origin",
    "status",
    "reason",
)

#: The statistic of two equal folders exceeds its limit once in a thousand comparisons.
_ALPHA = 0.001
#: Smaller relative differences of medians and p90s, however certain, change no job.
_NOTICEABLE = 0.1
#: The same for a share of the images, absolute.
_NOTICEABLE_SHARE = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two folders; 0 whether or not they differ, 1 or 2 (mistyped) if it cannot be."""
    guard_screen()
    parser = OneLineParser(prog="python -m paper.drift", description=__doc__)
    parser.add_argument("--a", type=Path, required=True, help="the earlier folder")
    parser.add_argument("--b", type=Path, required=True, help="the later folder")
    sample_help = "images per folder, a seeded sample (default 1000)"
    parser.add_argument("--n", type=int, default=1000, help=sample_help)
    parser.add_argument("--out", type=Path, default=provenance.ROOT / "data")
    options = parser.parse_args(arguments)
    console = Console()
    path = options.out / "drift.csv"
    try:
        if options.n < 1:
            raise UsageError(f"--n {options.n}: compare at least one image of each folder")
        with bars(console) as progress_bars:
            progress = CorpusProgress(progress_bars)
            cache = options.out / "corpora"
            a = _measure(options.a, options.n, cache, progress)
            b = _measure(options.b, options.n, cache, progress)
        write_table(path, COLUMNS, compare(a, b))
    except UserError as error:
        print(f"wallclock: {error}", file=sys.stderr)
        return error.status
    print_drift(read_table(path), console)
    return 0


def _measure(path: Path, n: int, cache: Path, progress: ProgressHook) -> ImageStats:
    images = folder.prepare(CorpusSpec("folder", path=str(path), sample=True), n, cache, progress)
    return image_stats.measure(manifests.load(Path(images.manifest)).head(images.n))


def compare(a: ImageStats, b: ImageStats) -> list[dict[str, object]]:
    """A row a measure, then a row a format with its share of the images instead of a median."""
    n_a, n_b = len(a.values["kb"]), len(b.values["kb"])
    # The value that the statistic exceeds with probability alpha (Smirnov 1939, large samples).
    limit = math.sqrt(-math.log(_ALPHA / 2) / 2 * (n_a + n_b) / (n_a * n_b))
    rows = [_measure_row(name, a.values[name], b.values[name], limit) for name in MEASURES]
    for name in sorted({*a.formats, *b.formats}):
        share_a, share_b = a.formats.get(name, 0) / n_a, b.formats.get(name, 0) / n_b
        rows.append(_share_row(name, share_a, share_b, limit))
    common = {
        "ks_limit": limit,
        "a_images": n_a,
        "b_images": n_b,
        "origin": "measured",
        "status": "ok",
        "reason": "",
    }
    return [dict.fromkeys(COLUMNS) | row | common for row in rows]


def kolmogorov_smirnov(a: Sequence[float], b: Sequence[float]) -> float:
    """The largest distance between the cumulative distributions of two samples, 0 to 1.

    Raises ValueError where a sample is empty.
    """
    if len(a) == 0 or len(b) == 0:
        raise ValueError("a sample is empty")
    x, y = np.sort(np.asarray(a, dtype=np.float64)), np.sort(np.asarray(b, dtype=np.float64))
    values = np.concatenate([x, y])
    below_x, below_y = (
        np.searchsorted(sample, values, side="right") / len(sample) for sample in (x, y)
    )
    return float(np.abs(below_x - below_y).max())


def _measure_row(
    name: str, a: Sequence[float], b: Sequence[float], limit: float
) -> dict[str, object]:
    a_p50, a_p90 = quantile(a, 0.5), quantile(a, 0.9)
    b_p50, b_p90 = quantile(b, 0.5), quantile(b, 0.9)
    shift, tail_shift = _relative_shift(a_p50, b_p50), _relative_shift(a_p90, b_p90)
    ks = kolmogorov_smirnov(a, b)
    drifted = ks > limit and max(abs(shift), abs(tail_shift)) >= _NOTICEABLE
    if drifted:
        verdict = f"drifted: median {shift:+.0%}, p90 {tail_shift:+.0%}"
    elif ks > limit:
        verdict = "differs, too little to matter"
    else:
        verdict = "no drift"
    return {
        "measure": name,
        "a_p50": a_p50,
        "a_p90": a_p90,
        "b_p50": b_p50,
        "b_p90": b_p90,
        "shift": shift,
        "ks": ks,
        "drifted": drifted,
        "verdict": verdict,
    }


def _relative_shift(before: float, after: float) -> float:
    return after / before - 1 if before else math.inf


def _share_row(name: str, a: float, b: float, limit: float) -> dict[str, object]:
    """The row of a format that a share `a` of the earlier and `b` of the later images has."""
    # Of two values, the Kolmogorov-Smirnov statistic is the difference of the shares.
    ks = abs(b - a)
    drifted = ks > limit and ks >= _NOTICEABLE_SHARE
    return {
        "measure": f"share of {name}",
        "a_p50": a,
        "b_p50": b,
        "shift": b - a,
        "ks": ks,
        "drifted": drifted,
        "verdict": f"drifted: {a:.0%} to {b:.0%} of the images" if drifted else "no drift",
    }


def print_drift(rows: Sequence[Row], console: Console) -> None:
    """Print drift.csv, what drifted in colour, and one line that sums it up."""
    numbers = ("A median", "A p90", "B median", "B p90", "shift", "KS", "limit")
    lines = []
    for row in rows:
        cells = (
            row["measure"],
            digits(row["a_p50"]),
            digits(row["a_p90"]),
            digits(row["b_p50"]),
            digits(row["b_p90"]),
            f"{row['shift']:+.1%}",
            digits(row["ks"]),
            digits(row["ks_limit"]),
            row["verdict"].split(":")[0],
        )
        style = "bold red" if row["drifted"] else ""
        lines.append([Text(cell, style) for cell in cells])
    print_table(("", *numbers, "verdict"), lines, console, right=numbers)
    drifted = ", ".join(row["measure"] for row in rows if row["drifted"])
    images = f"{rows[0]['a_images']} images of A, {rows[0]['b_images']} of B"
    summary = f"drift in {drifted}" if drifted else "no drift"
    console.print(Text(f"{images}: {summary}", style="bold"))


if __name__ == "__main__":
    sys.exit(main())
