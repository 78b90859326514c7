"""When other programs disturb a pass, what is done about it: the rule of every measurement.

A pass is disturbed while others keep more than a twentieth of the cores busy (`limit`), which is as
much as repeats of a quiet machine differ by. It is taken again, up to `TRIES` times. If none was
calm the calmest stands, its record says so (`is_disturbed`), and no table takes a ratio from it.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from wallclock.machine import usable_cores

#: Of the cores, what all other processes may keep busy together; and so many of them at least.
_SHARE, _LEAST_CORES = 0.05, 0.1
#: Passes of one measurement, at most.
TRIES = 3

T = TypeVar("T")


def limit(cores: int) -> float:
    """How many of so many cores others may keep busy."""
    return max(_SHARE * cores, _LEAST_CORES)


def take_calmest(
    take_pass: Callable[[dict[str, Any]], T],
    values: dict[str, Any],
    tries: int = TRIES,
    cores: int | None = None,
) -> T:
    """Take a pass until one is not disturbed, `tries` times at most; the calmest one's result.

    Args:
        take_pass: measures once, and adds `other_cores` to the dictionary that it is given, as
            `harness.protocols.protocol.competing` does.
        values: of the record. Gets `other_cores` of the pass that counts, and where passes were
            discarded `discarded_other_cores`, theirs.
        cores: that the process may use; None: counted.
    """
    passes: list[tuple[float, T]] = []
    most = limit(cores or usable_cores())
    while not passes or (len(passes) < tries and passes[-1][0] > most):
        readings: dict[str, Any] = {}
        result = take_pass(readings)
        passes.append((float(readings["other_cores"]), result))
    calmest = min(range(len(passes)), key=lambda index: passes[index][0])
    others, result = passes.pop(calmest)
    values["other_cores"] = others
    if passes:
        values["discarded_other_cores"] = [taken for taken, _ in passes]
    return result


def other_cores(values: Mapping[str, Any]) -> float | None:
    """Cores that others kept busy during a record's pass; None where its protocol did not look.

    Its own reading, or the mean of the telemetry's samples.
    """
    if "other_cores" in values:
        return float(values["other_cores"])
    samples = values.get("telemetry", {}).get("other_cores")
    return sum(samples) / len(samples) if samples else None


def is_disturbed(values: Mapping[str, Any], cores: int) -> bool:
    """Whether a record's pass on so many cores was disturbed; calm where none was looked for."""
    return (other_cores(values) or 0.0) > limit(cores)
