"""What would help a model, and what `--try` measured of it; and what would make writing faster.

The times of encoders are ratios of core seconds over 24 photos of 256 and of 1,024 px (Pillow 12):
the median, and what nine of ten lie between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wallclock.predict.intervals import Gain, gain, reach
from wallclock.trace.fixes import say_gain
from wallclock.trace.inside.model_trial import TRIED
from wallclock.trace.inside.models import PARTED
from wallclock.trace.record import MODEL, Use, by_function
from wallclock.trace.shares import Row, Shares
from wallclock.words import digits, percent

#: Below this share of the main process's time a model is nothing to change.
_LEAST_SHARE = 0.2
#: A call of a copy from the device for so many images waits for each of them.
_FEW_IMAGES = 1.5


@dataclass(frozen=True)
class Tried:
    """What a change brought the model, and so the program, of whose time it takes a share.

    `cosine`: the least one of a vector with the change to the same one without.
    """

    model: Gain
    program: Gain
    cosine: float


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
        return self.tried is None or self.tried.model.is_recommended

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
        gain = say_gain(self.tried.model)
        said = f"tried: the model {gain}, the program {self.gain}"
        if not self.helps:
            said = f"tried, it brings nothing that is sure: {gain}"
        return f"{said}; least cosine of the vectors {self.tried.cosine:.5f}"

    @property
    def gain(self) -> str:
        """Of the program: `1.5 × (1.4 to 1.6 ×)`; empty where it was not tried."""
        return say_gain(self.tried.program) if self.tried else ""


def helps_of(shares: Shares) -> Sequence[Help]:
    """The remedies of the model that takes most time; what was tried in vain comes last."""
    share = shares.main.share(*MODEL)
    threads = shares.trace.threads(of_workers=False)
    models = [function.name for function in by_function(threads) if function.stage == "forward"]
    if not models or share < _LEAST_SHARE:
        return ()
    # The facts of its last passes, and what was tried.
    settings: dict[str, Mapping[str, str]] = {use.name: use.settings for use in shares.trace.uses}
    told, tried = settings.get(models[0], {}), settings.get(f"{TRIED}{models[0]}", {})
    helps = []
    for name, text in told.items():
        if PARTED in text:
            what, _, change = text.partition(PARTED)
            result = _tried(tried[name], share) if name in tried else None
            helps.append(Help(name, what, told.get("line", ""), change, result))
    helps += _copies(shares)
    return sorted(helps, key=lambda each: not each.helps)


def _tried(text: str, share: float) -> Tried:
    *gains, cosine = map(float, text.split(PARTED))
    program = (1 / (1 - share * (1 - 1 / gain)) for gain in gains)
    return Tried(Gain(*gains), Gain(*program), cosine)


def _copies(shares: Shares) -> list[Help]:
    """Values that the device is asked for one image at a time."""
    row = shares.main.largest("d2h")
    if row is None or shares.n_images > _FEW_IMAGES * row.spent.calls or shares.n_images < 2:
        return []
    name = row.functions[0][0] if row.functions else "a copy"
    what = f"{name} waits for the device {digits(row.spent.calls / shares.n_images)} times an image"
    what += f", {percent(row.share)} of the time"
    return [
        Help("copies", what, row.place, "keep results there, and copy those of a batch at once")
    ]


_SAVE = "PIL.Image.save"


class Encoding(NamedTuple):
    """A faster way to encode images of a format whose encoder was told one of `slow` for an option.

    `usual`: what it takes if it was told nothing. `left`: of the time, at least, in the middle and
    at most. `size`: of the files, over what it was.
    """

    format: str
    option: str
    slow: range
    usual: int
    change: str
    left: tuple[float, float, float]
    size: float

    def applies(self, use: Use) -> bool:
        """Whether images were written so."""
        value = use.settings.get(self.option, f"{self.usual}")
        number = int(value) if value.isdigit() else int(value != "False")
        return use.settings.get("format") == self.format and number in self.slow


_FASTEST, _SLOW, _USUAL = "compress_level=1", (0.054, 0.12, 0.21), (0.24, 0.35, 0.46)
#: The first that applies is the one to name.
_ENCODINGS = (
    Encoding("PNG", "optimize", range(1, 99), 0, f"{_FASTEST}, without optimize=True", _SLOW, 1.13),
    Encoding("PNG", "compress_level", range(7, 10), 6, _FASTEST, _SLOW, 1.13),
    Encoding("PNG", "compress_level", range(4, 7), 6, _FASTEST, _USUAL, 1.11),
    Encoding("WEBP", "method", range(1, 7), 4, "method=0", (0.045, 0.3, 0.36), 1.3),
    Encoding("AVIF", "speed", range(7), 6, "speed=10", (0.077, 0.12, 0.19), 1.13),
)
#: Function → what takes less time than it.
_OTHERS = {
    "numpy.savez_compressed": "numpy.savez writes without compressing",
    "pandas.DataFrame.to_csv": "to_parquet writes numbers as they are",
    "numpy.savetxt": "numpy.save writes numbers as they are",
}


def change_of_writing(shares: Shares, row: Row) -> tuple[str, Gain | None]:
    """What to change where a stage writes, and the gain of the program; None: not known."""
    name, spent = row.functions[0] if row.functions else ("", row.spent)
    used = [use for use in shares.trace.uses if use.name == name]
    here = [use for use in used if use.settings.get("line") == row.place] or used
    slow = (way for use in here for way in _ENCODINGS if name == _SAVE and way.applies(use))
    faster = next(slow, None)
    if faster is None:
        threads = f"write in {shares.trace.cores} threads, beside the loop"
        return _OTHERS.get(name, threads), None
    change = f"save with {faster.change}; the files grow by about {100 * (faster.size - 1):.0f} %"
    if len(used) > 1 or shares.is_busy_machine:
        return change, None
    share = row.share * spent.seconds / row.spent.seconds
    rates = [1 / (1 - share * (1 - left)) for left in (faster.left[2], *faster.left[1::-1])]
    return change, gain([1.0] * 3, rates, reach(shares.n_images**-0.5) - 1)
