"""The spans of a recorded run: which lane did what when, and a stretch of it that is whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from wallclock.clock import STAGES
from wallclock.paper.csvfile import number

#: Not a stage: the main process has nothing to do until its loader delivers.
WAIT = "wait"
GPU, MAIN = "gpu", "main"
#: A run of so few batches has no stretch worth choosing.
_FEW = 3


@dataclass(frozen=True)
class Span:
    """One stretch of work. Times are in milliseconds from the start of the steady state."""

    lane: str
    stage: str
    batch: int
    start: float
    duration: float

    @property
    def end(self) -> float:
        """When it was over."""
        return self.start + self.duration


def parse(rows: Sequence[Mapping[str, str]]) -> list[Span]:
    """The spans of a timeline table, by start; those of no length left out."""
    found = []
    for row in rows:
        start, duration = number(row["start_ms"]), number(row["duration_ms"])
        if start is not None and duration:
            found.append(Span(row["lane"], row["stage"], int(row["batch"]), start, duration))
    return sorted(found, key=lambda span: (span.start, span.lane, _place(span.stage)))


def lanes(spans: Sequence[Span]) -> list[str]:
    """The lanes from top to bottom: workers by number, the main process, the GPU."""
    return sorted({span.lane for span in spans}, key=_lane_order)


def device_lane(spans: Sequence[Span]) -> str:
    """The lane in which the forward pass runs: the GPU's, or on a CPU the main process's."""
    return GPU if any(span.lane == GPU for span in spans) else MAIN


@dataclass(frozen=True)
class Window:
    """A stretch of a recording, from the start of one forward pass to the start of another."""

    start: float
    end: float
    #: Forward passes that start in it.
    batches: int
    #: Whether every lane was recorded from its start to its end.
    whole: bool

    @property
    def length(self) -> float:
        """Milliseconds."""
        return self.end - self.start


def choose_window(
    spans: Sequence[Span], wanted: int = 8, at_least_ms: float = 0.0, total: int | None = None
) -> Window | None:
    """The first stretch of `wanted` batch periods where every lane was recorded; up to `at_least_ms`, of more.

    Spans are recorded by batch, and loaders run ahead of the device: in the first milliseconds the
    device works on batches from before the recording, in the last ones the loaders on batches after
    it. Between the two lies what is whole. Where that is shorter than four periods, the stretch
    follows the device and is not `whole`. `total` is the number of batches of the run: a recording
    that has all of them ends because the run did, and one of very few batches is shown from end to end.

    Returns:
        None where fewer than two forward passes were recorded.
    """
    starts = [span.start for span in spans if span.stage == "forward"]
    complete = total is not None and len({span.batch for span in spans}) >= total
    if complete and 0 < len(starts) <= _FEW:
        return Window(
            min(span.start for span in spans),
            max(span.end for span in spans),
            len(starts),
            whole=False,
        )
    if len(starts) < 2:
        return None
    ends_of = [recorded_from_to(spans, lane) for lane in lanes(spans)]
    first, last = [start for start, _ in ends_of], [end for _, end in ends_of]
    begin, stop = max(first), max(last) if complete else min(last)
    inside = [start for start in starts if begin <= start <= stop]
    whole = len(inside) > min(4, len(starts) - 1)
    if not whole:
        inside = starts
    ends = inside[1 : wanted + 1]
    if whole:
        ends += [start for start in inside[wanted + 1 :] if start - inside[0] <= at_least_ms]
    return Window(inside[0], ends[-1], len(ends), whole or complete)


def recorded_from_to(spans: Sequence[Span], lane: str) -> tuple[float, float]:
    """The first and the last moment that a lane was recorded at."""
    # The main process hands the device its work: both were recorded as long as either.
    together = (MAIN, GPU) if lane in (MAIN, GPU) else (lane,)
    own = [span for span in spans if span.lane in together]
    return min(span.start for span in own), max(span.end for span in own)


def busy_share(spans: Sequence[Span], lane: str, window: Window) -> float:
    """The share of the recorded part of the window in which the lane does not wait; overlaps count once."""
    pieces = sorted(
        (max(span.start, window.start), min(span.end, window.end))
        for span in spans
        if span.lane == lane
        and span.stage != WAIT
        and span.end > window.start
        and span.start < window.end
    )
    total, reached = 0.0, window.start
    for start, end in pieces:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    first, last = recorded_from_to(spans, lane)
    return total / (min(window.end, last) - max(window.start, first))


def grouped(spans: Sequence[Span]) -> list[Span]:
    """Each batch of a worker as one span a stage, in the stages' order, from the batch's first start.

    A worker takes image after image through its stages; their sums are kept, their places are not.
    """
    found: list[Span] = []
    batches: dict[tuple[str, int], list[Span]] = {}
    for span in spans:
        if STAGES.index(span.stage) <= STAGES.index("assemble") if span.stage in STAGES else False:
            batches.setdefault((span.lane, span.batch), []).append(span)
        else:
            found.append(span)
    for (lane, batch), members in batches.items():
        at = members[0].start
        for stage in STAGES:
            duration = sum(span.duration for span in members if span.stage == stage)
            if duration:
                found.append(Span(lane, stage, batch, at, duration))
                at += duration
    return sorted(found, key=lambda span: (span.start, span.lane, _place(span.stage)))


def total_batches(rows: Sequence[Mapping[str, str]]) -> int | None:
    """Batches of the whole run that a timeline table was recorded from."""
    if not rows or not number(rows[0]["n_images"]) or not number(rows[0]["batch_size"]):
        return None
    return ceil(float(rows[0]["n_images"]) / float(rows[0]["batch_size"]))


def _lane_order(lane: str) -> tuple[int, int, str]:
    words = lane.split()
    if words[0] == "worker" and words[-1].isdecimal():
        return 0, int(words[-1]), lane
    return {MAIN: 1, GPU: 2}.get(lane, 0), 0, lane


def _place(stage: str) -> int:
    return STAGES.index(stage) if stage in STAGES else len(STAGES)
