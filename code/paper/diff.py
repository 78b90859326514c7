"""Two regenerated folders compared, in what both of them ran: what must be equal, what may vary.

Measured columns (times, rates, shares, memory) may differ by a tolerance that the caller gives;
computed ones (PSNR, cosine) by rounding only; all others describe what was measured, and must be
equal to the letter. A table or a row that one folder did not run is counted and not compared.
"""

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.common import columns
from experiments.fast import cells as fast
from experiments.opt import cells as opt
from experiments.t4 import cells as t4
from harness.csvfile import read_columns, read_table
from harness.drawing.format import count_noun
from paper import claims
from wallclock.errors import UsageError, UserError

if TYPE_CHECKING:
    import pandas as pd

#: Verdicts, which only restate other tables, and recorded spans, which differ from run to run.
SKIPPED = frozenset({claims.CSV, t4.TIMELINE_CSV, opt.TIMELINE_CSV, fast.TIMELINE_CSV})
#: Relative difference of the same computation on another machine.
COMPUTED_TOLERANCE = 1e-3
#: A share, or a stage's share of the wall time, below this is noise, however large the ratio.
NOISE_FLOOR = 0.01

_MEASURED_COLUMN = re.compile(
    r"^ratio|(_s|_ms|_share|_per_s|_per_100k|_per_call)$"
    r"|(_min|_max|_difference|_[mg]ib)$"
    r"|^(gpu_util_mean|gpu_power_w|sm_clock_mhz|cpu_cores_used|usd_per_million)$"
    r"|^(utilization|utilization_all_walls|slowdown|crossover_batch|workers_needed)$"
)
_FRACTION_COLUMN = re.compile(r"(_share|_difference)$")
_COMPUTED_COLUMNS = frozenset({"psnr_db", "cosine", "cosine_min"})
#: In the name of a measured value: its unit, a statistic, or what it is.
_MEASURED_WORDS = frozenset(
    columns(
        "s ms us ns kb mb gb mib gib mhz w px db megapixels per usd hours share n",
        "min max mean median used cosine error efficiency utilization speedup vs ratio gain",
    )
)
#: Settings whose names carry a unit, too.
_SETTINGS_WITH_UNIT = frozenset(columns("service_ms service_ms_per_image latency_bound_ms"))
#: What a row says of itself, and what it found out about the run.
_REMARKS = frozenset(
    columns(
        "origin status reason note gate repeats steady library settings provider attention",
        "limited_by throttle_reasons other_variants other_cores calm_repeats level next next_close",
        "read_back sink_checked neighbours_kept knee largest_in_bound workers_needed",
    )
)
#: A row with one of these was not run: here it cannot be.
_NOT_RUN = ("unavailable", "not applicable")


@dataclass(frozen=True)
class Difference:
    """One difference between two folders. `row` and `column` are empty for a complete table."""

    csv: str
    row: str
    column: str
    a: str
    b: str


@dataclass
class Comparison:
    """What differs, and in a line for each what only one folder ran."""

    differences: list[Difference] = field(default_factory=list)
    one_sided: list[str] = field(default_factory=list)
    #: Tables and rows that both folders have a result for.
    n_tables: int = 0
    n_rows: int = 0


def compare(dir_a: Path, dir_b: Path, tolerance: float) -> Comparison:
    """Compare the tables of two folders, in the order of their names.

    `tolerance`: how far two measured numbers may lie apart, relative to the larger one. Raises
    UserError if a folder is missing or holds no tables, they have none in common, or a table is
    damaged.
    """
    names_a, names_b = _tables(dir_a), _tables(dir_b)
    if not names_a & names_b:
        raise UserError(f"{dir_a} and {dir_b} have no table in common: there is nothing to compare")
    result = Comparison()
    for side, names in (("A", names_a - names_b), ("B", names_b - names_a)):
        if names:
            tables = f"{count_noun(len(names), 'table')} only in {side}"
            result.one_sided.append(f"{tables}: {', '.join(sorted(names))}")
    for name in sorted(names_a & names_b):
        _compare_tables(name, dir_a / name, dir_b / name, tolerance, result)
    return result


def _tables(folder: Path) -> set[str]:
    names = {path.name for path in folder.glob("*.csv")} - SKIPPED
    if not names:
        raise UsageError(f"no tables in {folder}; give a folder that a run wrote, such as data/")
    return names


def _compare_tables(
    name: str, path_a: Path, path_b: Path, tolerance: float, result: Comparison
) -> None:
    import pandas as pd

    a, b = _frame(path_a), _frame(path_b)
    result.differences += _unlike_columns(name, _columns(a), _columns(b))
    columns = [column for column in _columns(a) if column in b]
    keys = _keys(a[columns], b[columns])
    rows_a, rows_b = _matched(a, b, keys)
    only = {"A": len(a) - len(rows_a), "B": len(b) - len(rows_b)}
    # As many rows as both have, in one order.
    a, b = a.iloc[rows_a].reset_index(drop=True), b.iloc[rows_b].reset_index(drop=True)
    if "status" in columns:
        lacks_a, lacks_b = a["status"].isin(_NOT_RUN), b["status"].isin(_NOT_RUN)
        only["A"] += int((~lacks_a & lacks_b).sum())
        only["B"] += int((lacks_a & ~lacks_b).sum())
        ran = ~lacks_a & ~lacks_b
        a, b = a[ran], b[ran]
    words = [f"{count_noun(n, 'row')} only in {side}" for side, n in only.items() if n]
    if words:
        result.one_sided.append(f"{name}: {', '.join(words)}")
    if len(a):
        result.n_tables += 1
        result.n_rows += len(a)
    labels = pd.Series([_label(rows_a[row] + 1, a.loc[row], keys) for row in a.index], a.index)
    alike = a["status"] == b["status"] if "status" in columns else pd.Series(True, a.index)
    for column in columns:
        # Of a result that one side alone has, its status says enough.
        rows = slice(None) if column == "status" else alike
        cells = a[rows], b[rows], labels[rows]
        result.differences += _unlike_cells(name, column, *cells, tolerance)


def _frame(path: Path) -> "pd.DataFrame":
    """A table as text, cell by cell."""
    import pandas as pd

    return pd.DataFrame(read_table(path), columns=read_columns(path), dtype=object)


def _columns(frame: "pd.DataFrame") -> list[str]:
    return [str(column) for column in frame.columns]


def _unlike_columns(name: str, a: Sequence[str], b: Sequence[str]) -> list[Difference]:
    one_sided = sorted({*a} ^ {*b})
    if not one_sided and a != b:
        return [Difference(name, "", "", "columns in one order", "in another")]
    sides = (("present", "missing"), ("missing", "present"))
    return [Difference(name, "", column, *sides[column in b]) for column in one_sided]


def _keys(a: "pd.DataFrame", b: "pd.DataFrame") -> list[str]:
    """The columns that name a table's rows: of its settings, the fewest that tell them apart.

    A setting that is the same in all rows is none: it must be equal, and may differ. Where settings
    do not suffice, the number of images does.
    """
    named = [column for column in _columns(a) if column == "n" or _is_setting(column)]
    settings = [column for column in named if f"{column}_min" not in a]
    images = ["n_images"] if "n_images" in a else []
    keys: list[str] = []
    for column in (*settings, *images):
        if _n_told(a, b, [*keys, column]) != _n_told(a, b, keys):
            keys.append(column)
    # A later one may tell apart what an earlier one did: of a loader the images, not its variant.
    for column in keys[1:]:
        others = [key for key in keys if key != column]
        if _n_told(a, b, others) == _n_told(a, b, keys):
            keys = others
    return keys


def _n_told(a: "pd.DataFrame", b: "pd.DataFrame", columns: list[str]) -> list[int]:
    """How many rows of each table these columns tell apart."""
    if not columns:
        return [min(len(a), 1), min(len(b), 1)]
    return [len(frame[columns].drop_duplicates()) for frame in (a, b)]


def _matched(
    a: "pd.DataFrame", b: "pd.DataFrame", keys: Sequence[str]
) -> tuple[list[int], list[int]]:
    """The numbers of the rows that have the same keys in both, in A's order; the first is 0.

    Of rows with equal keys the first of A goes with the first of B, and so on.
    """
    import pandas as pd

    indices = []
    for frame in (a, b):
        named = frame[list(keys)]
        place = named.groupby(list(keys)).cumcount() if keys else pd.Series(range(len(frame)))
        indices.append(pd.MultiIndex.from_frame(named.assign(place=place)))
    in_b = indices[1].get_indexer(indices[0])
    pairs = [(row, int(other)) for row, other in enumerate(in_b) if other >= 0]
    return [row for row, _ in pairs], [other for _, other in pairs]


def _label(number: int, row: "pd.Series[str]", keys: Sequence[str]) -> str:
    """A row's number in A and what names it: `2 opencv`; of a single row the first two settings."""
    facts = [name for name in row.index if row[name] and not _varies(name, row.index)]
    named = keys or facts[:2]
    return " ".join([str(number), *(row[column] for column in named if row[column])])


def _varies(column: str, columns: Container[str]) -> bool:
    """Whether a column was measured: by its name, or as the lowest repeat stands beside it."""
    if column in _COMPUTED_COLUMNS or f"{column}_min" in columns:
        return True
    return _MEASURED_COLUMN.search(column) is not None


def _unlike_cells(
    name: str,
    column: str,
    a: "pd.DataFrame",
    b: "pd.DataFrame",
    labels: "pd.Series[str]",
    tolerance: float,
) -> Iterator[Difference]:
    """The cells of a column that differ; one difference for all rows where it is the same."""
    unlike = a[column] != b[column]
    if _varies(column, a):
        unlike &= ~_is_close(column, a, b, tolerance)
    pairs = list(zip(a[column][unlike], b[column][unlike], strict=True))
    if len(pairs) == len(a) > 1 and len({*pairs}) == 1:
        yield Difference(name, f"all {len(pairs)} rows", column, *pairs[0])
        return
    for label, (x, y) in zip(labels[unlike], pairs, strict=True):
        yield Difference(name, label, column, x, y)


def _is_close(
    column: str, a: "pd.DataFrame", b: "pd.DataFrame", tolerance: float
) -> "pd.Series[bool]":
    """Whether the numbers of a column lie within the tolerance; no text and no empty cell does."""
    x, y = _numbers(a, column), _numbers(b, column)
    relative = COMPUTED_TOLERANCE if column in _COMPUTED_COLUMNS else tolerance
    largest = np.fmax(x.abs(), y.abs())
    margin = np.fmax(relative * largest, _floor(column, a, b))
    return ((x - y).abs() <= margin) & np.isfinite(largest)


def _floor(column: str, a: "pd.DataFrame", b: "pd.DataFrame") -> "pd.Series[float] | float":
    """The difference below which a number is noise, in its own unit; 0 where there is none."""
    if _FRACTION_COLUMN.search(column):
        return NOISE_FLOOR
    is_seconds = column.endswith("_s") and not column.endswith("_per_s")
    if is_seconds and "wall_s" in a and "wall_s" in b:
        walls = _numbers(a, "wall_s"), _numbers(b, "wall_s")
        return NOISE_FLOOR * walls[0].where(walls[0] > walls[1], walls[1])
    return 0.0


def _numbers(frame: "pd.DataFrame", column: str) -> "pd.Series[float]":
    import pandas as pd

    return pd.to_numeric(frame[column], errors="coerce").astype(float)


def _is_setting(column: str) -> bool:
    """Whether a column says what was run, not what was measured."""
    if column in _SETTINGS_WITH_UNIT:
        return True
    return column not in _REMARKS and _MEASURED_WORDS.isdisjoint(column.split("_"))
