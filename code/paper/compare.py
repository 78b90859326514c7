"""`python -m paper.compare --a FILE --b FILE`: are these the same vectors? Also compare.csv.

The gate of a changed job, or of a shadow run: two files of vectors, matched by id. A vector is
misplaced if another id's vector in B is nearer to it than its own by more than the vectors differ
otherwise, as after two ids were swapped; those with the lowest cosines are tested. Recall is the
share of a vector's nearest neighbours in A that are among its nearest in B.
"""

import argparse
import struct
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.text import Text

from harness import provenance, sinks
from harness.drawing.format import EMPTY
from harness.measures import NEIGHBOURS, neighbours_kept
from harness.sinks import Vectors
from harness.table import Row, cell_of, read_table, write_table
from paper.terminal import print_table
from paper.usage import OneLineParser
from wallclock.errors import UsageError, UserError, check_name, first_line
from wallclock.outside import guard_screen
from wallclock.summary import Indices, cosine, misplaced, unit_length

if TYPE_CHECKING:
    import pandas as pd

#: Exit status where a measure is outside its limit.
OUTSIDE = 3
COLUMNS = ("measure", "value", "limit", "within", "n", "ids", "a_vectors", "b_vectors", "dim")
#: Measure → the default of its limit: the most that may be, or for a float the least.
LIMITS: dict[str, int | float] = {
    "missing in A": 0,
    "missing in B": 0,
    "duplicates": 0,
    "invalid": 0,
    "misplaced": 0,
    "cosine p50": 0.9999,
    "cosine p1": 0.999,
    "cosine min": 0.99,
    "recall@10": 0.95,
}
#: At most so many ids are in a cell of compare.csv, and on a line of the terminal.
_IDS_IN_CELL = 10
_IDS_ON_LINE = 2
#: Vectors that are tested for another's place.
_SUSPECTS = 1000
#: Rows of a block, for cosines in float64.
_BLOCK_ROWS = 1 << 14

#: What the readers of the formats raise for a file that is something else.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, lmdb.Error)


@dataclass(frozen=True)
class _Measure:
    """What one measure of `LIMITS` came to."""

    #: None where nothing could be measured.
    value: float | None = None
    #: The ids that it is about, the worst first.
    ids: Sequence[str] = ()
    #: Of how many vectors it is.
    n: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two files; 0 within all limits, 3 outside one, 1 or 2 (mistyped) if it cannot be."""
    guard_screen()
    options = _parser().parse_args(arguments)
    path = options.out / "compare.csv"
    try:
        if options.queries < 1:
            raise UsageError(f"--queries {options.queries}: give at least one")
        limits = {name: getattr(options, name) for name in LIMITS}
        rows = compare(read(options.a), read(options.b), limits, options.queries)
        write_table(path, COLUMNS, rows)
    except UserError as error:
        print(f"wallclock: {error}", file=sys.stderr)
        return error.status
    print_comparison(read_table(path), Console())
    return 0 if all(row["within"] for row in rows) else OUTSIDE


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="python -m paper.compare", description=__doc__)
    parser.add_argument(
        "--a", type=Path, required=True, help="vectors.parquet, .lmdb, .npy or .jsonl"
    )
    parser.add_argument("--b", type=Path, required=True, help="the vectors to judge")
    for name, limit in LIMITS.items():
        flag = "--" + name.replace(" ", "-").replace("@", "-").lower()
        bound = "at most" if isinstance(limit, int) else "at least"
        meaning = f"{bound} (default {limit})"
        parser.add_argument(flag, type=type(limit), default=limit, dest=name, help=meaning)
    queries_help = "vectors whose neighbours are compared, a seeded sample (default 2000)"
    parser.add_argument("--queries", type=int, default=2000, help=queries_help)
    parser.add_argument("--out", type=Path, default=provenance.ROOT / "data")
    return parser


def read(path: Path) -> tuple[list[str], Vectors]:
    """n ids and (n, dim) vectors of a sink's file. Raises UserError: none, or not such a file."""
    if not path.exists():
        raise UsageError(f"{path} does not exist; give a file of vectors")
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
    ids_a, vectors_a = a
    ids_b, vectors_b = b
    dim, dim_b = vectors_a.shape[1], vectors_b.shape[1]
    if dim != dim_b:
        raise UserError(f"vectors of A have {dim} components, of B {dim_b}: give like files")
    joined, repeated = _join(ids_a, ids_b)
    in_both = joined[joined["side"] == "both"].astype({"row_a": int, "row_b": int})
    if in_both.empty:
        raise UserError("A and B have no id in common; are they of the same images?")
    common, order_a, order_b = (in_both[name].to_numpy() for name in ("id", "row_a", "row_b"))
    missing_a = joined["id"][joined["side"] == "right_only"]
    missing_b = joined["id"][joined["side"] == "left_only"]
    valid = _valid(vectors_a)[order_a] & _valid(vectors_b)[order_b]
    measures = {
        "missing in A": _count_ids([*missing_a], len(common) + len(missing_a)),
        "missing in B": _count_ids([*missing_b], len(common) + len(missing_b)),
        "duplicates": _count_ids(repeated, len(ids_a) + len(ids_b)),
        "invalid": _count_ids(common[~valid], len(common)),
    }
    if valid.any():
        aligned_a = vectors_a[order_a][valid]
        aligned_b = vectors_b[order_b][valid]
        measures |= _closeness(common[valid], aligned_a, aligned_b, queries)
    rows: list[dict[str, object]] = []
    for name, limit in limits.items():
        measure = measures.get(name, _Measure())
        row = {
            "measure": name,
            "value": measure.value,
            "limit": limit,
            "within": _is_within(name, measure.value, limit),
            "n": measure.n,
            "ids": "; ".join(measure.ids[:_IDS_IN_CELL]),
            "a_vectors": len(ids_a),
            "b_vectors": len(ids_b),
            "dim": dim,
        }
        rows.append(row)
    return rows


def _join(ids_a: Sequence[str], ids_b: Sequence[str]) -> tuple["pd.DataFrame", list[str]]:
    """The ids of both, sorted, with the first row of each; and each id that stands again.

    Columns: `id`; `row_a` and `row_b`, empty where that side lacks it; `side`: left_only (A),
    right_only or both.
    """
    import pandas as pd

    firsts, repeated = [], []
    for name, ids in (("row_a", ids_a), ("row_b", ids_b)):
        rows = pd.DataFrame({"id": pd.Series(ids, dtype=object), name: range(len(ids))})
        again = rows.duplicated("id")
        repeated += [*rows["id"][again]]
        firsts.append(rows[~again])
    joined = firsts[0].merge(firsts[1], on="id", how="outer", sort=True, indicator="side")
    return joined, repeated


def _count_ids(ids: Collection[str], n: int) -> _Measure:
    return _Measure(len(ids), sorted(ids), n)


def _is_within(name: str, value: float | None, limit: float) -> bool:
    """Whether a measure keeps its limit; one that could not be measured does not."""
    if value is None:
        return False
    return value <= limit if isinstance(LIMITS[name], int) else value >= limit


def _valid(vectors: Vectors) -> npt.NDArray[np.bool_]:
    """Which vectors have a direction: no NaN, no infinity, not all zeros."""
    return np.logical_and(np.isfinite(vectors).all(axis=1), vectors.any(axis=1))


def _closeness(ids: Any, a: Vectors, b: Vectors, queries: int) -> dict[str, _Measure]:
    """The measures of n aligned vectors, which it overwrites; `ids`: an array of n."""
    n = len(ids)
    blocks = [slice(start, start + _BLOCK_ROWS) for start in range(0, n, _BLOCK_ROWS)]
    cosines = np.concatenate([cosine(a[block], b[block]) for block in blocks])
    a, b = unit_length(a), unit_length(b)
    worst = np.argsort(cosines, kind="stable")
    p1, p50 = np.quantile(cosines, (0.01, 0.5))
    suspects = worst[:_SUSPECTS]
    moved = [f"{ids[i]} (as {ids[j]})" for i, j in misplaced(a, b, suspects, float(p50))]
    sample = np.sort(np.random.default_rng(0).permutation(n)[:queries])
    recall, lossy = _neighbours_kept(a, b, sample)
    lowest = [f"{ids[i]} ({cosines[i]:.6g})" for i in worst[:_IDS_IN_CELL]]
    return {
        "misplaced": _Measure(len(moved), moved, len(suspects)),
        "cosine p50": _Measure(float(p50), [], n),
        "cosine p1": _Measure(float(p1), [], n),
        "cosine min": _Measure(float(cosines[worst[0]]), lowest, n),
        "recall@10": _Measure(recall, [ids[i] for i in lossy[:_IDS_IN_CELL]], len(sample)),
    }


def _neighbours_kept(a: Vectors, b: Vectors, rows: Indices) -> tuple[float, Indices]:
    """The mean share of each row's nearest neighbours in a that b keeps; rows, the worst first."""
    k = min(NEIGHBOURS, len(a) - 1)
    if not k:
        return 1.0, rows[:0]
    shares = neighbours_kept(a, b, rows, k)
    order = np.argsort(shares, kind="stable")
    return float(shares.mean()), rows[order[shares[order] < 1]]


def print_comparison(rows: Sequence[Row], console: Console) -> None:
    """Print compare.csv, what is outside its limit in colour, and one line that sums it up."""
    lines = []
    for row in rows:
        sign = "≤" if isinstance(LIMITS[row["measure"]], int) else "≥"
        cells = (
            row["measure"],
            cell_of(row["value"]) or EMPTY,
            f"{sign} {cell_of(row['limit'])}",
            cell_of(row["n"]),
            "; ".join(row["ids"].split("; ")[:_IDS_ON_LINE]),
        )
        style = "bold red" if row["within"] is False else ""
        lines.append([Text(cell, style) for cell in cells])
    numbers = ("value", "limit", "of")
    print_table(("", *numbers, "ids"), lines, console, right=numbers)
    outside = [
        f"{row['measure']} {cell_of(row['value']) or 'not measured'}"
        for row in rows
        if row["within"] is False
    ]
    vectors = f"{rows[0]['a_vectors']:,} vectors of A, {rows[0]['b_vectors']:,} of B"
    verdict = f"outside the limits: {', '.join(outside)}" if outside else "within all limits"
    console.print(Text(f"{vectors}: {verdict}", style="bold"))


if __name__ == "__main__":
    sys.exit(main())
