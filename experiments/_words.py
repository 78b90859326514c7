"""How numbers and names read in a sentence, a figure or a table for people: one form for each."""

from harness.csvfile import CellValue, number

#: Shown where there is no value.
EMPTY = "–"


class Labels(dict[str, str]):
    """Label by name; a name without a label is its own."""

    def __missing__(self, name: str) -> str:
        return name


#: An image set, where space is short.
SHORT_SETS = Labels({"small_256": "256 px images", "original": "originals"})


def digits(cell: CellValue) -> str:
    """Three significant digits; from 100 on whole numbers, thousands separated."""
    value = number(cell)
    if value is None:
        return EMPTY
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def percent(cell: CellValue, places: int = 1) -> str:
    """A share from 0 to 1 as a percentage; `< 0.1 %` where it would round to zero."""
    share = number(cell)
    if share is None:
        return EMPTY
    least = 10.0**-places
    return f"< {least:g} %" if 0 < 100 * share < least / 2 else f"{100 * share:.{places}f} %"


def factor(cell: CellValue) -> str:
    """A ratio: `2.43×`, `1,234×`, `0.0079×`."""
    ratio = number(cell)
    if ratio is None:
        return EMPTY
    if abs(ratio) >= 100:
        return f"{ratio:,.0f}×"
    if abs(ratio) >= 9.995:
        return f"{ratio:.1f}×"
    return f"{ratio:.2f}×" if abs(ratio) >= 0.095 else f"{ratio:.2g}×"
