"""The spans of figure 6 as Chrome trace events, for https://ui.perfetto.dev or chrome://tracing."""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from experiments import opt, t4
from harness import records
from paper.csvfile import Row
from paper.rendering import NothingToDrawError, Rendering, read_sources
from paper.spans import Span, lanes, parse_spans
from wallclock.files import canonical_json, write_bytes, write_text

#: Name of the file, without `.json`, and the table that it is made from.
TRACES = {
    "fig-06-timeline-baseline.trace": t4.TIMELINE_CSV,
    "fig-06-timeline-optimized.trace": opt.TIMELINE_CSV,
}

#: The trace of the forward pass, as torch.profiler wrote it.
FORWARD_STEM = "trace-forward"
_FORWARD = f"{FORWARD_STEM}.json.gz"

_SPAN_COLUMNS = ("lane", "stage", "batch", "start_ms", "duration_ms")


def render(stem: str, tables_dir: Path, out_dir: Path) -> Rendering:
    """Write the trace of one timeline, or say why there is none."""
    csv = TRACES[stem]
    try:
        rows = read_sources(tables_dir, (csv,), ())[csv]
    except NothingToDrawError as nothing:
        return Rendering(stem, (), str(nothing))
    if not parse_spans(rows):
        return Rendering(stem, (), f"no span in {csv}")
    head = canonical_json({name: rows[0][name] for name in rows[0] if name not in _SPAN_COLUMNS})
    # One event a line: a diff shows which span differs.
    lines = ",\n".join(canonical_json(event) for event in events(rows))
    text = f'{{"displayTimeUnit":"ms","otherData":{head},"traceEvents":[\n{lines}\n]}}\n'
    write_text(out_dir / f"{stem}.json", text)
    return Rendering(stem, (out_dir / f"{stem}.json",))


def render_forward(out: Path, figures_dir: Path) -> Rendering:
    """Copy the trace that the experiment `layers` left with its record."""
    trace = records.attachment(out / "runs", "layers", _FORWARD)
    if trace is None:
        return Rendering(FORWARD_STEM, (), "no trace with the records of layers")
    write_bytes(figures_dir / _FORWARD, trace.read_bytes())
    return Rendering(FORWARD_STEM, (figures_dir / _FORWARD,))


def events(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Trace events: a named thread a lane, in the figure's order; then a complete event a span."""
    spans = parse_spans(rows)
    threads = dict(enumerate(lanes(spans), start=1))
    # Loaders start before the clock does, and a trace may not hold negative times.
    zero_ms = min(span.start for span in spans)
    title = "{workers} workers, batch {batch_size}, {device}".format_map(rows[0])
    trace = [_event("M", 0, "process_name", name=title)]
    for tid, lane in threads.items():
        trace.append(_event("M", tid, "thread_name", name=lane))
        trace.append(_event("M", tid, "thread_sort_index", sort_index=tid))
    for tid, lane in threads.items():
        trace += _lane_events(tid, [span for span in spans if span.lane == lane], zero_ms)
    return trace


def _lane_events(tid: int, spans: Sequence[Span], zero_ms: float) -> list[dict[str, Any]]:
    """A complete event for each span of one lane, in microseconds from `zero_ms`."""
    trace = []
    next_starts = [*(span.start for span in spans[1:]), inf]
    # Rounding makes neighbours overlap, and Perfetto drops an event that overlaps another of
    # its thread without lying inside it.
    for span, next_start in zip(spans, next_starts, strict=True):
        duration = span.duration if span.end <= next_start else next_start - span.start
        if not duration:
            continue
        event = _event("X", tid, span.stage, batch=span.batch)
        event["ts"] = round(1e3 * (span.start - zero_ms), 3)
        event["dur"] = round(1e3 * duration, 3)
        trace.append(event)
    return trace


def _event(phase: str, tid: int, name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"ph": phase, "pid": 1, "tid": tid, "name": name, "args": arguments}
