"""The interpreter's lock: what threads of one process wait for, however many cores there are."""

from wallclock.predict.costs import check

#: Seconds for which an image holds its process's interpreter lock: so many, and this share of its
#: loading. A 256 px image of 0.25 ms holds it 60 to 75 µs, an original of 4 ms 50 to 200 µs.
_LOCKED_S, _LOCKED_SHARE = 70e-6, 0.02


def locked_s(load_s: float) -> float:
    """Seconds of an image under the lock, of the core seconds that its loading takes.

    Raises:
        ValueError: a number that is negative, infinite or NaN.
    """
    check("load_s", load_s)
    return min(load_s, _LOCKED_S + _LOCKED_SHARE * load_s)
