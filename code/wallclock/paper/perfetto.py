"""The spans of figure 6 as Chrome trace events: open the file at https://ui.perfetto.dev or in chrome://tracing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wallclock import records
from wallclock.files import canonical_json, write_bytes, write_text
from wallclock.paper import spans as recorded
from wallclock.paper.rendering import NothingToDrawError, Rendering, read_sources
from wallclock.paper.spans import Span

#: Name of the file, without `.json`, and the table that it is made from.
TRACES = {
    "fig-06-timeline-baseline.trace": "timeline-baseline.csv",
    "fig-06-timeline-optimized.trace": "timeline-optimized.csv",
}

#: The trace of the forward pass, as torch.profiler wrote it.
FORWARD = "trace-forward.json.gz"

_PID = 1


def render_all(tables_dir: Path, out_dir: Path) -> list[Rendering]:
    """Write a trace for each timeline that is there; say of the other why not."""
    found = []
    for stem, csv in TRACES.items():
        try:
            rows = read_sources(tables_dir, (csv,), ())[csv]
            text = _text(rows, csv)
        except NothingToDrawError as nothing:
            found.append(Rendering(stem, (), str(nothing)))
        else:
            path = out_dir / f"{stem}.json"
            write_text(path, text)
            found.append(Rendering(stem, (path,)))
    return found


def render_forward(out: Path, figures_dir: Path) -> Rendering:
    """Copy the trace that the experiment `layers` left beside its record."""
    stem, name = FORWARD.removesuffix(".json.gz"), FORWARD
    found = records.attachment(out / "runs", "layers", name)
    if found is None:
        return Rendering(stem, (), "no trace beside the records of layers")
    write_bytes(figures_dir / name, found.read_bytes())
    return Rendering(stem, (figures_dir / name,))


def events(rows: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Trace events: a thread a lane, named and in the figure's order; then a complete event a span."""
    spans = recorded.parse(rows)
    lanes = recorded.lanes(spans)
    # Loaders start before the clock does, and a trace may not hold negative times.
    zero = min(span.start for span in spans)
    found = [_metadata("process_name", 0, {"name": _title(rows[0])})]
    for tid, lane in enumerate(lanes, start=1):
        found += [
            _metadata("thread_name", tid, {"name": lane}),
            _metadata("thread_sort_index", tid, {"sort_index": tid}),
        ]
    for tid, lane in enumerate(lanes, start=1):
        for span in _apart([span for span in spans if span.lane == lane]):
            times = {
                "ts": round(1e3 * (span.start - zero), 3),
                "dur": round(1e3 * span.duration, 3),
            }
            found.append(
                {
                    "ph": "X",
                    "pid": _PID,
                    "tid": tid,
                    **times,
                    "name": span.stage,
                    "args": {"batch": span.batch},
                }
            )
    return found


def _text(rows: Sequence[Mapping[str, str]], csv: str) -> str:
    if not recorded.parse(rows):
        raise NothingToDrawError(f"no span in {csv}")
    head = canonical_json({name: rows[0][name] for name in rows[0] if name not in _SPAN_COLUMNS})
    # One event a line: a diff shows which span differs.
    lines = ",\n".join(canonical_json(event) for event in events(rows))
    return f'{{"displayTimeUnit":"ms","otherData":{head},"traceEvents":[\n{lines}\n]}}\n'


_SPAN_COLUMNS = ("lane", "stage", "batch", "start_ms", "duration_ms")


def _metadata(name: str, tid: int, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": _PID, "tid": tid, "name": name, "args": dict(args)}


def _title(row: Mapping[str, str]) -> str:
    return f"{row['workers']} workers, batch {row['batch_size']}, {row['device']}"


def _apart(spans: Sequence[Span]) -> list[Span]:
    """Spans of one lane that do not overlap: six digits of rounding may make neighbours do so.

    Perfetto drops an event that overlaps another of its thread without lying inside it.
    """
    found: list[Span] = []
    for span in spans:
        if found and span.start < found[-1].end:
            before = found.pop()
            if span.start > before.start:
                found.append(
                    Span(
                        before.lane,
                        before.stage,
                        before.batch,
                        before.start,
                        span.start - before.start,
                    )
                )
        found.append(span)
    return found
