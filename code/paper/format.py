"""How a number reads in a figure, a table, the report and on a terminal: one form for each kind."""

from experiments._words import EMPTY, digits, factor, percent
from harness.csvfile import CellValue, number

__all__ = [
    "EMPTY",
    "CellValue",
    "count_noun",
    "digits",
    "factor",
    "percent",
    "signed_percent",
    "with_unit",
]


def with_unit(cell: CellValue, unit: str) -> str:
    """The number of a claim in its unit; a `fraction` as a percentage, a `ratio` as a factor."""
    value = number(cell)
    if value is None:
        return EMPTY
    if unit == "fraction":
        return percent(value)
    if unit == "ratio":
        return factor(value)
    return f"{digits(value)}/s" if unit == "1/s" else f"{digits(value)} {unit}"


def count_noun(count: int, noun: str) -> str:
    """`1 image`, `1,024 images`, `2 batches`."""
    if count == 1:
        return f"{count} {noun}"
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{plural}"


def signed_percent(cell: CellValue) -> str:
    """A relative error: `+3.1 %`."""
    error = number(cell)
    return EMPTY if error is None else f"{100 * error:+z.1f} %"
