"""Images per second of `open_images` over a program's files: `wallclock trace --try` measures it.

`measure` runs in a process of its own (`main`): nothing of the trace or the report takes its time.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from wallclock.errors import Unavailable, UserError

#: Seconds in which files are loaded for the first time, after the first batch: those are measured.
_FIRST_S = 2.0
#: Seconds of a pass, of which threads take a few milliseconds to start, and of all passes at least.
_PASS_S, _ALL_S = 0.7, 2.0
_LEAST_PASSES, _MOST_PASSES = 3, 12

Clock = Callable[[], float]


@dataclass(frozen=True)
class Request:
    """What to load, and how: `options` of `open_images`, of which `augment` is an `Augment`'s."""

    paths: Sequence[str]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Pass:
    """Images that one pass over the files gave; its wall and CPU seconds."""

    images: int
    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class Measured:
    """`passes` over `n_files` files. `failures`: files that could not be loaded; `reason`: one."""

    passes: tuple[Pass, ...]
    n_files: int
    failures: int
    reason: str


def measure(
    request: Request,
    open_batches: Callable[..., Any],
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
) -> Measured:
    """Load the files once, which brings them to memory, then pass over them again and again.

    Args:
        open_batches: `open_images`. clock, cpu_clock: seconds of the wall and of all threads.

    Returns:
        At least three passes of together two seconds; none where no file could be loaded.
    """
    paths, failures = _first_files(request, open_batches, clock)
    reason = failures[0] if failures else ""
    if not paths:
        return Measured((), 0, len(failures), reason)
    request = Request(paths, request.options)
    rehearsal = _pass(request, 1, open_batches, clock, cpu_clock)
    epochs = ceil(_PASS_S / rehearsal.seconds) if rehearsal.seconds > 0 else 1
    passes: list[Pass] = []
    while len(passes) < _LEAST_PASSES or (
        sum(each.seconds for each in passes) < _ALL_S and len(passes) < _MOST_PASSES
    ):
        passes.append(_pass(request, epochs, open_batches, clock, cpu_clock))
    return Measured(tuple(passes), len(paths), len(failures), reason)


def _first_files(
    request: Request, open_batches: Callable[..., Any], clock: Clock
) -> tuple[list[str], list[str]]:
    """The files that are loaded until the time is over, in order; why others could not be."""
    paths: list[str] = []
    failures: list[str] = []
    started = None
    with open_batches(request.paths, **request.options) as batches:
        for batch in batches:
            paths += batch.ids
            failures += [f"{failure['id']}: {failure['reason']}" for failure in batch.failures]
            started = clock() if started is None else started
            if clock() - started > _FIRST_S:
                break
    return paths, failures


def _pass(
    request: Request, epochs: int, open_batches: Callable[..., Any], clock: Clock, cpu_clock: Clock
) -> Pass:
    started, cpu_started = clock(), cpu_clock()
    images = 0
    with open_batches(request.paths, epochs=epochs, **request.options) as batches:
        for batch in batches:
            images += len(batch.ids)
    return Pass(images, clock() - started, cpu_clock() - cpu_started)


def main() -> None:
    """Read a `Request` as JSON from standard input; write a `Measured`, or why there is none."""
    from wallclock.loader.images import open_images
    from wallclock.stages.augment import Augment

    given = json.load(sys.stdin)
    options = given["options"]
    try:
        if "augment" in options:
            options["augment"] = Augment(**options["augment"])
        answer = asdict(measure(Request(given["paths"], options), open_images))
    except (UserError, Unavailable) as error:
        answer = {"error": str(error)}
    # Libraries may write to standard output before: the answer is the last line.
    print(f"\n{json.dumps(answer)}")
