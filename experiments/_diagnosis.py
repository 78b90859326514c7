"""What a diagnosis says first, from rows of its tables: on its page and in the closing sentence."""

from collections.abc import Iterable

from experiments._sentences import TableRow
from experiments._words import number_in, percent

#: How the device of a box ends that is not here.
ELSEWHERE = ", not here"
#: A smaller predicted speedup is not noticeable.
NOTICEABLE = 1.05


def alone_by_speedup(predictions: Iterable[TableRow]) -> list[TableRow]:
    """Fixes alone, the largest predicted speedup first; those not predicted last."""
    alone = [row for row in predictions if row["kind"] == "alone"]
    return sorted(alone, key=lambda row: -(number_in(row["predicted_speedup"]) or 0))


def first_fix(predictions: Iterable[TableRow]) -> TableRow | None:
    """The fix to begin with: the most noticeable one that leaves the images as they are."""
    for row in alone_by_speedup(predictions):
        is_noticeable = (number_in(row["predicted_speedup"]) or 0) >= NOTICEABLE
        if row["status"] == "ok" and row["faithful"] == "yes" and is_noticeable:
            return row
    return None


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


def without_fix(bottleneck: TableRow) -> str:
    """What is said where no fix is noticeable."""
    takes = f"takes {percent(bottleneck['share'], 0)} of the time"
    if bottleneck["stage"] == "forward":
        network = f"The network on this {device_name(bottleneck)}"
        return f"{network} {takes}; no change of the loader helps."
    return f"{bottleneck['stage']} {takes}, and none of the fixes here shortens it noticeably."
