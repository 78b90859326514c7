"""What each change would bring: the gain in images per second after start-up, with its interval.

The gain is the ratio of two rates of the pipeline model (`wallclock.predict`): with the change, and
as the program is. Its interval reaches as far as four errors together (`predict.intervals`): of the
least and the most that the change does (`changes`); of the model's rate for the program as it is,
over the measured one; of such gains on earlier programs; and of a mean over so few images.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf

from wallclock.predict.intervals import GAIN_ERROR, reach
from wallclock.trace.changes import CHANGES, FILES, INCLUDES, Change
from wallclock.trace.shares import Shares
from wallclock.trace.work import Work, work_of

#: A gain whose interval reaches down to this is not recommended.
NOTICEABLE = 1.03
#: Costs of less than a hundredth of the present ones are beyond what a trace tells.
_MOST_GAIN = 100.0


@dataclass(frozen=True)
class Fix:
    """A change, or several of them: what it brings, and the lines to write.

    `gain`: times as many images per second after start-up; `low`, `high`: the interval.
    `rewrites_files`: whether it takes a pass over all images. `parts`: the names of the changes of
    a combination.
    """

    name: str
    title: str
    gain: float
    low: float
    high: float
    code: str
    cost: str
    rewrites_files: bool = False
    parts: tuple[str, ...] = ()

    @property
    def is_recommended(self) -> bool:
        """Whether even the least that it brings is noticeable."""
        return self.low > NOTICEABLE


@dataclass(frozen=True)
class Fixes:
    """All fixes of a program. `model_error`: of the rate as it is, relative, at least 0."""

    alone: tuple[Fix, ...]
    combined: Fix | None
    model_error: float

    @property
    def recommended(self) -> list[Fix]:
        """Those that are, the highest gain first."""
        worth = [fix for fix in self.alone if fix.is_recommended]
        return sorted(worth, key=lambda fix: -fix.gain)

    @property
    def to_write(self) -> list[Fix]:
        """Whose code comes first: the best that needs no new files, and the best of one line."""
        direct = [fix for fix in self.recommended if not fix.rewrites_files] or self.recommended
        short = [fix for fix in direct if "\n" not in fix.code]
        return list(dict.fromkeys([*direct[:1], *short[:1]]))

    @property
    def others(self) -> list[Fix]:
        """Those that would bring nothing for certain."""
        return [fix for fix in self.alone if not fix.is_recommended]


def fixes_of(shares: Shares) -> Fixes:
    """What each change brings alone, and the combination with the highest gain."""
    work = work_of(shares)
    rate = work.img_per_s() if work else inf
    if work is None or rate == inf:
        return Fixes((), None, 0.0)
    ratio = shares.img_per_s / rate
    error = max(ratio, 1 / ratio) - 1
    errors = errors_of(shares, error)
    offered = [change for change in CHANGES if change.applies(work)]
    alone = tuple(_predict(work, [change], errors) for change in offered)
    worth = [change for change, fix in zip(offered, alone, strict=True) if fix.is_recommended]
    return Fixes(alone, _combine(work, worth, alone, errors), error)


def _predict(work: Work, changes: Sequence[Change], errors: Sequence[float]) -> Fix:
    now = work.img_per_s()
    worst, middle, best = (_changed(work, changes, luck).img_per_s() for luck in (-1, 0, 1))
    low, gain, high = gain_of(now, (worst, middle, best), errors)
    if len(changes) == 1:
        (change,) = changes
        code, title = change.code(work), change.title(work)
        rewrites = change.group == FILES
        return Fix(change.name, title, gain, low, high, code, change.cost, rewrites)
    names = tuple(change.name for change in changes)
    code = "\n".join(change.code(work) for change in changes)
    title = " + ".join(change.title(work) for change in changes)
    cost = "; ".join(dict.fromkeys(change.cost for change in changes))
    rewrites = any(change.group == FILES for change in changes)
    return Fix("combined", title, gain, low, high, code, cost, rewrites, names)


def errors_of(shares: Shares, model_error: float) -> tuple[float, ...]:
    """The relative errors that every gain has, whatever the change."""
    # The times of single images vary about as much as they are long.
    return GAIN_ERROR, model_error, shares.n_images**-0.5


def gain_of(
    now: float, rates: tuple[float, float, float], errors: Sequence[float]
) -> tuple[float, float, float]:
    """Least, expected and greatest gain from the rate now and the three rates of the change."""
    worst, gain, best = (min(rate / now, _MOST_GAIN) for rate in rates)
    low = gain / reach(*errors, max(0.0, gain / worst - 1))
    return low, gain, gain * reach(*errors, max(0.0, best / gain - 1))


def _changed(work: Work, changes: Sequence[Change], luck: float) -> Work:
    for change in changes:
        work = change.apply(work, luck)
    return work


def _combine(
    work: Work, worth: Sequence[Change], alone: Sequence[Fix], errors: Sequence[float]
) -> Fix | None:
    """The fewest changes that come near the highest gain of all; None if one of them does."""
    predicted = [_predict(work, changes, errors) for changes in _compatible(worth)]
    highest = max((fix.gain for fix in predicted), default=0.0)
    near = [fix for fix in predicted if fix.gain * NOTICEABLE >= highest]
    singles = max((fix.gain for fix in alone if fix.is_recommended), default=0.0)
    if not near or highest <= NOTICEABLE * singles:
        return None
    best = min(near, key=lambda fix: (len(fix.parts), -fix.gain))
    return best if best.is_recommended else None


def _compatible(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Every two or more that can be made together."""
    for count in range(2, len(changes) + 1):
        for chosen in combinations(changes, count):
            groups = [change.group for change in chosen if change.group]
            names = {change.name for change in chosen}
            contained = {part for name in names for part in INCLUDES.get(name, ())}
            if len(groups) == len(set(groups)) and not names & contained:
                yield chosen
