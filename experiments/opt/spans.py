"""The spans of a recorded run: which lane did what when, and a window of it that is complete."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from harness.table import Row
from wallclock.clock import STAGES

#: Not a stage: the main process waits for its loader to deliver.
WAIT = "wait"
GPU, MAIN = "gpu", "main"


@dataclass(frozen=True)
class Span:
    """One stage of one batch. Times are in milliseconds from the start of the steady state."""

    lane: str
    stage: str
    batch: int
    start: float
    duration: float

    @property
    def end(self) -> float:
        """When it ended."""
        return self.start + self.duration


def parse_spans(rows: Sequence[Row]) -> list[Span]:
    """The spans of a timeline table, by start; those of no length left out."""
    spans = []
    for row in rows:
        start, duration = row["start_ms"], row["duration_ms"]
        if start is not None and duration:
            spans.append(Span(row["lane"], row["stage"], row["batch"], start, duration))
    return sorted(spans, key=_order)


def lanes(spans: Sequence[Span]) -> list[str]:
    """The lanes from top to bottom: workers by number, the main process, the GPU."""
    return sorted({span.lane for span in spans}, key=_lane_order)


def device_lane(spans: Sequence[Span]) -> str:
    """The lane in which the forward pass runs: the GPU's, or on a CPU the main process's."""
    return GPU if any(span.lane == GPU for span in spans) else MAIN


@dataclass(frozen=True)
class Window:
    """A part of a recording, from the start of one forward pass to the start of another."""

    start: float
    end: float
    #: Forward passes that start in it.
    batches: int
    #: Whether every lane was recorded from its start to its end.
    complete: bool

    @property
    def length(self) -> float:
        """Milliseconds."""
        return self.end - self.start


def choose_window(
    spans: Sequence[Span], wanted: int = 8, at_least_ms: float = 0.0, total: int | None = None
) -> Window | None:
    """The first `wanted` batch periods in which every lane was recorded; more up to `at_least_ms`.

    Spans are recorded by batch, and loaders run ahead of the device: in the first milliseconds the
    device works on batches from before the recording, in the last ones the loaders on batches after
    it. What lies between is complete. If that is shorter than four periods, the window follows the
    device and is not `complete`. `total` is the number of batches of the run: a recording of all of
    them ends because the run did. Returns None where fewer than two forward passes were recorded.
    """
    forwards = [span.start for span in spans if span.stage == "forward"]
    all_recorded = total is not None and len({span.batch for span in spans}) >= total
    if len(forwards) < 2:
        return None
    intervals = [recorded_interval(spans, lane) for lane in lanes(spans)]
    ends = [end for _, end in intervals]
    begin = max(start for start, _ in intervals)
    stop = max(ends) if all_recorded else min(ends)
    starts = [start for start in forwards if begin <= start <= stop]
    complete = len(starts) > min(4, len(forwards) - 1)
    if not complete:
        starts = forwards
    bounds = starts[1 : wanted + 1]
    if complete:
        bounds += [start for start in starts[wanted + 1 :] if start - starts[0] <= at_least_ms]
    return Window(starts[0], bounds[-1], len(bounds), complete or all_recorded)


def recorded_interval(spans: Sequence[Span], lane: str) -> tuple[float, float]:
    """The first and the last millisecond in which a lane was recorded."""
    # The main process submits the device's work: both were recorded as long as either.
    together = (MAIN, GPU) if lane in (MAIN, GPU) else (lane,)
    recorded = [span for span in spans if span.lane in together]
    return min(span.start for span in recorded), max(span.end for span in recorded)


def busy_share(spans: Sequence[Span], lane: str, window: Window) -> float:
    """Share of the recorded part of a window in which a lane works; overlaps count once."""
    working = [span for span in spans if span.lane == lane and span.stage != WAIT]
    busy = 0.0
    reached = window.start
    for span in sorted(working, key=_order):
        start, end = max(span.start, reached), min(span.end, window.end)
        busy += max(0.0, end - start)
        reached = max(reached, end)
    first, last = recorded_interval(spans, lane)
    return busy / (min(window.end, last) - max(window.start, first))


def merge_by_stage(spans: Sequence[Span]) -> list[Span]:
    """Each batch of a worker as one span a stage, in the stages' order, from its first start.

    A worker takes image after image through its stages; the sums are kept, the positions are not.
    """
    loading = [span for span in spans if _rank(span.stage) <= _rank("assemble")]
    result = [span for span in spans if _rank(span.stage) > _rank("assemble")]
    batches: dict[tuple[str, int], list[Span]] = {}
    for span in loading:
        batches.setdefault((span.lane, span.batch), []).append(span)
    for (lane, batch), members in batches.items():
        start = members[0].start
        for stage in STAGES:
            duration = sum(span.duration for span in members if span.stage == stage)
            if duration:
                result.append(Span(lane, stage, batch, start, duration))
                start += duration
    return sorted(result, key=_order)


def total_batches(rows: Sequence[Row]) -> int | None:
    """Batches of the run that a timeline table was recorded from."""
    first = rows[0] if rows else {}
    images, batch = first.get("n_images"), first.get("batch_size")
    return ceil(images / batch) if images and batch else None


def _lane_order(lane: str) -> tuple[int, int, str]:
    words = lane.split()
    if words[0] == "worker" and words[-1].isdecimal():
        return 0, int(words[-1]), lane
    return {MAIN: 1, GPU: 2}.get(lane, 0), 0, lane


def _order(span: Span) -> tuple[float, str, int]:
    return span.start, span.lane, _rank(span.stage)


def _rank(stage: str) -> int:
    return STAGES.index(stage) if stage in STAGES else len(STAGES)
