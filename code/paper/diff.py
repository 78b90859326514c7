"""Two regenerated folders compared: what must be equal, and what may vary.

Measured columns (times, rates, shares, memory) may differ by a tolerance that the caller gives;
computed ones (PSNR, cosine) by rounding only; all others describe what was measured, and must be
equal to the letter.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from experiments import fast, opt, t4
from paper import claims
from paper.csvfile import Row, number, read_columns, read_table
from wallclock.errors import UserError

#: Verdicts, which only restate other tables, and recorded spans, which differ from run to run.
SKIPPED = frozenset({claims.CSV, t4.TIMELINE_CSV, opt.TIMELINE_CSV, fast.TIMELINE_CSV})
#: Relative difference of the same computation on another machine.
COMPUTED_TOLERANCE = 1e-3
#: A share, or a stage's share of the wall time, below this is noise, however large the ratio.
NOISE_FLOOR = 0.01

_MEASURED_COLUMN = re.compile(
    r"^ratio|(_s|_ms|_share|_per_s|_per_100k|_per_call|_without_forward)$"
    r"|(_min|_max|_difference|_[mg]ib)$"
    r"|^(gpu_util_mean|gpu_power_w|sm_clock_mhz|cpu_cores_used|usd_per_million)$"
    r"|^(utilization|utilization_all_walls|slowdown|crossover_batch|workers_needed)$"
)
_FRACTION_COLUMN = re.compile(r"(_share|_without_forward|_difference)$")
_COMPUTED_COLUMNS = frozenset({"psnr_db", "cosine", "cosine_min"})


@dataclass(frozen=True)
class Difference:
    """One difference between two folders. `row` and `column` are empty for a complete table."""

    csv: str
    row: str
    column: str
    a: str
    b: str


def compare(dir_a: Path, dir_b: Path, tolerance: float) -> list[Difference]:
    """Return every difference between the tables of two folders, in the tables' order.

    `tolerance`: how far two measured numbers may lie apart, relative to the larger one. Raises
    UserError if a folder is missing or holds no tables, or a table is damaged.
    """
    names_a, names_b = _tables(dir_a), _tables(dir_b)
    differences: list[Difference] = []
    for name in sorted(names_a | names_b):
        if name in names_a & names_b:
            differences += _compare_tables(name, dir_a / name, dir_b / name, tolerance)
        else:
            differences.append(_one_sided(name, "", name in names_a))
    return differences


def _tables(folder: Path) -> set[str]:
    names = {path.name for path in folder.glob("*.csv")} - SKIPPED
    if not names:
        raise UserError(f"no tables in {folder}; give a folder that a run wrote, such as data/")
    return names


def _one_sided(csv: str, column: str, in_a: bool) -> Difference:
    """A table, or a column of one, that only one folder has."""
    a, b = ("present", "missing") if in_a else ("missing", "present")
    return Difference(csv, "", column, a, b)


def _compare_tables(name: str, path_a: Path, path_b: Path, tolerance: float) -> list[Difference]:
    columns_a, columns_b = read_columns(path_a), read_columns(path_b)
    if columns_a != columns_b:
        one_sided = sorted({*columns_a} ^ {*columns_b})
        if not one_sided:
            return [Difference(name, "", "", "columns in one order", "in another")]
        return [_one_sided(name, column, column in columns_a) for column in one_sided]
    rows_a, rows_b = read_table(path_a), read_table(path_b)
    if len(rows_a) != len(rows_b):
        return [Difference(name, "", "", f"{len(rows_a)} rows", f"{len(rows_b)} rows")]
    return [
        Difference(name, _label(index, a), column, a[column], b[column])
        for index, (a, b) in enumerate(zip(rows_a, rows_b, strict=True), start=1)
        for column in columns_a
        if not _same(column, a, b, tolerance)
    ]


def _label(index: int, row: Row) -> str:
    """A row's number and its first two cells that may not vary: `2 opencv opencv`."""
    fixed = [cell for column, cell in row.items() if cell and not _varies(column)]
    return " ".join([str(index), *fixed[:2]])


def _varies(column: str) -> bool:
    return column in _COMPUTED_COLUMNS or _MEASURED_COLUMN.search(column) is not None


def _same(column: str, a: Row, b: Row, tolerance: float) -> bool:
    if a[column] == b[column]:
        return True
    try:
        x, y = number(a[column]), number(b[column])
    except ValueError:
        return False
    if x is None or y is None or not _varies(column):
        return False
    relative = COMPUTED_TOLERANCE if column in _COMPUTED_COLUMNS else tolerance
    return math.isclose(x, y, rel_tol=relative, abs_tol=_floor(column, a, b))


def _floor(column: str, a: Row, b: Row) -> float:
    """The difference below which a number is noise, in its own unit; 0 where there is none."""
    if _FRACTION_COLUMN.search(column):
        return NOISE_FLOOR
    if column.endswith("_s") and not column.endswith("_per_s") and "wall_s" in a:
        return NOISE_FLOOR * max(number(a["wall_s"]) or 0.0, number(b["wall_s"]) or 0.0)
    return 0.0
