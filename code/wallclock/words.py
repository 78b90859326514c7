"""How numbers read in reports, on the terminal and in HTML."""

import re

#: The space in `71 %`, `2560 × 1920`, `3.2 s`.
_LOOSE = re.compile(r"(?<=\d) (?=[%×]|s\b|px\b)|(?<=×) (?=\d)")


def percent(share: float) -> str:
    """`71 %`; `< 1 %` where it would round to zero."""
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def seconds(value: float) -> str:
    """Two significant digits and the unit: `0.012 s`, `71 s`, `3,600 s`."""
    return f"{digits(value)} s"


def digits(value: float) -> str:
    """Two significant digits, three decimals at most; from 10 on whole numbers: `71,234`."""
    if abs(value) >= 9.95:
        return f"{value:,.0f}"
    if abs(value) >= 0.995:
        return f"{value:.1f}"
    places = 2 if abs(value) >= 0.0995 else 3
    return f"{value:.{places}f}".rstrip("0").rstrip(".")


def times(value: float) -> str:
    """`2.4 ×`, `1.05 ×`, `24 ×`."""
    places = 2 if value < 1.995 else 1 if value < 9.95 else 0
    return f"{value:.{places}f} ×"


def count(number: int, noun: str) -> str:
    """`1 image`, `1,024 images`, `2 processes`."""
    plural = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{plural}"


def keep_together(text: str) -> str:
    """The same with numbers that no line break parts from their unit."""
    return _LOOSE.sub("\N{NO-BREAK SPACE}", text)
