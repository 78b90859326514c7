"""Figure 6: what every worker and the device did when, from spans recorded in a real run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.opt import cells as opt
from experiments.opt.spans import (
    WAIT,
    Span,
    Window,
    busy_share,
    choose_window,
    device_lane,
    lanes,
    merge_by_stage,
    parse_spans,
    recorded_interval,
    total_batches,
)
from experiments.t4 import cells as t4
from harness.drawing import style
from harness.drawing.format import count_noun, percent
from harness.drawing.labels import SHORT_SETS
from harness.drawing.rendering import NothingToDrawError, Tables, output
from harness.table import Row, join_distinct
from wallclock.clock import STAGES

_NAMES = {t4.TIMELINE_CSV: "Baseline", opt.TIMELINE_CSV: "Optimized"}
_STYLES = dict(style.STAGE_STYLES) | {WAIT: ("#F1F1F1", "")}
_LANE_HEIGHT = 0.74
#: From this ratio of the two windows on, one scale would leave the shorter one illegible.
_MAX_RATIO = 20
#: Spans narrower than this share of the axis (a point on paper) are too narrow to draw.
_LEGIBLE = 1 / 450


@dataclass(frozen=True)
class _Run:
    """One recording and the stretch of it that is shown."""

    csv: str
    #: Its first row: machine and settings are equal in all.
    row: Row
    spans: Sequence[Span]
    window: Window


@output(
    "fig-06-cpu-gpu-timeline",
    "What every worker and the device did when, recorded: baseline above, optimized below",
    optional=(t4.TIMELINE_CSV, opt.TIMELINE_CSV),
)
def draw(tables: Tables) -> Figure:
    """A panel per run: lanes from top to bottom, time to the right."""
    runs = _runs(tables)
    lengths = [run.window.length for run in runs]
    same_scale = max(lengths) <= _MAX_RATIO * min(lengths)
    heights = [len(lanes(run.spans)) + 1.6 for run in runs]
    figure = style.new_figure(1.0 + 0.19 * sum(heights))
    panels = figure.subplots(len(runs), 1, squeeze=False, height_ratios=heights)[:, 0]
    drawn = {run.csv for run in runs}
    missing = [_NAMES[name].lower() for name in tables if name not in drawn]
    remarks = ["recorded spans, not a model"]
    remarks += [f"{name}: too few batches to show" for name in missing]
    for axes, run in zip(panels, runs, strict=True):
        remarks += _panel(axes, run, max(lengths) if same_scale else run.window.length)
    scales = "" if same_scale else " (the two panels have different scales)"
    panels[-1].set_xlabel(f"milliseconds{scales}")
    stages = {span.stage for run in runs for span in run.spans}
    style.place_legend(figure, {name: _STYLES[name] for name in _STYLES if name in stages})
    sizes = " / ".join(dict.fromkeys(f"{run.row['n_images']:,}" for run in runs))
    rows = [dict(run.row) | {"n_images": ""} for run in runs]
    images = join_distinct(rows, "image_set", SHORT_SETS)
    style.place_caption(figure, rows, f"of a run of {sizes} {images}", *dict.fromkeys(remarks))
    return figure


def _runs(tables: Tables) -> list[_Run]:
    recordings = {name: parse_spans(rows) for name, rows in tables.items() if rows}
    totals = {name: total_batches(tables[name]) for name in recordings}
    windows = [choose_window(spans, total=totals[name]) for name, spans in recordings.items()]
    longest = max((window.length for window in windows if window), default=0.0)
    runs = []
    for name, spans in recordings.items():
        # The faster run shows as many batches as fit into the slower one's window.
        window = choose_window(spans, at_least_ms=longest, total=totals[name])
        if window is not None:
            runs.append(_Run(name, tables[name][0], spans, window))
    if not runs:
        raise NothingToDrawError(f"no two forward passes were recorded in {', '.join(tables)}")
    return runs


def _panel(axes: Axes, run: _Run, span_ms: float) -> list[str]:
    """Draw one run; return remarks for the caption."""
    remarks = []
    spans, window = run.spans, run.window
    visible = [span for span in spans if span.end > window.start and span.start < window.end]
    loading = sorted(span.duration for span in visible if span.stage in STAGES[:4])
    if loading and loading[len(loading) // 2] < _LEGIBLE * span_ms:
        spans = merge_by_stage(run.spans)
        remarks.append(
            "a worker's stages alternate image by image and are drawn together, batch by batch"
        )
    lane_names = lanes(run.spans)
    for span in spans:
        _draw_span(axes, lane_names.index(span.lane), span, window, span_ms)
    if not window.complete:
        _hatch_unrecorded(axes, run, lane_names)
        remarks.append("hatched: not recorded")
    device = device_lane(run.spans)
    busy = f"{percent(busy_share(run.spans, device, window), 0)} busy"
    name = "mock model" if run.row["weights"] == "none" else device
    labels = [f"{name}, {busy}" if lane == device else lane for lane in lane_names]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xlim(0, span_ms)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter("{x:,g}")
    row = run.row
    n_images = min(window.batches * row["batch_size"], row["n_images"])
    axes.set_title(
        f"{_NAMES[run.csv]}: {row['workers']} workers, batch {row['batch_size']} · "
        f"{count_noun(window.batches, 'batch')}, {n_images:,} images in {window.length:,.0f} ms"
    )
    return remarks


def _draw_span(axes: Axes, lane: int, span: Span, window: Window, span_ms: float) -> None:
    start = max(span.start, window.start) - window.start
    end = min(span.end, window.end) - window.start
    if end <= start:
        return
    fill, hatch = _STYLES[span.stage]
    box = Rectangle(
        (start, lane - _LANE_HEIGHT / 2), end - start, _LANE_HEIGHT, facecolor=fill, hatch=hatch,
        edgecolor=style.INK, linewidth=0.0 if span.stage == WAIT else 0.25,
    )  # fmt: skip
    axes.add_patch(box)
    if span.stage == "forward" and end - start > 0.045 * span_ms:
        style.write_inside(axes, (start + end) / 2, lane, str(span.batch), fill, fontsize=6.5)


def _hatch_unrecorded(axes: Axes, run: _Run, lane_names: Sequence[str]) -> None:
    """Hatch what of the window lies before the first span of a lane, and after the last."""
    look: dict[str, Any] = {"fc": "none", "ec": "#BBBBBB", "hatch": "////", "lw": 0}
    window = run.window
    for lane, name in enumerate(lane_names):
        first, last = recorded_interval(run.spans, name)
        before = (window.start, min(first, window.end))
        after = (max(last, window.start), window.end)
        for start, end in (before, after):
            if end > start:
                left = start - window.start
                axes.barh(lane, end - start, left=left, height=_LANE_HEIGHT, **look)
