"""How a number reads in a sentence, figure or table, and on a terminal: one form for each kind."""

#: Shown where there is no value.
EMPTY = "–"


def digits(value: float | None) -> str:
    """Three significant digits; from 100 on whole numbers, thousands separated."""
    if value is None:
        return EMPTY
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def percent(share: float | None, places: int = 1) -> str:
    """A share from 0 to 1 as a percentage; `< 0.1 %` where it would round to zero."""
    if share is None:
        return EMPTY
    least = 10.0**-places
    return f"< {least:g} %" if 0 < 100 * share < least / 2 else f"{100 * share:.{places}f} %"


def factor(ratio: float | None) -> str:
    """A ratio: `2.43×`, `1,234×`, `0.0079×`."""
    if ratio is None:
        return EMPTY
    if abs(ratio) >= 100:
        return f"{ratio:,.0f}×"
    if abs(ratio) >= 9.995:
        return f"{ratio:.1f}×"
    return f"{ratio:.2f}×" if abs(ratio) >= 0.095 else f"{ratio:.2g}×"


def with_unit(value: float | None, unit: str) -> str:
    """The number of a claim in its unit; a `fraction` as a percentage, a `ratio` as a factor."""
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


def signed_percent(error: float | None) -> str:
    """A relative error: `+3.1 %`."""
    return EMPTY if error is None else f"{100 * error:+z.1f} %"
