"""The numbers the paper cites, and what our tables say of each.

A claim names a table, a row of it and a column; one of kind `ratio` or `difference` names a second
cell, which it divides by or subtracts. A number is judged with the interval of its repeats, from
the lowest to the highest. The claimed quantity is computed in every repeat: the interval is in the
columns `<column>_min` and `<column>_max`, or the column is one of `EXACT`. Of two cells the
interval is over all pairs of repeats. A verdict is one of six:

    held             the interval lies within the claim's tolerance of the paper's number
    differs          it lies outside
    cannot tell      it reaches across the limit, is of one repeat, or is not known
    calibration      we have a number, but of a mock that was made from the source's own numbers
    not applicable   we have a number, but of a machine that the claim is not about
    not run          we have no number
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from harness import provenance
from harness.csvfile import Row, number, read_table, write_table
from harness.drawing.format import signed_percent
from paper.provenance_files import read_provenance
from wallclock.errors import UserError

#: The cited numbers, and the table of verdicts that a run writes.
CLAIMS = provenance.ROOT / "data" / "paper" / "claims.csv"
CSV = "claims.csv"

HELD = "held"
DIFFERS = "differs"
CANNOT_TELL = "cannot tell"
CALIBRATION = "calibration"
NOT_APPLICABLE = "not applicable"
NOT_RUN = "not run"
#: In the order in which they are counted and printed.
VERDICTS = (HELD, DIFFERS, CANNOT_TELL, CALIBRATION, NOT_APPLICABLE, NOT_RUN)
#: Those that compare our number with the paper's.
JUDGED = (HELD, DIFFERS, CANNOT_TELL)
#: Columns of the table of verdicts.
COLUMNS = (
    "id",
    "experiment",
    "csv",
    "row",
    "column",
    "kind",
    "paper_value",
    "unit",
    "ours",
    "ours_min",
    "ours_max",
    "ratio",
    "verdict",
    "reason",
    "statement",
    "where",
    "other_value",
    "other_where",
    "note",
)
#: Columns of which one repeat is as good as many: sizes and counts, which do not vary.
EXACT = frozenset({"median_kb", "median_megapixels", "size_mib", "parameters"})

#: A tolerance includes its end: 0.63 is within 0.05 of 0.58, though not in binary fractions.
_ROUNDING = 1e-9
#: `key=value` pairs; a value runs up to the next key, so it may hold spaces.
_PAIR = re.compile(r"(\w+)=(.*?)(?=\s+\w+=|$)")


class _Machine(NamedTuple):
    """A machine. `least_cores`: of the whole of it; `exact_cores`: as the row says.

    `with_abo`: on the paper's images, where a row is about images.
    """

    gpu: str
    least_cores: int = 0
    exact_cores: int = 0
    with_abo: bool = False


#: `needs` of a claim → the machine that it is about: the paper's, or a service's.
_MACHINES = {
    "t4-gpu": _Machine("T4"),
    "t4": _Machine("T4", least_cores=16, with_abo=True),
    "t4-8": _Machine("T4", exact_cores=8),
}
#: `device_kind` of a row whose device and network sleep as long as the source says.
_MOCK = "mock"


@dataclass(frozen=True)
class Claim:
    """One cited number, the cell that backs it, and how far ours may lie from it."""

    id: str
    experiment: str
    csv: str
    row: str
    column: str
    #: kind=ratio and kind=difference: the second cell; without a column, the first one's.
    base_csv: str
    base_row: str
    base_column: str
    #: The paper's unit from the table's: 1/6 for minutes for a million from seconds for 100,000.
    scale: float
    paper_value: float
    unit: str
    #: absolute, share, ratio, difference, or bound (ours is at most the paper's)
    kind: str
    #: any; abo: the paper's images; cuda; or a machine of `_MACHINES`
    needs: str
    #: Relative to the paper's number, of a share to its smaller part; None for bound.
    tolerance: float | None
    statement: str
    #: Where the source has the number: heading and sentence, table and cell, or figure.
    where: str
    #: What the source says of the same quantity elsewhere, or what follows from its other numbers;
    #: None where it does not contradict itself.
    other_value: float | None
    other_where: str
    note: str

    def cells(self) -> list[tuple[str, str, str]]:
        """Table, row and column of the cell, and of the second one where there is one."""
        first = (self.csv, self.row, self.column)
        if not self.base_csv:
            return [first]
        return [first, (self.base_csv, self.base_row, self.base_column or self.column)]


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


@dataclass(frozen=True)
class _Cell:
    """A cell that a claim names; `limits`: its lowest and highest repeat, None if not known."""

    csv: str
    column: str
    row: Row
    value: float
    limits: tuple[float, float] | None

    @property
    def of_one_repeat(self) -> bool:
        """Whether more repeats could have changed it."""
        return self.row.get("repeats") == "1" and self.column not in EXACT


def load(path: Path) -> list[Claim]:
    """Read the claims; the tests hold that none contradicts itself."""
    claims = []
    for row in read_table(path):
        values: dict[str, Any] = dict(row)
        values["scale"] = float(Fraction(row["scale"] or "1"))
        values["paper_value"] = float(row["paper_value"])
        for name in ("tolerance", "other_value"):
            values[name] = number(row[name])
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
        self._provenance = read_provenance(folder)

    def cell(self, claim: Claim, csv: str, selector: str, column: str) -> _Cell:
        """A cell that a claim names, in a measured row."""
        row = self._row(csv, selector, claim.experiment)
        try:
            value = number(row[column])
        except (KeyError, ValueError) as error:
            cited = f"column {column}, which the claim {claim.id} cites"
            raise UserError(f"{csv}: no number in the {cited}: {error}") from error
        if value is None:
            raise _NoNumberError(f"the cell {column} is empty")
        low, high = (number(row.get(f"{column}_{end}") or "") for end in ("min", "max"))
        if column in EXACT:
            low = high = value
        limits = None if low is None or high is None else (low, high)
        return _Cell(csv, column, row, value, limits)

    def _row(self, csv: str, selector: str, default: str) -> Row:
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

    def machine(self, csv: str) -> dict[str, Any]:
        """The machine that measured a table; empty where its provenance does not say."""
        machine: dict[str, Any] = self._provenance.get(csv, {}).get("machine", {})
        return machine


def _judge(claim: Claim, tables: _MeasuredTables) -> Verdict:
    try:
        cells = [tables.cell(claim, *cell) for cell in claim.cells()]
        _check_alike(cells, tables)
        ours = _combine(claim, cells)
    except _NoNumberError as missing:
        return Verdict(claim, None, NOT_RUN, str(missing))
    if any(cell.row.get("device_kind") == _MOCK for cell in cells):
        reason = "a mock that sleeps what the source's own numbers say: its test, not the claim's"
        return Verdict(claim, ours, CALIBRATION, reason)
    if obstacle := _obstacle(claim, cells, tables):
        return Verdict(claim, ours, NOT_APPLICABLE, obstacle)
    low, high = _interval(claim, cells) or (ours, ours)
    verdict, difference = _compare(claim, ours, low, high)
    caveats = _caveats(cells)
    unlimited = [cell.column for cell in cells if cell.limits is None]
    if unlimited:
        difference += f", but the repeats' limits of {unlimited[0]} are not known"
        return Verdict(claim, ours, CANNOT_TELL, "; ".join([difference, *caveats]))
    if any(cell.of_one_repeat for cell in cells):
        verdict, difference = CANNOT_TELL, f"{difference}, but of one repeat"
    return Verdict(claim, ours, verdict, "; ".join([difference, *caveats]), low, high)


def _combine(claim: Claim, cells: Sequence[_Cell]) -> float:
    """Our number, in the paper's unit: the first cell, over the second or less it."""
    value = cells[0].value
    for base in cells[1:]:
        if claim.kind == "difference":
            value -= base.value
        elif base.value == 0:
            raise _NoNumberError(f"cannot divide by a {base.column} of 0")
        else:
            value /= base.value
    return claim.scale * value


def _interval(claim: Claim, cells: Sequence[_Cell]) -> tuple[float, float] | None:
    """The lowest and highest that the repeats allow, of two cells over all pairs of repeats."""
    limits = [cell.limits for cell in cells if cell.limits is not None]
    if len(limits) < len(cells):
        return None
    low, high = limits[0]
    for base_low, base_high in limits[1:]:
        if claim.kind == "difference":
            low, high = low - base_high, high - base_low
        else:
            low, high = low / base_high, high / base_low if base_low else float("inf")
    return claim.scale * low, claim.scale * high


def _check_alike(cells: Sequence[_Cell], tables: _MeasuredTables) -> None:
    """Two cells of unlike runs say nothing about either.

    Of one kind of device they must be of the same device; a CPU's and a GPU's, of one machine.
    """
    first = cells[0]
    for base in cells[1:]:
        columns = ["corpus", "image_set"]
        if first.row.get("device_kind", "") == base.row.get("device_kind", ""):
            columns.insert(0, "device")
        elif _hardware(tables.machine(first.csv)) != _hardware(tables.machine(base.csv)):
            raise _NoNumberError("the two rows are of unlike runs: two machines")
        for column in columns:
            above, below = first.row.get(column, ""), base.row.get(column, "")
            if above and below and above != below:
                raise _NoNumberError(
                    f"the two rows are of unlike runs: {column} {above} and {below}"
                )


def _hardware(machine: Mapping[str, Any]) -> tuple[Any, ...]:
    gpus = [gpu["name"] for gpu in machine.get("gpus", ())]
    return machine.get("cpu"), machine.get("cores"), gpus


def _obstacle(claim: Claim, cells: Sequence[_Cell], tables: _MeasuredTables) -> str:
    """Why the claim is not about these rows' machine; empty if it is."""
    for cell in cells:
        row = cell.row
        device = row.get("device") or "an unnamed device"
        if needed := _MACHINES.get(claim.needs):
            cores = int(tables.machine(cell.csv).get("cores", 0))
            # "Tesla T4", but neither "T400" nor "T4G".
            if not re.search(rf"\b{needed.gpu}\b", device):
                return f"applies only to a Tesla {needed.gpu}; here: {device}"
            if cores < needed.least_cores:
                return f"applies only beside {needed.least_cores} cores or more; here: {cores}"
            if needed.exact_cores and row.get("cores") != str(needed.exact_cores):
                here = row.get("cores") or "an unknown number"
                return f"applies only beside {needed.exact_cores} cores; here: {here}"
        corpus = row.get("corpus", "")
        if corpus != "abo" and (claim.needs == "abo" or (needed and needed.with_abo and corpus)):
            return f"about the paper's images; here: {corpus or 'unknown'} images"
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


def _caveats(cells: Sequence[_Cell]) -> list[str]:
    """Conditions that a reader must know with the number."""
    corpus = cells[0].row.get("corpus", "")
    origins = [cell.row.get(f"{cell.column}_origin", cell.row.get("origin")) for cell in cells]
    caveats = []
    if corpus not in ("", "abo"):
        caveats.append(f"on {corpus} images")
    if "extrapolated" in origins:
        caveats.append("extrapolated")
    throttled = {cell.row.get("throttle_reasons", "") for cell in cells} - {""}
    caveats += [f"throttled: {reasons}" for reasons in sorted(throttled)]
    if any(cell.row.get("gate") == "not checked" for cell in cells):
        caveats.append("pixels not compared")
    return caveats


def _as_row(verdict: Verdict) -> dict[str, object]:
    claim = verdict.claim
    csvs, selectors, columns = zip(*claim.cells(), strict=True)
    return {
        "id": claim.id,
        "experiment": claim.experiment,
        "csv": " / ".join(dict.fromkeys(csvs)),
        "row": " / ".join(selectors),
        "column": " / ".join(dict.fromkeys(columns)),
        "kind": claim.kind,
        "paper_value": claim.paper_value,
        "unit": claim.unit,
        "ours": verdict.ours,
        "ours_min": verdict.ours_min,
        "ours_max": verdict.ours_max,
        "ratio": verdict.ratio,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "statement": claim.statement,
        "where": claim.where,
        "other_value": claim.other_value,
        "other_where": claim.other_where,
        "note": claim.note,
    }
