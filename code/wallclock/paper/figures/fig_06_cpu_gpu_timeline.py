"""Figure 6: what every worker and the device did when, from spans recorded in a real run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from wallclock.clock import STAGES
from wallclock.paper import spans as recorded
from wallclock.paper.figures.style import (
    EDGE,
    GREY,
    INK,
    STAGE_STYLES,
    Row,
    caption,
    is_dark,
    new_figure,
    place_caption,
)
from wallclock.paper.rendering import NothingToDrawError, Tables
from wallclock.paper.spans import WAIT, Span, Window

STEM = "fig-06-cpu-gpu-timeline"
TITLE = "What every worker and the device did when, recorded: baseline above, optimized below"
SOURCES: tuple[str, ...] = ()
OPTIONAL: tuple[str, ...] = ("timeline-baseline.csv", "timeline-optimized.csv")

_NAMES = {"timeline-baseline.csv": "Baseline", "timeline-optimized.csv": "Optimized"}
_WAIT_STYLE = ("#F1F1F1", "")
_LANE_HEIGHT = 0.74
#: From this ratio of the two windows on, one scale would leave the shorter one illegible.
_MAX_RATIO = 20
#: Spans narrower than this share of the axis (a point on paper) would be a smear.
_LEGIBLE = 1 / 450


@dataclass(frozen=True)
class _Run:
    """One recording and the stretch of it that is shown."""

    csv: str
    rows: Sequence[Row]
    spans: Sequence[Span]
    window: Window

    @property
    def row(self) -> Row:
        """What all its rows say alike."""
        return self.rows[0]


def draw(tables: Tables) -> Figure:
    """A panel a run: lanes from top to bottom, time to the right.

    Raises:
        NothingToDrawError: no recording holds two forward passes.
    """
    runs = _runs(tables)
    longest = max(run.window.length for run in runs)
    one_scale = longest <= _MAX_RATIO * min(run.window.length for run in runs)
    heights = [len(recorded.lanes(run.spans)) + 1.6 for run in runs]
    figure = new_figure(1.0 + 0.19 * sum(heights))
    panels = figure.subplots(len(runs), 1, squeeze=False, height_ratios=heights)[:, 0]
    remarks = ["recorded spans, not a model"]
    remarks += [
        f"{_NAMES[name].lower()}: too few batches to show"
        for name in tables
        if name not in {run.csv for run in runs}
    ]
    for axes, run in zip(panels, runs, strict=True):
        span = longest if one_scale else run.window.length
        remarks += [words for words in _panel(axes, run, span) if words not in remarks]
    panels[-1].set_xlabel(
        "milliseconds" if one_scale else "milliseconds (the two panels have different scales)"
    )
    _legend(figure, runs)
    sizes = " / ".join(dict.fromkeys(f"{int(run.row['n_images']):,}" for run in runs))
    place_caption(
        figure,
        caption(
            [{**run.row, "n_images": ""} for run in runs], f"of a run of {sizes} images", *remarks
        ),
    )
    return figure


def _runs(tables: Mapping[str, Sequence[Row]]) -> list[_Run]:
    parsed = {name: recorded.parse(rows) for name, rows in tables.items() if rows}
    totals = {name: recorded.total_batches(tables[name]) for name in parsed}
    windows = {
        name: recorded.choose_window(spans, total=totals[name]) for name, spans in parsed.items()
    }
    longest = max((window.length for window in windows.values() if window), default=0.0)
    found = []
    for name, spans in parsed.items():
        # The faster run shows as many batches as fit beside the slower one's.
        window = recorded.choose_window(spans, at_least_ms=longest, total=totals[name])
        if window is not None:
            found.append(_Run(name, tables[name], spans, window))
    if not found:
        raise NothingToDrawError(f"no two forward passes were recorded in {', '.join(tables)}")
    return found


def _panel(axes: Axes, run: _Run, span_ms: float) -> list[str]:
    """Draw one run; return what the caption must say of it."""
    remarks = []
    spans = [
        span for span in run.spans if span.end > run.window.start and span.start < run.window.end
    ]
    loading = sorted(span.duration for span in spans if span.stage in STAGES[:4])
    if loading and loading[len(loading) // 2] < _LEGIBLE * span_ms:
        spans = recorded.grouped(run.spans)
        remarks.append(
            "a worker's stages alternate image by image and are drawn together, batch by batch"
        )
    lanes = recorded.lanes(run.spans)
    for span in spans:
        _draw_span(axes, lanes.index(span.lane), span, run.window, span_ms)
    if not run.window.whole:
        _hatch_unrecorded(axes, run, lanes)
        remarks.append("hatched: not recorded")
    device = recorded.device_lane(run.spans)
    busy = recorded.busy_share(run.spans, device, run.window)
    names = [f"{lane}, {100 * busy:.0f} % busy" if lane == device else lane for lane in lanes]
    axes.set_yticks(range(len(lanes)), names)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.set_xlim(0, span_ms)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_title(_title(run))
    return remarks


def _title(run: _Run) -> str:
    row, batches, length = run.row, run.window.batches, run.window.length
    plural = "" if batches == 1 else "es"
    return (
        f"{_NAMES[run.csv]}: {row['workers']} workers, batch {row['batch_size']} · {batches} batch{plural}, "
        f"{min(batches * int(row['batch_size']), int(row['n_images'])):,} images in {length:,.0f} ms"
    )


def _draw_span(axes: Axes, lane: int, span: Span, window: Window, span_ms: float) -> None:
    start, end = (
        max(span.start, window.start) - window.start,
        min(span.end, window.end) - window.start,
    )
    if end <= start:
        return
    fill, hatch = _WAIT_STYLE if span.stage == WAIT else STAGE_STYLES[span.stage]
    outline = 0.0 if span.stage == WAIT else 0.25
    box = Rectangle(
        (start, lane - _LANE_HEIGHT / 2), end - start, _LANE_HEIGHT,
        facecolor=fill, hatch=hatch, edgecolor=INK, linewidth=outline,
    )  # fmt: skip
    axes.add_patch(box)
    if span.stage == "forward" and end - start > 0.045 * span_ms:
        axes.text(
            (start + end) / 2, lane, str(span.batch), ha="center", va="center", fontsize=6.5,
            color="white" if is_dark(fill) else INK,
        )  # fmt: skip


def _hatch_unrecorded(axes: Axes, run: _Run, lanes: Sequence[str]) -> None:
    for position, lane in enumerate(lanes):
        first, last = recorded.recorded_from_to(run.spans, lane)
        for start, end in ((run.window.start, first), (last, run.window.end)):
            start, end = max(start, run.window.start), min(end, run.window.end)
            if end > start:
                axes.barh(
                    position, end - start, left=start - run.window.start, height=_LANE_HEIGHT,
                    facecolor="none", edgecolor="#BBBBBB", hatch="////", linewidth=0,
                )  # fmt: skip


def _legend(figure: Figure, runs: Sequence[_Run]) -> None:
    seen = {span.stage for run in runs for span in run.spans}
    handles = []
    for name in (*STAGES, WAIT):
        if name in seen:
            fill, hatch = _WAIT_STYLE if name == WAIT else STAGE_STYLES[name]
            handles.append(Patch(facecolor=fill, hatch=hatch * 2, label=name, **EDGE))
    figure.legend(
        handles=handles, loc="outside upper left", ncols=len(handles), handlelength=1.1, handleheight=1.1,
        handletextpad=0.4, columnspacing=0.9, labelcolor=GREY,
    )  # fmt: skip
