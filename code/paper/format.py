"""How a number reads in a figure, a table, the report and on a terminal: one form for each kind."""

from paper.csvfile import Row, number

#: Shown where there is no value.
EMPTY = "–"
#: A number, or a cell of a CSV that holds one.
Cell = float | str | None


def digits(cell: Cell) -> str:
    """Three significant digits; from 100 on whole numbers, thousands separated."""
    value = _number(cell)
    if value is None:
        return EMPTY
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def percent(cell: Cell, places: int = 1) -> str:
    """A share from 0 to 1 as a percentage; `< 0.1 %` where it would round to zero."""
    share = _number(cell)
    if share is None:
        return EMPTY
    least = 10.0**-places
    return f"< {least:g} %" if 0 < 100 * share < least / 2 else f"{100 * share:.{places}f} %"


def factor(cell: Cell) -> str:
    """A ratio: `2.43×`, `1,234×`, `0.0079×`."""
    ratio = _number(cell)
    if ratio is None:
        return EMPTY
    if abs(ratio) >= 100:
        return f"{ratio:,.0f}×"
    if abs(ratio) >= 9.995:
        return f"{ratio:.1f}×"
    return f"{ratio:.2f}×" if abs(ratio) >= 0.095 else f"{ratio:.2g}×"


def signed_percent(cell: Cell) -> str:
    """A relative error: `+3.1 %`."""
    error = _number(cell)
    return EMPTY if error is None else f"{100 * error:+z.1f} %"


def prediction_errors(row: Row) -> str:
    """The errors in a row of `prediction-summary.csv`."""
    errors = f"median {percent(row['error_median'])}, worst {percent(row['error_worst'])}"
    skill = f"skill over 'nothing changes' {digits(row['skill'])}"
    return f"{errors}, bias {signed_percent(row['bias'])}, n = {row['n']}; {skill}"


def with_unit(cell: Cell, unit: str) -> str:
    """The number of a claim in its unit; a `fraction` as a percentage, a `ratio` as a factor."""
    value = _number(cell)
    if value is None:
        return EMPTY
    if unit == "fraction":
        return percent(value)
    if unit == "ratio":
        return factor(value)
    return f"{digits(value)}/s" if unit == "1/s" else f"{digits(value)} {unit}"


def counted(count: int, noun: str) -> str:
    """`1 image`, `1,024 images`, `2 batches`."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"


def _number(cell: Cell) -> float | None:
    return number(cell) if isinstance(cell, str) else cell
