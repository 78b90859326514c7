"""How far a prediction may be off: what earlier ones were, and how far measured costs lie apart.

Nine of ten predictions that were measured afterwards, in the suite's reference runs on one kind of
machine with two cores, lay within these errors (data/reference/accuracy.csv). The runs that
it has now need less than those that it had at commit c7407bd; the wider errors stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, isfinite, log, log1p
from statistics import median

#: Nine of ten predicted rates were within this factor of the measured one, less 1.
RATE_ERROR = 0.17
#: The same of predicted gains: a rate over another one, both measured.
GAIN_ERROR = 0.17
#: A smaller gain is not noticeable.
NOTICEABLE = 1.05


def reach(*parts: float) -> float:
    """The factor by which independent relative errors reach up and down together; 1 for none.

    The logarithms of factors add up like independent errors, by the root of their squares' sum.
    """
    if not all(isfinite(part) and part >= 0 for part in parts):
        raise ValueError(f"relative errors {parts}: give finite numbers of at least 0")
    return exp(hypot(*(log1p(part) for part in parts)))


@dataclass(frozen=True)
class Gain:
    """A rate over another one. `low`, `high`: the interval."""

    speedup: float
    low: float
    high: float

    @property
    def is_recommended(self) -> bool:
        """Whether it is noticeable, and the whole interval a gain."""
        return self.speedup >= NOTICEABLE and self.low > 1


def gain(before: Sequence[float], after: Sequence[float], error: float = GAIN_ERROR) -> Gain:
    """What a change gains, from rates that passes apart in time predict without and with it.

    `before`, `after`: images per second, pass by pass: what slows a whole pass down is in both of
    its rates. `error`: relative, of the model. Raises ValueError: no pass, or not as many of both.
    """
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    if not ratios:
        raise ValueError("no pass to compare")
    middle = median(ratios)
    below, above = (exp(abs(log(end / middle))) - 1 for end in (min(ratios), max(ratios)))
    return Gain(middle, middle / reach(error, below), middle * reach(error, above))
