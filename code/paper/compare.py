"""`python -m paper.compare --a FILE --b FILE`: are these the same vectors? Also compare.csv.

The gate of a changed job, or of a shadow run: two files of vectors, matched by id. A vector is
misplaced if another id's vector in B is nearer to it than its own by more than the vectors differ
otherwise, as after two ids were swapped; those with the lowest cosines are tested. Recall is the
share of a vector's nearest neighbours in A that are among its nearest in B.
"""

import argparse
import struct
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.text import Text

from harness import provenance
from paper.csvfile import read_table, write_table
from paper.format import EMPTY
from paper.terminal import print_table
from wallclock.errors import UserError, check_name, first_line
from wallclock.stages import sinks
from wallclock.stages.sinks import Vectors
from wallclock.summary import (
    NEIGHBOURS,
    ROUNDING,
    Indices,
    cosine,
    neighbours_kept,
    row_blocks,
    unit_length,
)

#: Exit status where a measure is outside its limit.
OUTSIDE = 3
COLUMNS = ("measure", "value", "limit", "within", "n", "ids", "a_vectors", "b_vectors", "dim")
#: Measure → the default of its limit: the most that may be, or for a float the least.
LIMITS: dict[str, int | float] = {
    **{"missing in A": 0, "missing in B": 0, "duplicates": 0, "invalid": 0, "misplaced": 0},
    **{"cosine p50": 0.9999, "cosine p1": 0.999, "cosine min": 0.99, "recall@10": 0.95},
}
#: Ids that a cell and the terminal name; vectors that are tested for another's place.
_NAMED, _SHOWN, _SUSPECTS = 10, 2, 1000
#: Rows of a block, for cosines in float64.
_ROWS = 1 << 14

#: What the readers of the formats raise for a file that is something else.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, lmdb.Error)

#: A measure's value, the ids that it is about, and of how many vectors it is.
_Found = tuple[float | None, Sequence[str], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two files; 0 within all limits, 3 outside one, 1 if the request cannot be met."""
    parser = argparse.ArgumentParser(prog="python -m paper.compare", description=__doc__)
    parser.add_argument(
        "--a", type=Path, required=True, help="vectors.parquet, .lmdb, .npy or .jsonl"
    )
    parser.add_argument("--b", type=Path, required=True, help="the vectors to judge")
    for name, limit in LIMITS.items():
        most = "at most" if isinstance(limit, int) else "at least"
        flag = "--" + name.replace(" ", "-").replace("@", "-").lower()
        parser.add_argument(
            flag, type=type(limit), default=limit, dest=name, help=f"{most} (default {limit})"
        )
    n_help = "vectors whose neighbours are compared, a seeded sample (default 2000)"
    parser.add_argument("--queries", type=int, default=2000, help=n_help)
    parser.add_argument("--out", type=Path, default=provenance.ROOT / "data")
    options = parser.parse_args(arguments)
    path = options.out / "compare.csv"
    try:
        if options.queries < 1:
            raise UserError(f"--queries {options.queries}: give at least one")
        limits = {name: getattr(options, name) for name in LIMITS}
        rows = compare(read(options.a), read(options.b), limits, options.queries)
        write_table(path, COLUMNS, rows)
    except UserError as error:
        print(f"wallclock: {error}", file=sys.stderr)
        return 1
    print_comparison(read_table(path), Console())
    return 0 if all(row["within"] for row in rows) else OUTSIDE


def read(path: Path) -> tuple[list[str], Vectors]:
    """n ids and (n, dim) vectors of a sink's file. Raises UserError: none, or not such a file."""
    if not path.exists():
        raise UserError(f"{path} does not exist; give a file of vectors")
    check_name(path.suffix[1:], sinks.SINKS, "format of vectors")
    try:
        ids, vectors = sinks.read(path)
        vectors = np.asarray(vectors, dtype=np.float32)
    except _UNREADABLE as error:
        raise UserError(f"{path} cannot be read as ids and vectors: {first_line(error)}") from error
    if vectors.ndim != 2 or len(ids) != len(vectors):
        raise UserError(f"{path} has {len(ids):,} ids and vectors of shape {vectors.shape}")
    return ids, vectors


def compare(
    a: tuple[Sequence[str], Vectors],
    b: tuple[Sequence[str], Vectors],
    limits: Mapping[str, float] = LIMITS,
    queries: int = 2000,
) -> list[dict[str, object]]:
    """A row for each measure of `LIMITS`, with the ids that it is about, the worst first.

    Of an id that a file has more than once, the first vector is compared. Raises UserError where
    the files have no id in common, or vectors of different lengths.
    """
    dims = [vectors.shape[1] for _, vectors in (a, b)]
    if dims[0] != dims[1]:
        raise UserError(f"vectors of A have {dims[0]} components, of B {dims[1]}: give like files")
    rows_a, rows_b = ({n: i for i, n in reversed([*enumerate(ids)])} for ids, _ in (a, b))
    common = np.array(sorted(rows_a.keys() & rows_b.keys()), dtype=object)
    if not len(common):
        raise UserError("A and B have no id in common; are they of the same images?")
    ours, theirs = ([rows[name] for name in common] for rows in (rows_a, rows_b))
    valid = _valid(a[1])[ours] & _valid(b[1])[theirs]
    twice = [n for ids, _ in (a, b) for n, count in Counter(ids).items() for _ in range(count - 1)]
    counted: dict[str, tuple[Collection[str], int]] = {
        "missing in A": (rows_b.keys() - rows_a, len(rows_b)),
        "missing in B": (rows_a.keys() - rows_b, len(rows_a)),
        "duplicates": (twice, len(a[0]) + len(b[0])),
        "invalid": (common[~valid], len(common)),
    }
    found: dict[str, _Found] = {k: (len(v), sorted(v), n) for k, (v, n) in counted.items()}
    if valid.any():
        pair = a[1][ours][valid], b[1][theirs][valid]
        found |= _closeness(common[valid], *pair, queries)
    rows = []
    for name, limit in limits.items():
        value, named, n = found.get(name, (None, [], 0))
        most = isinstance(LIMITS[name], int)
        # What could not be measured is not within its limit.
        within = value is not None and (value <= limit if most else value >= limit)
        cells = (name, value, limit, within, n, "; ".join(named[:_NAMED]))
        about = (len(a[0]), len(b[0]), dims[0])
        rows.append(dict(zip(COLUMNS, (*cells, *about), strict=True)))
    return rows


def _valid(vectors: Vectors) -> npt.NDArray[np.bool_]:
    """Which vectors have a direction: no NaN, no infinity, not all zeros."""
    return np.logical_and(np.isfinite(vectors).all(axis=1), vectors.any(axis=1))


def _closeness(ids: Any, a: Vectors, b: Vectors, queries: int) -> dict[str, _Found]:
    """The measures of n aligned vectors, which it overwrites; `ids`: an array of n."""
    n = len(ids)
    cosines = np.concatenate(
        [cosine(a[at : at + _ROWS], b[at : at + _ROWS]) for at in range(0, n, _ROWS)]
    )
    a, b = unit_length(a), unit_length(b)
    worst, (p1, p50) = np.argsort(cosines, kind="stable"), np.quantile(cosines, (0.01, 0.5))
    tested = worst[:_SUSPECTS]
    moved = list(_misplaced(a, b, tested, 2 * (1 - p50) + ROUNDING))
    sample = np.sort(np.random.default_rng(0).permutation(n)[:queries])
    kept, lost = _neighbours_kept(a, b, sample)
    named = [f"{ids[i]} ({cosines[i]:.6g})" for i in worst[:_NAMED]]
    return {
        "misplaced": (len(moved), [f"{ids[i]} (as {ids[j]})" for i, j in moved], len(tested)),
        "cosine p50": (float(p50), [], n),
        "cosine p1": (float(p1), [], n),
        "cosine min": (float(cosines[worst[0]]), named, n),
        "recall@10": (kept, [ids[i] for i in lost[:_NAMED]], len(sample)),
    }


def _misplaced(a: Vectors, b: Vectors, rows: Indices, noise: float) -> Iterator[tuple[int, int]]:
    """Rows that are nearer to another row of b than to their own by over `noise`, and that row."""
    for block in row_blocks(rows, len(a)):
        similar = a[block] @ b.T
        nearest = similar.argmax(axis=1)
        at = np.arange(len(block))
        for i in np.flatnonzero(similar[at, nearest] > similar[at, block] + noise):
            yield int(block[i]), int(nearest[i])


def _neighbours_kept(a: Vectors, b: Vectors, rows: Indices) -> tuple[float, Indices]:
    """The mean share of each row's nearest neighbours in a that b keeps; rows, the worst first."""
    k = min(NEIGHBOURS, len(a) - 1)
    if not k:
        return 1.0, rows[:0]
    every = neighbours_kept(a, b, rows, k)
    order = np.argsort(every, kind="stable")
    return float(every.mean()), rows[order[every[order] < 1]]


def print_comparison(rows: Sequence[dict[str, str]], console: Console) -> None:
    """Print compare.csv, what is outside its limit in colour, and one line that sums it up."""
    lines = []
    for row in rows:
        sign = "≤" if isinstance(LIMITS[row["measure"]], int) else "≥"
        first = "; ".join(row["ids"].split("; ")[:_SHOWN])
        cells = (row["measure"], row["value"] or EMPTY, f"{sign} {row['limit']}", row["n"], first)
        style = "bold red" if row["within"] == "no" else ""
        lines.append([Text(cell, style) for cell in cells])
    numbers = ("value", "limit", "of")
    print_table(("", *numbers, "ids"), lines, console, right=numbers)
    outside = [row for row in rows if row["within"] == "no"]
    named = ", ".join(f"{row['measure']} {row['value'] or 'not measured'}" for row in outside)
    vectors = f"{int(rows[0]['a_vectors']):,} vectors of A, {int(rows[0]['b_vectors']):,} of B"
    verdict = f"outside the limits: {named}" if outside else "within all limits"
    console.print(Text(f"{vectors}: {verdict}", style="bold"))


if __name__ == "__main__":
    sys.exit(main())
