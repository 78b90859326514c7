"""What would make writing images faster, as measured on photos.

The times are ratios of core seconds over 24 photos of 256 and of 1,024 px (Pillow 12): the median,
and what nine of ten lie between.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wallclock.predict.intervals import Gain, gain, reach
from wallclock.trace.record import Use
from wallclock.trace.shares import Row, Shares

_SAVE = "PIL.Image.save"


@dataclass(frozen=True)
class Encoding:
    """A faster way to encode: `left`, of the time, at least, in the middle and at most."""

    format: str
    applies: Callable[[Mapping[str, str]], bool]
    change: str
    left: tuple[float, float, float]
    size: float


def _has(told: Mapping[str, str], key: str, least: int, usual: int = 0) -> bool:
    """Whether the encoder was told a number of at least this; by itself it takes `usual`."""
    value = told.get(key, f"{usual}")
    number = int(value) if value.isdigit() else value != "False"
    return number >= least


_FASTEST_PNG = "compress_level=1, without optimize=True"
_SLOW_PNG = 0.054, 0.12, 0.21
#: The first that applies is the one to name.
_ENCODINGS = (
    Encoding("PNG", lambda told: _has(told, "optimize", 1), _FASTEST_PNG, _SLOW_PNG, 1.13),
    Encoding(
        "PNG", lambda told: _has(told, "compress_level", 7, 6), "compress_level=1", _SLOW_PNG, 1.13
    ),
    Encoding(
        "PNG",
        lambda told: _has(told, "compress_level", 4, 6),
        "compress_level=1",
        (0.24, 0.35, 0.46),
        1.11,
    ),
    Encoding("WEBP", lambda told: _has(told, "method", 1, 4), "method=0", (0.045, 0.3, 0.36), 1.3),
    Encoding(
        "AVIF", lambda told: not _has(told, "speed", 7, 6), "speed=10", (0.077, 0.12, 0.19), 1.13
    ),
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
    faster = next(filter(None, map(_faster, here)), None) if name == _SAVE else None
    if faster is None:
        if name in _OTHERS:
            return _OTHERS[name], None
        return f"write in {shares.trace.cores} threads, beside the loop", None
    grows = f"the files grow by about {100 * (faster.size - 1):.0f} %"
    share = row.share * spent.seconds / row.spent.seconds
    if len(used) > 1 or shares.is_busy_machine:
        return f"save with {faster.change}; {grows}", None
    rates = [1 / (1 - share * (1 - left)) for left in (faster.left[2], *faster.left[1::-1])]
    error = reach(shares.n_images**-0.5) - 1
    return f"save with {faster.change}; {grows}", gain([1.0] * 3, rates, error)


def _faster(use: Use) -> Encoding | None:
    told = use.settings
    for encoding in _ENCODINGS:
        if encoding.format == told.get("format") and encoding.applies(told):
            return encoding
    return None
