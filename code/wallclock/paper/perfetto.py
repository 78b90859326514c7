"""The spans of figure 6 as Chrome trace events, for https://ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import opt, t4
from wallclock import records
from wallclock.files import canonical_json, write_bytes, write_text
from wallclock.paper import spans as recorded
from wallclock.paper.csvfile import Row
from wallclock.paper.rendering import NothingToDrawError, Rendering, read_sources
from wallclock.paper.spans import Span

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
        text = _text(read_sources(tables_dir, (csv,), ())[csv], csv)
    except NothingToDrawError as nothing:
        return Rendering(stem, (), str(nothing))
    path = out_dir / f"{stem}.json"
    write_text(path, text)
    return Rendering(stem, (path,))


def render_forward(out: Path, figures_dir: Path) -> Rendering:
    """Copy the trace that the experiment `layers` left with its record."""
    trace = records.attachment(out / "runs", "layers", _FORWARD)
    if trace is None:
        return Rendering(FORWARD_STEM, (), "no trace with the records of layers")
    write_bytes(figures_dir / _FORWARD, trace.read_bytes())
    return Rendering(FORWARD_STEM, (figures_dir / _FORWARD,))


def events(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Trace events: a named thread a lane, in the figure's order; then a complete event a span."""
    spans = recorded.parse(rows)
    lanes = recorded.lanes(spans)
    # Loaders start before the clock does, and a trace may not hold negative times.
    zero = min(span.start for span in spans)
    title = "{workers} workers, batch {batch_size}, {device}".format_map(rows[0])
    trace = [_event("M", 0, "process_name", name=title)]
    for tid, lane in enumerate(lanes, start=1):
        trace.append(_event("M", tid, "thread_name", name=lane))
        trace.append(_event("M", tid, "thread_sort_index", sort_index=tid))
    for tid, lane in enumerate(lanes, start=1):
        for span in _without_overlap([span for span in spans if span.lane == lane]):
            start, duration = round(1e3 * (span.start - zero), 3), round(1e3 * span.duration, 3)
            event = _event("X", tid, span.stage, batch=span.batch)
            trace.append(event | {"ts": start, "dur": duration})
    return trace


def _text(rows: Sequence[Row], csv: str) -> str:
    if not recorded.parse(rows):
        raise NothingToDrawError(f"no span in {csv}")
    head = canonical_json({name: rows[0][name] for name in rows[0] if name not in _SPAN_COLUMNS})
    # One event a line: a diff shows which span differs.
    lines = ",\n".join(canonical_json(event) for event in events(rows))
    return f'{{"displayTimeUnit":"ms","otherData":{head},"traceEvents":[\n{lines}\n]}}\n'


def _event(phase: str, tid: int, name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"ph": phase, "pid": 1, "tid": tid, "name": name, "args": arguments}


def _without_overlap(spans: Sequence[Span]) -> list[Span]:
    """Spans of one lane, cut where the rounding of their times makes neighbours overlap.

    Perfetto drops an event that overlaps another of its thread without lying inside it.
    """
    cut: list[Span] = []
    for span in spans:
        if cut and span.start < cut[-1].end:
            previous = cut.pop()
            if span.start > previous.start:
                cut.append(replace(previous, duration=span.start - previous.start))
        cut.append(span)
    return cut
