"""What a diagnosis says first, from rows of its tables: on its page and in the closing sentence."""

from collections.abc import Iterable, Sequence

from experiments._sentences import TableRow
from experiments._words import number_in, percent
from wallclock.predict.intervals import NOTICEABLE, Gain

#: How the device of a box ends that is not here.
ELSEWHERE = ", not here"
#: Other programs disturb what is measured from so many cores on.
BUSY_CORES = 0.2
#: Passes over the costs that lie farther apart, relative, say that something else ran.
BUSY_SPREAD = 0.3


def gain_of(row: TableRow) -> float:
    """The speedup of a row: as measured, if it and the present recipe ran; else as predicted."""
    return number_in(row["measured_speedup"]) or number_in(row["predicted_speedup"]) or 0.0


def alone_by_speedup(predictions: Iterable[TableRow]) -> list[TableRow]:
    """Fixes alone, the largest speedup first; those not predicted last."""
    alone = [row for row in predictions if row["kind"] == "alone"]
    return sorted(alone, key=lambda row: -gain_of(row))


def is_recommended(row: TableRow) -> bool:
    """Whether a row's gain is noticeable, and was measured or predicted on a calm machine.

    Of what is only predicted, all of the interval must be a gain.
    """
    if row["status"] != "ok" or was_busy(row):
        return False
    speedup = gain_of(row)
    low = speedup if row["measured_speedup"] else number_in(row["low_speedup"]) or 0.0
    return Gain(speedup, low, speedup).is_recommended


def was_busy(row: TableRow) -> bool:
    """Whether something else ran while what a row says was measured: end to end, or its costs."""
    if row["measured_img_per_s"]:
        return (number_in(row["other_cores"]) or 0.0) >= BUSY_CORES
    cores, spread = number_in(row["cost_other_cores"]), number_in(row["cost_spread"])
    return (cores or 0.0) >= BUSY_CORES or (spread or 0.0) >= BUSY_SPREAD


def first_fix(predictions: Iterable[TableRow]) -> TableRow | None:
    """The fix to begin with: the one that gains most of those that are recommended."""
    return next((row for row in alone_by_speedup(predictions) if is_recommended(row)), None)


def fastest(predictions: Sequence[TableRow]) -> TableRow | None:
    """The setup that gains most, stacked fixes included; None where none is recommended."""
    rows = [row for row in predictions if row["kind"] in ("alone", "stacked")]
    rows = [row for row in rows if is_recommended(row)]
    return max(rows, key=gain_of, default=None)


def is_elsewhere(row: TableRow) -> bool:
    """Whether a row is of a box that is not here."""
    return row["device"].endswith(ELSEWHERE)


def is_on_cpu(row: TableRow) -> bool:
    """Whether the forward pass shares the cores with the loader."""
    return row["device_kind"] == "cpu" and row["weights"] != "none"


def device_name(row: TableRow) -> str:
    """What runs the forward pass."""
    if is_elsewhere(row):
        return row["device"].split()[0]
    if row["weights"] == "none":
        return "mock model"
    return "CPU" if is_on_cpu(row) else "GPU"


def bottleneck_of(stages: Iterable[TableRow]) -> TableRow:
    """The stage that limits the rate."""
    return next(row for row in stages if row["is_bottleneck"] == "yes")


def without_fix(stages: Sequence[TableRow], predictions: Sequence[TableRow]) -> str:
    """What is said first where no fix is recommended: why, and what would help."""
    present = next(row for row in predictions if row["kind"] == "present")
    if was_busy(present):
        return "No advice: something else ran while this was measured."
    bottleneck = bottleneck_of(stages)
    if bottleneck["stage"] == "forward":
        takes = percent(present["accelerator_utilization"], 0)
        return f"The model takes {takes} of the time; {_no_loader(present)}"
    possible = next(iter(alone_by_speedup(predictions)), None)
    if possible and gain_of(possible) >= NOTICEABLE and not possible["measured_speedup"]:
        return f"No fix is certain to gain: {possible['fix']} may. PROVE=1 measures it."
    takes = f"{bottleneck['stage']} takes {percent(bottleneck['share'], 0)} of the time"
    return f"{takes}, and none of the fixes here shortens it noticeably."


def _no_loader(present: TableRow) -> str:
    """What could help where the model takes the time."""
    bound = number_in(present["faster_accelerator_speedup"]) or 1.0
    text = "no loader will help"
    if bound < NOTICEABLE:
        return f"{text}."
    if is_on_cpu(present):
        return f"{text}; a GPU could."
    faster = "device" if present["weights"] == "none" else device_name(present)
    return f"{text}; a faster {faster} could."
