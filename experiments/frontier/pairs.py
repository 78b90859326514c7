"""Which repeats count, and ratios of rates with their interval.

A ratio is taken repeat by repeat: the first repeat of one row over the first of the other, and so
on. The runner measures all rows of a repeat in one block, in random order, before it begins the
next (`harness.runner`), so that what slows the machine down for minutes is in both rates of a pair.
The ratio is the median of the pairs, its interval reaches from the least to the greatest of them;
where it contains 1, the two cannot be told apart. A single pair has no interval. Passes that other
programs disturbed (`harness.disturbance`) are in no pair.
"""

from collections.abc import Mapping
from typing import Any

from experiments.common import Records, Row, measured, rate
from harness import disturbance
from harness.drawing.format import factor
from harness.measures import median
from harness.records import Record

#: Beside the rates of a table whose passes are alone on the machine.
COLUMNS = ("calm_repeats",)


def columns(name: str) -> tuple[str, ...]:
    """The columns of a ratio."""
    return name, f"{name}_min", f"{name}_max"


def calm(repeats: Records) -> list[Record]:
    """The measured repeats that nothing disturbed."""
    return [
        record
        for record in measured(repeats)
        if not disturbance.is_disturbed(record.values, _cores(record))
    ]


def _cores(record: Record) -> int:
    """Those that the record's process might use."""
    return int(record.cell.params.get("pinned_cores", record.environment["machine"]["cores"]))


def counting(repeats: Records) -> list[Record]:
    """The repeats that a row is of: the calm ones, or all where none was calm."""
    return calm(repeats) or measured(repeats)


def note_disturbance(row: Row, repeats: Records) -> Row:
    """The row with `calm_repeats`, the disturbed ones named in its `reason`.

    With 0 the rates are of disturbed repeats; empty where no protocol looked.
    """
    looked = {
        record.cell.repeat: cores
        for record in measured(repeats)
        if (cores := disturbance.other_cores(record.values)) is not None
    }
    if not looked:
        return row
    most = disturbance.limit(_cores(repeats[0]))
    disturbed = {number: cores for number, cores in looked.items() if cores > most}
    noted = row | {"calm_repeats": len(looked) - len(disturbed)}
    if disturbed:
        named = ", ".join(f"{number + 1} by {cores:.3g}" for number, cores in disturbed.items())
        left_out = "left out" if len(disturbed) < len(measured(repeats)) else "none was calm"
        reason = f"repeats that others disturbed ({left_out}): {named} cores"
        noted["reason"] = "; ".join(filter(None, (str(row["reason"]), reason)))
    return noted


def ratio_columns(name: str, repeats: Records, base: Records) -> Row:
    """A ratio of rates, its least and its greatest pair; empty where no two calm repeats pair."""
    rates, bases = (
        {record.cell.repeat: rate(record) for record in calm(records)}
        for records in (repeats, base)
    )
    ratios = [rates[number] / bases[number] for number in rates.keys() & bases.keys()]
    if not ratios:
        return {}
    least, greatest = (min(ratios), max(ratios)) if len(ratios) > 1 else (None, None)
    return dict(zip(columns(name), (median(ratios), least, greatest), strict=True))


def is_tie(row: Mapping[str, Any], name: str) -> bool:
    """Whether a ratio's interval contains 1: two that cannot be told apart.

    A single pair has no interval, and says neither.
    """
    least, greatest = row[f"{name}_min"], row[f"{name}_max"]
    return least is not None and greatest is not None and least <= 1 <= greatest


def in_words(row: Mapping[str, Any], name: str) -> str:
    """`1.29× (0.96 to 1.41)`, or without the interval where there is a single pair."""
    if not row[f"{name}_min"]:
        return f"{factor(row[name])} (one repeat)"
    least, greatest = (factor(row[f"{name}_{end}"]).rstrip("×") for end in ("min", "max"))
    return f"{factor(row[name])} ({least} to {greatest})"
