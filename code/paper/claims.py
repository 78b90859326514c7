"""The numbers the paper cites, and what our tables say of each.

A claim names a table, a row of it and a column; a claim of kind `ratio` names a second row to
divide by. A number is judged with the interval of its repeats, from the lowest to the highest. Its
verdict is one of five words:

    held             the interval lies within the claim's tolerance of the paper's number
    differs          it lies outside
    cannot tell      it reaches across the limit, or is of one repeat: more repeats would decide
    not applicable   we have a number, but of a machine that the claim is not about
    not run          we have no number
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from experiments import _paper_values
from paper.csvfile import Row, number, read_table, write_table
from paper.format import signed_percent
from wallclock.errors import UserError

#: The cited numbers, and the table of verdicts that a run writes.
CLAIMS = _paper_values.CLAIMS
CSV = "claims.csv"

HELD = "held"
DIFFERS = "differs"
CANNOT_TELL = "cannot tell"
NOT_APPLICABLE = "not applicable"
NOT_RUN = "not run"
#: In the order in which they are counted and printed.
VERDICTS = (HELD, DIFFERS, CANNOT_TELL, NOT_APPLICABLE, NOT_RUN)
#: Columns of the table of verdicts.
COLUMNS = (
    "id",
    "experiment",
    "csv",
    "row",
    "column",
    "paper_value",
    "unit",
    "ours",
    "ours_min",
    "ours_max",
    "ratio",
    "verdict",
    "reason",
    "statement",
    "note",
)

#: A tolerance includes its end: 0.63 is within 0.05 of 0.58, though not in binary fractions.
_ROUNDING = 1e-9
#: `key=value` pairs; a value runs up to the next key, so it may hold spaces.
_PAIR = re.compile(r"(\w+)=(.*?)(?=\s+\w+=|$)")
#: "Tesla T4", but neither "T400" nor "T4G".
_T4 = re.compile(r"\bT4\b")
#: Cores of the paper's machine: a claim in which the CPU works is about one with as many.
_PAPER_CORES = 16
#: Units of numbers that one repeat settles: sizes in bytes.
_EXACT = ("KB", "MiB", "GiB")
#: Unit → factor from its column: minutes for a million images, from seconds for 100,000.
SCALES = {"min": 10 / 60}


@dataclass(frozen=True)
class Claim:
    """One cited number, the cell that backs it, and how far ours may lie from it."""

    id: str
    experiment: str
    csv: str
    row: str
    #: kind=ratio only: the table and the row of the denominator.
    over_csv: str
    over_row: str
    column: str
    paper_value: float
    unit: str
    #: absolute, share, ratio, or bound (ours is at most the paper's)
    kind: str
    #: any; abo: the paper's images; cuda; t4-gpu: a T4 beside any CPU; t4: a T4 beside
    #: `_PAPER_CORES` cores
    needs: str
    #: Relative to the paper's number, of a share to its smaller part; None for bound.
    tolerance: float | None
    statement: str
    note: str


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim, and the reason in one line."""

    claim: Claim
    ours: float | None
    verdict: str
    reason: str
    ours_min: float | None = None
    ours_max: float | None = None

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's."""
        return None if self.ours is None else self.ours / self.claim.paper_value


class _NoNumberError(Exception):
    """There is no number to judge; the message is the reason."""


def load(path: Path) -> list[Claim]:
    """Read the claims; the tests hold that none contradicts itself."""
    claims = []
    for row in read_table(path):
        values: dict[str, Any] = dict(row)
        values["tolerance"] = number(row["tolerance"])
        values["paper_value"] = float(row["paper_value"])
        claims.append(Claim(**values))
    return claims


def judge(claims: Sequence[Claim], tables_dir: Path) -> list[Verdict]:
    """Return a verdict for each claim, in order, from the tables in `tables_dir`.

    Raises UserError if a table lacks a claim's column, or holds several rows for one claim.
    """
    tables = _MeasuredTables(tables_dir, {claim.csv: claim.experiment for claim in claims})
    return [_judge(claim, tables) for claim in claims]


def write(verdicts: Sequence[Verdict], path: Path) -> None:
    """Write the verdicts as a table with the columns `COLUMNS`."""
    write_table(path, COLUMNS, [_as_row(verdict) for verdict in verdicts])


def cells_of(selector: str) -> list[tuple[str, str]]:
    """Column and value of each cell that a selector names; none for a row's number."""
    return _PAIR.findall(selector)


def select(rows: Sequence[Row], selector: str) -> Row | None:
    """Return the row that `selector` names, None if there is none.

    `3` is the third row; `image_set=original decoder=pil` is the row with those cells.

    Raises ValueError if the selector is neither, or several rows match.
    """
    if selector.isdecimal() and int(selector) > 0:
        return rows[int(selector) - 1] if len(rows) >= int(selector) else None
    cells = cells_of(selector)
    if not cells:
        raise ValueError(f"'{selector}' is neither a row's number nor column=value pairs")
    matching = [row for row in rows if all(row.get(column) == value for column, value in cells)]
    if len(matching) > 1:
        raise ValueError(f"{len(matching)} rows match '{selector}'")
    return matching[0] if matching else None


class _MeasuredTables:
    """The tables of one folder, each read once."""

    def __init__(self, folder: Path, experiments: Mapping[str, str]) -> None:
        self._folder = folder
        self._experiments = experiments
        self._read = cache(read_table)

    def row(self, csv: str, selector: str, default: str) -> Row:
        """The measured row of a claim; `default`: the experiment of a table that no claim owns."""
        command = f"python code/main.py --experiment {self._experiments.get(csv, default)}"
        path = self._folder / csv
        if not path.is_file():
            raise _NoNumberError(f"no {csv}; run {command}")
        try:
            row = select(self._read(path), selector)
        except ValueError as error:
            raise UserError(f"{path}: {error}; delete it and run {command}") from error
        if row is None:
            raise _NoNumberError(f"no row '{selector}' in {csv}; run {command}")
        if row.get("status") != "ok":
            reason = f": {row['reason']}" if row.get("reason") else ""
            raise _NoNumberError(f"{row.get('status') or 'no status'}{reason}")
        if row.get("origin") == "paper":
            raise _NoNumberError(f"the row is the paper's, not a measurement; run {command}")
        return row

    def cores(self, csv: str) -> int:
        """Cores of the machine that measured a table; 0 where its companion does not say."""
        path = (self._folder / csv).with_suffix(".meta.json")
        if not path.is_file():
            return 0
        return int(json.loads(path.read_text(encoding="utf-8"))["machine"]["cores"])


def _judge(claim: Claim, tables: _MeasuredTables) -> Verdict:
    try:
        rows = [tables.row(claim.csv, claim.row, claim.experiment)]
        if claim.kind == "ratio":
            rows.append(tables.row(claim.over_csv, claim.over_row, claim.experiment))
            _check_alike(claim, *rows)
        ours = _ours(claim, rows)
    except _NoNumberError as missing:
        return Verdict(claim, None, NOT_RUN, str(missing))
    obstacle = _obstacle(claim, rows[0], tables.cores(claim.csv))
    if obstacle:
        return Verdict(claim, ours, NOT_APPLICABLE, obstacle)
    low, high = _interval(claim, ours, rows)
    verdict, difference = _compare(claim, ours, low, high)
    if claim.unit not in _EXACT and any(row.get("repeats") == "1" for row in rows):
        verdict, difference = CANNOT_TELL, f"{difference}, but of one repeat"
    reason = "; ".join([difference, *_caveats(claim, rows)])
    return Verdict(claim, ours, verdict, reason, low, high)


def _interval(claim: Claim, ours: float, rows: Sequence[Row]) -> tuple[float, float]:
    """The lowest and highest that the repeats allow; of a ratio, of all pairs of repeats.

    A column without limits of its own, such as seconds for 100,000 images, has the wall time's.
    """
    below, above = _spread(claim.column, rows[0])
    for denominator in rows[1:]:
        low, high = _spread(claim.column, denominator)
        below, above = below / high, above / low
    return ours * below, ours * above


def _spread(column: str, row: Row) -> tuple[float, float]:
    """The lowest and the highest repeat over the value that the row shows; 1, 1 for one repeat."""
    for name in (column, "wall_s"):
        value = number(row.get(name) or "")
        low, high = (number(row.get(f"{name}_{end}") or "") for end in ("min", "max"))
        if value and low and high and not column.endswith("_share"):
            return low / value, high / value
    return 1.0, 1.0


def _check_alike(claim: Claim, numerator: Row, denominator: Row) -> None:
    """A ratio of unlike runs says nothing about either; the CPU's baseline is over the GPU's."""
    columns = ["corpus", "image_set"]
    if claim.experiment != "cpu":
        columns.insert(0, "device")
    for column in columns:
        above, below = numerator.get(column, ""), denominator.get(column, "")
        if above and below and above != below:
            raise _NoNumberError(f"the two rows are of unlike runs: {column} {above} and {below}")


def _ours(claim: Claim, rows: Sequence[Row]) -> float:
    """Our number: the cell of the first row, of a ratio over that of the second."""
    cells = []
    for csv, row in zip((claim.csv, claim.over_csv), rows, strict=False):
        try:
            cells.append(number(row[claim.column]))
        except (KeyError, ValueError) as error:
            cited = f"column {claim.column}, which the claim {claim.id} cites"
            raise UserError(f"{csv}: no number in the {cited}: {error}") from error
    scale = SCALES.get(claim.unit, 1.0)
    values = [scale * cell for cell in cells if cell is not None]
    if len(values) < len(cells):
        raise _NoNumberError(f"the cell {claim.column} is empty")
    if len(values) == 1:
        return values[0]
    numerator, denominator = values
    if denominator == 0:
        raise _NoNumberError(f"cannot divide by a {claim.column} of 0")
    return numerator / denominator


def _obstacle(claim: Claim, row: Row, cores: int) -> str:
    """Why the claim is not about this row's machine; empty if it is."""
    device = row.get("device") or "an unnamed device"
    if claim.needs in ("t4", "t4-gpu") and not _T4.search(device):
        return f"an absolute figure: binds on a Tesla T4 only; here: {device}"
    if claim.needs == "t4" and cores < _PAPER_CORES:
        here = f"here: {cores} of them"
        return f"an absolute figure: binds beside {_PAPER_CORES} cores only; {here}"
    if claim.needs == "abo" and not row.get("corpus", "").startswith("abo"):
        return f"about the paper's images; here: {row.get('corpus')} images"
    if claim.needs == "cuda" and row.get("device_kind") != "cuda":
        return f"needs a CUDA GPU; here: {device}"
    if row.get("weights") == "none":
        return "the forward pass is a mock model without a network (weights=none)"
    return ""


def _compare(claim: Claim, ours: float, low: float, high: float) -> tuple[str, str]:
    """The verdict, and the difference from the paper's number."""
    paper = claim.paper_value
    if claim.tolerance is None:
        lower, upper = float("-inf"), paper
        text = f"{'at most' if ours <= paper else 'above'} {paper:.6g}"
    else:
        # 0.995 and 0.986 are alike as shares; what is left over, 0.005 and 0.014, is not.
        part = min(paper, 1 - paper) if claim.kind == "share" else paper
        margin = claim.tolerance * part + _ROUNDING
        lower, upper = paper - margin, paper + margin
        basis = " of the smaller part" if claim.kind == "share" else ""
        side = "within" if lower <= ours <= upper else "beyond"
        error = signed_percent((ours - paper) / part)
        text = f"{error}{basis}, {side} {100 * claim.tolerance:.3g} %"
    if lower <= low and high <= upper:
        return HELD, text
    if high < lower or upper < low:
        return DIFFERS, text
    return CANNOT_TELL, f"{text}; repeats reach from {low:.4g} to {high:.4g}"


def _caveats(claim: Claim, rows: Sequence[Row]) -> list[str]:
    """Conditions that a reader must know with the number."""
    corpus = rows[0].get("corpus", "")
    origins = [row.get(f"{claim.column}_origin", row.get("origin")) for row in rows]
    caveats = []
    if corpus not in ("", "abo"):
        caveats.append(f"on {corpus} images")
    if "extrapolated" in origins:
        caveats.append("extrapolated")
    if any(row.get("gate") == "not checked" for row in rows):
        caveats.append("pixels not compared")
    return caveats


def _as_row(verdict: Verdict) -> dict[str, object]:
    claim = verdict.claim
    csvs = dict.fromkeys(csv for csv in (claim.csv, claim.over_csv) if csv)
    selectors = [selector for selector in (claim.row, claim.over_row) if selector]
    return {
        "id": claim.id,
        "experiment": claim.experiment,
        "csv": " / ".join(csvs),
        "row": " / ".join(selectors),
        "column": claim.column,
        "paper_value": claim.paper_value,
        "unit": claim.unit,
        "ours": verdict.ours,
        "ours_min": verdict.ours_min,
        "ours_max": verdict.ours_max,
        "ratio": verdict.ratio,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "statement": claim.statement,
        "note": claim.note,
    }
