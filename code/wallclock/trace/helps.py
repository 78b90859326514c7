"""What would help the model: each remedy that applies, and what `--try` measured of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wallclock.trace.inside.model_trial import TRIED
from wallclock.trace.inside.models import PARTED
from wallclock.trace.record import Function, by_function
from wallclock.trace.shares import MODEL, Shares
from wallclock.trace.words import digits, percent, times

#: Below this share of the main process's time a model is nothing to change.
_LEAST_SHARE = 0.2
#: Gains of a model below this are not noticed.
_NOTICEABLE = 1.05
#: A call of a copy from the device for so many images waits for each of them.
_FEW_IMAGES = 1.5


@dataclass(frozen=True)
class Tried:
    """What a change brought the model, times as fast, in the middle, at least and at most.

    `program`: the same for the program, of whose time the model takes a share. `cosine`: the least
    one of a vector with the change to the same one without.
    """

    gain: float
    low: float
    high: float
    cosine: float
    program: tuple[float, float, float]


@dataclass(frozen=True)
class Help:
    """What is wrong with a model's passes, the user's line, and the change; None: not tried."""

    name: str
    what: str
    line: str
    change: str
    tried: Tried | None = None

    @property
    def helps(self) -> bool:
        """Whether it was not tried, or brought something."""
        return self.tried is None or self.tried.low >= _NOTICEABLE

    @property
    def sentence(self) -> str:
        """`The model is in training mode (embed.py:9): model.eval()`."""
        where = f" ({self.line})" if self.line else ""
        return f"{self.what[:1].upper()}{self.what[1:]}{where}: {self.change}"

    @property
    def result(self) -> str:
        """What trying it said; empty where it was not tried."""
        if self.tried is None:
            return ""
        same = f"least cosine of the vectors {self.tried.cosine:.5f}"
        if not self.helps:
            return f"tried, it brings nothing that is sure: {times(self.tried.gain)}; {same}"
        model = _say_gain(self.tried.gain, self.tried.low, self.tried.high)
        return f"tried: the model {model}, the program {self.gain}; {same}"

    @property
    def gain(self) -> str:
        """Of the program: `1.5 × (1.4 × to 1.6 ×)`; empty where it was not tried."""
        return _say_gain(*self.tried.program) if self.tried else ""


def _say_gain(middle: float, low: float, high: float) -> str:
    return f"{times(middle)} ({times(low)} to {times(high)})"


def helps_of(shares: Shares) -> Sequence[Help]:
    """The remedies of the model that takes most time; what was tried by its gain, then the rest."""
    share = shares.main.share(*MODEL)
    threads = shares.trace.threads(of_workers=False)
    models = [function for function in by_function(threads) if function.stage == "forward"]
    if not models or share < _LEAST_SHARE:
        return ()
    told, line, tried = _told(shares, models[0])
    found = [
        Help(name, *_ordered(text, line), _tried(tried.get(name), share))
        for name, text in told.items()
        if PARTED in text
    ]
    found += _copies(shares)
    return sorted(found, key=lambda each: -each.tried.gain if each.tried else 0.0)


def _told(shares: Shares, model: Function) -> tuple[Mapping[str, str], str, Mapping[str, str]]:
    """The facts of its last passes, the user's line, and what was tried."""
    settings: dict[str, Mapping[str, str]] = {use.name: use.settings for use in shares.trace.uses}
    told = settings.get(model.name, {})
    return told, told.get("line", ""), settings.get(f"{TRIED}{model.name}", {})


def _ordered(text: str, line: str) -> tuple[str, str, str]:
    what, _, change = text.partition(PARTED)
    return what, line, change


def _tried(text: str | None, share: float) -> Tried | None:
    if not text:
        return None
    gain, low, high, cosine = map(float, text.split(PARTED))
    least, middle, most = (1 / (1 - share * (1 - 1 / each)) for each in (low, gain, high))
    return Tried(gain, low, high, cosine, (middle, least, most))


def _copies(shares: Shares) -> Sequence[Help]:
    """Values that the device is asked for one image at a time."""
    row = shares.main.largest("d2h")
    if row is None or shares.n_images > _FEW_IMAGES * row.spent.calls or shares.n_images < 2:
        return ()
    name = row.functions[0][0] if row.functions else "a copy"
    what = f"{name} waits for the device {digits(row.spent.calls / shares.n_images)} times an image"
    what += f", {percent(row.share)} of the time"
    return [
        Help("copies", what, row.place, "keep results there, and copy those of a batch at once")
    ]
