"""The numbers the paper cites, and what our tables say of each.

A claim names a table, a row of it and a column; one of kind `ratio` or `difference` names a second
cell, which it divides by or subtracts. A number is judged with the interval of its repeats, from
the lowest to the highest. The claimed quantity is computed in every repeat: the interval is in the
columns `<column>_min` and `<column>_max`; a fact (`harness.table`) is the same in all of them. Of
two cells the interval is over all pairs of repeats; a claim cites the table's own ratio where it
has one, whose pairs are within blocks. `VERDICTS` has the words.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from harness import provenance
from harness.drawing.format import percent, signed_percent
from harness.table import Row, read_table, write_table
from paper.cited import CitedCell, CitedTables, NoNumberError
from wallclock.errors import UserError

#: The cited numbers, and the table of verdicts that a run writes.
CLAIMS = provenance.ROOT / "data" / "paper" / "claims.csv"
CSV = "claims.csv"

HELD = "held"
DIFFERS = "differs"
INCONCLUSIVE = "inconclusive"
CALIBRATION = "calibration"
NOT_APPLICABLE = "not applicable"
NOT_RUN = "not run"
#: In the order in which they are counted and printed, with what they mean.
VERDICTS = {
    HELD: "all repeats lie within the claim’s tolerance of the paper’s number",
    DIFFERS: "all repeats lie outside the claim’s tolerance",
    INCONCLUSIVE: "the repeats fall on both sides of the tolerance, or are too few",
    CALIBRATION: "the number is of a mock that was made from the source’s own numbers",
    NOT_APPLICABLE: "measured, but the claim is about other hardware or images",
    NOT_RUN: "we have no number",
}
#: Those that compare our number with the paper's.
JUDGED = (HELD, DIFFERS, INCONCLUSIVE)
#: `role` of claims that are shown first, and of those that can hardly fail.
HEADLINE, ARITHMETIC = "headline", "arithmetic"
#: `source` of most of them.
PAPER = "paper"
#: Columns of the table of verdicts.
_OF_VERDICT = ("ours", "ours_min", "ours_max", "ratio", "verdict", "reason")
COLUMNS = (
    "id",
    "experiment",
    "csv",
    "row",
    "column",
    "kind",
    "paper_value",
    "unit",
    *_OF_VERDICT,
    "statement",
    "where",
    "other_value",
    "other_where",
    "note",
)

#: A tolerance includes its end: 0.63 is within 0.05 of 0.58, though not in binary fractions.
_ROUNDING = 1e-9


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
#: What random weights, which no disk holds, say nothing of.
_OF_WEIGHTS = "model_load_s"
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
    #: Whose number it is.
    source: str
    #: headline: one of the numbers that matter most; arithmetic: it can hardly fail; or empty.
    role: str

    def cells(self) -> list[tuple[str, str, str]]:
        """Table, row and column of the cell, and of the second one where there is one."""
        first = (self.csv, self.row, self.column)
        if not self.base_csv:
            return [first]
        return [first, (self.base_csv, self.base_row, self.base_column or self.column)]

    @property
    def quantity(self) -> tuple[object, ...]:
        """What it is about: equal in claims that cite the same quantity twice."""
        return self.kind, self.scale, *self.cells()


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


def load(path: Path) -> list[Claim]:
    """Read the claims; the tests hold that none contradicts itself."""
    claims = []
    for row in read_table(path):
        values: dict[str, Any] = dict(row)
        values["scale"] = float(Fraction(row["scale"] or "1"))
        claims.append(Claim(**values))
    return claims


def judge(claims: Sequence[Claim], tables_dir: Path) -> list[Verdict]:
    """Return a verdict for each claim, in order, from the tables in `tables_dir`.

    Raises UserError if a table lacks a claim's column, or holds several rows for one claim.
    """
    tables = _tables(claims, tables_dir)
    return [_judge(claim, tables) for claim in claims]


def measure(claims: Sequence[Claim], tables_dir: Path) -> dict[str, tuple[float, float, float]]:
    """Claim → our number, its lowest and its highest repeat, whatever machine the claim is about.

    In the claim's unit; without those that have no number, or that several rows match.
    """
    tables = _tables(claims, tables_dir)
    measured = {}
    for claim in claims:
        with suppress(NoNumberError, UserError):
            cells = tables.cells(claim.cells(), claim.id, claim.experiment)
            ours = _combine(claim, cells)
            measured[claim.id] = (ours, *(_interval(claim, cells) or (ours, ours)))
    return measured


def counting(claims: Sequence[Claim]) -> set[str]:
    """The ids of the claims that count: of a quantity the first, none that arithmetic settles."""
    firsts = {claim.quantity: claim.id for claim in reversed(claims)}.values()
    return {claim.id for claim in claims if claim.role != ARITHMETIC} & {*firsts}


def annotated(rows: Sequence[Row]) -> list[Row]:
    """Rows of claims or verdicts with `source`, `role`, and whether each is `counted`."""
    cited = load(CLAIMS)
    counted = counting(cited)
    about = {
        claim.id: {"source": claim.source, "role": claim.role, "counted": claim.id in counted}
        for claim in cited
    }
    unknown = {"source": "", "role": "", "counted": False}
    return [{**row, **about.get(row["id"], unknown)} for row in rows]


def write(verdicts: Sequence[Verdict], path: Path) -> None:
    """Write the verdicts as a table with the columns `COLUMNS`."""
    write_table(path, COLUMNS, [_as_row(verdict) for verdict in verdicts])


def _tables(claims: Sequence[Claim], folder: Path) -> CitedTables:
    return CitedTables(folder, {claim.csv: claim.experiment for claim in claims})


def _judge(claim: Claim, tables: CitedTables) -> Verdict:
    try:
        cells = tables.cells(claim.cells(), claim.id, claim.experiment)
        ours = _combine(claim, cells)
    except NoNumberError as missing:
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
        return Verdict(claim, ours, INCONCLUSIVE, "; ".join([difference, *caveats]))
    reason = "; ".join([difference, *caveats])
    if any(cell.of_one_repeat for cell in cells):
        verdict, reason = INCONCLUSIVE, f"{reason}. One repeat: inconclusive"
    return Verdict(claim, ours, verdict, reason, low, high)


def _combine(claim: Claim, cells: Sequence[CitedCell]) -> float:
    """Our number, in the paper's unit: the first cell, over the second or less it."""
    value = cells[0].value
    for base in cells[1:]:
        if claim.kind == "difference":
            value -= base.value
        elif base.value == 0:
            raise NoNumberError(f"cannot divide by a {base.column} of 0")
        else:
            value /= base.value
    return claim.scale * value


def _interval(claim: Claim, cells: Sequence[CitedCell]) -> tuple[float, float] | None:
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


def _obstacle(claim: Claim, cells: Sequence[CitedCell], tables: CitedTables) -> str:
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
            if needed.exact_cores and row.get("cores") != needed.exact_cores:
                here = row.get("cores") or "an unknown number"
                return f"applies only beside {needed.exact_cores} cores; here: {here}"
        corpus = row.get("corpus", "")
        if corpus != "abo" and (claim.needs == "abo" or (needed and needed.with_abo and corpus)):
            return f"about the paper's images; here: {corpus or 'unknown'} images"
        if claim.needs == "cuda" and row.get("device_kind") != "cuda":
            return f"needs a CUDA GPU; here: {device}"
        if cell.column == _OF_WEIGHTS and row.get("weights") == "random":
            return "random weights are made, not loaded (weights=random)"
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
        side = "within" if lower <= ours <= upper else "beyond"
        error = f"{signed_percent((ours - paper) / part)},"
        if claim.kind == "share":
            error = _as_shares(claim, ours)
        text = f"{error} {side} {100 * claim.tolerance:.3g} %"
    if lower <= low and high <= upper:
        return HELD, text
    if high < lower or upper < low:
        return DIFFERS, text
    return INCONCLUSIVE, f"{text}; repeats reach from {low:.4g} to {high:.4g}"


def _as_shares(claim: Claim, ours: float) -> str:
    """'all but forward takes 1.5 %; the paper says 0.5 %:', the part that has the tolerance."""
    stage, paper = claim.column.removesuffix("_share").replace("_", " and "), claim.paper_value
    if paper > 0.5:
        stage, ours, paper = f"all but {stage}", 1 - ours, 1 - paper
    return f"{stage} takes {percent(ours)}; the paper says {percent(paper)}:"


def _caveats(cells: Sequence[CitedCell]) -> list[str]:
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
    row = {name: getattr(claim, name) for name in COLUMNS if name not in _OF_VERDICT}
    row |= {name: getattr(verdict, name) for name in _OF_VERDICT}
    row |= {"csv": " / ".join(dict.fromkeys(csvs)), "row": " / ".join(selectors)}
    return row | {"column": " / ".join(dict.fromkeys(columns))}
