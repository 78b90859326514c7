"""How good the predictions of all reference runs were, pooled: what intervals are made from.

    python -m paper.accuracy [--write]

It reads the reference runs' tables, which `make check` rebuilds from their records, and prints how
good the predictions were; with --write it writes data/reference/accuracy.csv. The errors within
which nine of ten lay are constants of `wallclock.predict.intervals`, which a test compares.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.diagnose import cells as diagnose
from experiments.predict import accuracy
from experiments.predict import cells as predict
from harness import provenance
from harness.drawing.format import percent
from harness.table import Row, read_table, write_table
from wallclock.errors import UserError

REFERENCES = provenance.ROOT / "data" / "reference"
PATH = REFERENCES / "accuracy.csv"
#: Table → what reads its outcomes.
_READERS = {predict.CSV: predict.outcomes, diagnose.PREDICTIONS_CSV: diagnose.outcomes}


def pooled() -> list[dict[str, object]]:
    """A row for all predictions of the reference runs, then one for each experiment or kind.

    Raises UserError if a table is damaged.
    """
    outcomes: list[accuracy.Outcome] = []
    for path in tables():
        outcomes += _READERS[path.name](read_table(path))
    return accuracy.rows(outcomes)


def tables() -> list[Path]:
    """The reference runs' tables of predictions."""
    return [path for name in _READERS for path in sorted(REFERENCES.glob(f"*/{name}"))]


def describe(row: Row) -> str:
    """A row of an accuracy table in words, for a page or a document; empty without a gain."""
    if not row["gain_error_median"]:
        return ""
    n = f"n = {row['n_gains']}"
    if row["n_decided_by_sleep"]:
        n += f", without {row['n_decided_by_sleep']} that the mock's sleep decides"
    parts = [
        f"predicted gains were off by {percent(row['gain_error_median'])} in the median and "
        f"{percent(row['gain_error_worst'])} at worst ({n})"
    ]
    for what, noun in (("changes", "direction"), ("bottleneck", "bottleneck")):
        if row[f"{what}_right_share"]:
            share = _share_in_words(row, f"{what}_right_share")
            n = row["n_changes" if what == "changes" else "n_bottlenecks"]
            parts.append(f"the {noun} was right in {share} of {n}")
    if row["skill_unchanged"]:
        parts.append(f"skill over 'nothing changes' {_with_interval(row, 'skill_unchanged')}")
    return "; ".join(parts)


def _share_in_words(row: Row, name: str) -> str:
    low, high = (percent(row[f"{name}_{end}"], 0) for end in ("low", "high"))
    return f"{percent(row[name], 0)} [{low}, {high}]"


def _with_interval(row: Row, name: str) -> str:
    text = f"{row[name]:.2f}"
    if not row[f"{name}_low"]:
        return text
    low, high = (row[f"{name}_{end}"] for end in ("low", "high"))
    return f"{text} [{low:.2f}, {high:.2f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 1 for a table that is damaged, or a full disk."""
    parser = argparse.ArgumentParser(prog="python -m paper.accuracy")
    parser.add_argument("--write", action="store_true", help=f"write {PATH}")
    try:
        if parser.parse_args(arguments).write:
            PATH.parent.mkdir(parents=True, exist_ok=True)
            write_table(PATH, accuracy.COLUMNS, pooled())
        print(describe(read_table(PATH)[0]))
    except UserError as error:
        print(f"paper.accuracy: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
