"""Figures 3, 5, 10 and 13: decoders, runtimes, and throughput by step and by rung, as bars."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import _pairs, ablation, decoders, onnx, steps
from harness.csvfile import Row, distinct, join_distinct, number, ok_rows
from harness.spec import IMAGE_SETS
from paper.figures import style
from paper.format import digits, factor, percent
from paper.labels import ABLATION, DECODERS, RUNTIMES, SETS, SHORT_SETS, STEPS
from paper.rendering import NothingToDrawError, Tables, output

#: The bar of a runtime of ONNX Runtime's; all others are blue.
_ONNX_BAR = "#E8B54D"
#: A rate, its slowest and its fastest repeat.
_RATE_COLUMNS = ("img_per_s", "img_per_s_min", "img_per_s_max")


@output(
    "fig-03-decoder-comparison",
    "Milliseconds to decode one image, by decoder and image set",
    decoders.CSV,
)
def draw_decoders(tables: Tables) -> Figure:
    """Mean time per decoder, with a line from p50 to p90; a panel per image set."""
    rows = tables[decoders.CSV]
    measured = ok_rows(rows)
    names = distinct(rows, "decoder")
    sets = [name for name in IMAGE_SETS if name in distinct(measured, "image_set")]
    if not sets:
        valid = " or ".join(IMAGE_SETS)
        raise NothingToDrawError(f"no row in {decoders.CSV} is of an image set called {valid}")
    figure = style.new_figure(1.05 + 0.42 * len(names))
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    for axes, image_set in zip(panels, sets, strict=True):
        by_decoder = {row["decoder"]: row for row in rows if row["image_set"] == image_set}
        columns = ("mean_ms", "p50_ms", "p90_ms")
        _bars(axes, [by_decoder.get(name) for name in names], columns, height=0.6)
        style.prepare_bar_axes(axes, [_decoder_name(name, rows) for name in names], 0.14)
        axes.set_xlabel("milliseconds per image")
        axes.set_title(_set_title(image_set, measured))
    buffers = " / ".join(f"{int(n):,}" for n in distinct(measured, "n_buffers"))
    style.place_caption(
        figure,
        measured,
        f"{buffers} images in memory",
        "bar: mean, line: p50 to p90",
        style.mark_remark(measured),
        style.omission_remark(rows),
    )
    return figure


@output(
    "fig-05-onnx-vs-pytorch",
    "Latency of one batch in each runtime, the forward pass alone",
    onnx.CSV,
)
def draw_runtimes(tables: Tables) -> Figure:
    """Mean time per batch by runtime, with a line from p50 to p95; a panel per model."""
    rows = tables[onnx.CSV]
    measured = ok_rows(rows)
    by_model = {
        model: [row for row in measured if row["model"] == model]
        for model in distinct(measured, "model")
    }
    lengths = [len(model_rows) for model_rows in by_model.values()]
    figure = style.new_figure(0.4 + 0.65 * len(by_model) + 0.3 * len(measured))
    panels = figure.subplots(len(by_model), squeeze=False, height_ratios=lengths)[:, 0]
    for axes, (model, model_rows) in zip(panels, by_model.items(), strict=True):
        columns = ("mean_ms", "p50_ms", "p95_ms")
        _bars(axes, model_rows, columns, _unit_and_rate)
        style.prepare_bar_axes(axes, [_runtime_name(row) for row in model_rows], 0.36)
        axes.set_xlabel(f"milliseconds per batch of {join_distinct(model_rows, 'batch_size')}")
        axes.set_title(f"Forward pass alone, {model}")
    batches = join_distinct(measured, "n_batches")
    style.place_caption(
        figure,
        measured,
        f"{batches} batches" if batches else "",
        "bar: mean, line: p50 to p95",
        style.mark_remark(measured),
        style.omission_remark(rows, _runtime_and_model),
    )
    return figure


def _unit_and_rate(row: Row) -> str:
    """The unit of a time of a batch, and the rate where there is one."""
    return f" ms · {digits(row['img_per_s'])} img/s" if row["img_per_s"] else " ms"


@output(
    "fig-10-throughput-summary",
    "Throughput after each cumulative step, measured end to end",
    steps.CSV,
)
def draw_steps(tables: Tables) -> Figure:
    """A bar per step, images per second, with its factor over the baseline.

    A panel per image set and order of the steps; the reverse one begins with the same baseline.
    """
    # A table from before the reverse order has no such column.
    rows = [{"order": steps.PAPER} | row for row in tables[steps.CSV]]
    measured = ok_rows(rows)
    orders = dict.fromkeys((row["image_set"], row["order"]) for row in rows)
    ladders = [_ladder(rows, image_set, order) for image_set, order in orders]
    lengths = [len(ladder) for ladder in ladders]
    figure = style.new_figure(0.55 + sum(0.4 + 0.42 * length for length in lengths))
    panels = figure.subplots(len(ladders), 1, squeeze=False, height_ratios=lengths)[:, 0]
    right_ends: dict[str, float] = {}
    for axes, ladder in zip(panels, ladders, strict=True):
        _draw_ladder(axes, ladder)
        image_set = ladder[0]["image_set"]
        right_ends[image_set] = max(right_ends.get(image_set, 0.0), axes.get_xlim()[1])
    for axes, ladder in zip(panels, ladders, strict=True):  # one scale for both orders
        axes.set_xlim(right=right_ends[ladder[0]["image_set"]])
    panels[-1].set_xlabel("images per second, measured end to end")
    style.place_caption(
        figure,
        measured,
        style.spread_remark(measured, "line"),
        _fidelity(rows),
        style.mark_remark(measured),
        style.omission_remark(rows, _step_label),
    )
    return figure


def _draw_ladder(axes: Axes, ladder: Sequence[Row]) -> None:
    """A bar per step, with its factor over the baseline where that was measured."""
    baseline = number(ladder[0]["img_per_s"]) if ladder[0]["step"] == "baseline" else None

    def gain(row: Row) -> str:
        if not baseline or row["step"] == "baseline":
            return ""
        return f"  {factor(float(row['img_per_s']) / baseline)}"

    _bars(axes, ladder, _RATE_COLUMNS, gain, reason_width=80, weight="bold")
    style.prepare_bar_axes(axes, [_step_name(row) for row in ladder], 0.26)
    order = "" if ladder[-1]["order"] == steps.PAPER else ", in reverse order"
    images = SHORT_SETS[ladder[0]["image_set"]]
    axes.set_title(f"Each step added to those above it{order}: {images}")


def _ladder(rows: Sequence[Row], image_set: str, order: str) -> list[Row]:
    """The steps of one image set in one order, from the baseline that both orders share."""
    set_rows = [row for row in rows if row["image_set"] == image_set]
    baseline = [row for row in set_rows if row["step"] == "baseline"]
    later = [row for row in set_rows if row["order"] == order and row not in baseline]
    return baseline + later


@output("fig-13-ablation", "What each step to the fast loader brings", ablation.CSV)
def draw_ablation(tables: Tables) -> Figure:
    """A panel per image set: cumulative rungs as bars, top to bottom, steps alone as circles."""
    rows = tables[ablation.CSV]
    measured = ok_rows(rows)
    sets = distinct(measured, "image_set")
    figure = style.new_figure(2.9)
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    for axes, image_set in zip(panels, sets, strict=True):
        _draw_ablation(axes, [row for row in rows if row["image_set"] == image_set])
        axes.set_title(SETS[image_set].capitalize())
    # A rung loads as many images as it can in the time: a range says enough. No network runs.
    counts = [int(row["n_images"]) for row in measured]
    described = [dict(row) | {"n_images": "", "weights": ""} for row in measured]
    style.place_caption(
        figure,
        described,
        f"n = {min(counts):,} to {max(counts):,} images a repeat",
        f"{join_distinct(measured, 'cores')} cores, pages cached",
        "bars: steps added from top to bottom; circles: the step alone on the baseline",
        style.spread_remark(measured, "horizontal lines"),
        style.disturbed_remark(measured, _mode_and_step),
        style.omission_remark(rows, _mode_and_step),
    )
    return figure


def _draw_ablation(axes: Axes, rows: Sequence[Row]) -> None:
    """The rungs of one image set as bars, the steps alone as circles."""
    run = {row["step"] for row in rows}  # an older run lacks later steps
    steps_in_order = [step for step in (ablation.BASELINE, *ablation.STEPS) if step in run]
    rungs = {row["step"]: row for row in rows if row["mode"] == "cumulative"}
    _bars(axes, [rungs.get(step) for step in steps_in_order], _RATE_COLUMNS, _gain_over_previous)
    for row in ok_rows(rows):
        if row["mode"] == "alone":
            position = steps_in_order.index(row["step"])
            rate = float(row["img_per_s"])
            axes.plot([rate], [position], "o", ms=5, mfc="white", mec=style.INK, zorder=3)
    style.prepare_bar_axes(axes, [ABLATION[step] for step in steps_in_order], 0.32)
    axes.set_xlabel("images per second")


def _gain_over_previous(row: Row) -> str:
    """The factor; of one whose interval contains 1, that it cannot be told from none."""
    gain = row["speedup_vs_previous"]
    if not gain or row["step"] == ablation.BASELINE:
        return ""
    tie = " (a tie)" if _pairs.is_tie(row, "speedup_vs_previous") else ""
    return f"   {factor(gain)}{tie}"


def _mode_and_step(row: Row) -> str:
    return f"{row['mode']} {ABLATION[row['step']]}"


def _bars(
    axes: Axes,
    rows: Sequence[Row | None],
    columns: tuple[str, str, str],
    after: Callable[[Row], str] | None = None,
    *,
    reason_width: int = 0,
    height: float = 0.62,
    weight: str = "normal",
) -> None:
    """A bar to the first column, a line between the others, the number and `after` beside them.

    A row without a measurement shows its status, with a reason cut to `reason_width` characters.
    """
    for position, row in enumerate(rows):
        if row is None:
            continue
        if row["status"] != "ok":
            status = style.status_text(row, reason_width) if reason_width else row["status"]
            style.write_beside_bar(axes, 0, position, status).set(color=style.GREY, fontsize=7)
            continue
        value, low, high = (number(row[column]) for column in columns)
        if value is None or low is None or high is None:
            raise NothingToDrawError(f"row {position + 1} has status ok but lacks one of {columns}")
        colour = _ONNX_BAR if row.get("runtime", "").startswith("onnx") else style.BAR
        axes.barh(position, value, height=height, color=colour, **style.EDGE)
        # Not an error bar: those are relative to the value, which may lie outside the quantiles.
        if high > low:
            style.draw_range(axes, (low, high), position)
        extra = after(row) if after else ""
        text = f"{digits(value)}{extra}{style.mark(row)}"
        style.write_beside_bar(axes, max(value, high), position, text).set_fontweight(weight)


def _set_title(image_set: str, rows: Sequence[Row]) -> str:
    """The set's name and the sizes of its images, without which a time means little."""
    row = next(row for row in rows if row["image_set"] == image_set)
    title = SETS[image_set][:1].upper() + SETS[image_set][1:]
    if not row["median_kb"] or not row["median_megapixels"]:
        return title
    megapixels = f"{float(row['median_megapixels']):.2g} megapixels"
    return f"{title}\n(median {digits(row['median_kb'])} KB, {megapixels})"


def _runtime_name(row: Row) -> str:
    opset = f" (opset {row['opset']})" if row["opset"] else ""
    pruned = f", pruned {percent(row['pruned'], 0)}" if row["pruned"] not in ("", "0") else ""
    return f"{RUNTIMES[row['runtime']]} {row['dtype'].upper()}{opset}{pruned}"


def _runtime_and_model(row: Row) -> str:
    return f"{_runtime_name(row)} ({row['model']})"


def _decoder_name(decoder: str, rows: Sequence[Row]) -> str:
    libraries = distinct([row for row in rows if row["decoder"] == decoder], "library")
    name = DECODERS[decoder]
    if not libraries:
        return name
    return libraries[0] if libraries[0].startswith(name) else f"{name}\n({libraries[0]})"


def _step_label(row: Row) -> str:
    return STEPS[row["step"]]


def _step_name(row: Row) -> str:
    decoder, resizer = DECODERS[row["decoder"]], DECODERS[row["resizer"]]
    libraries = decoder if decoder == resizer else f"{decoder}/{resizer}"
    settings = f"{row['workers']} workers, batch {row['batch_size']}, {row['dtype'].upper()}"
    return f"{STEPS[row['step']]}\n{libraries}, {settings}"


def _fidelity(rows: Sequence[Row]) -> str:
    """How near the last step's output is to the reference: part of a gain may be less work."""
    for row in reversed(ok_rows(rows)):
        if row["psnr_db"]:
            vectors = f", vectors' cosine {float(row['cosine']):.4f}" if row["cosine"] else ""
            psnr = f"PSNR {float(row['psnr_db']):.0f} dB against PIL"
            return f"{STEPS[row['step']]}: {psnr}{vectors}"
    return ""
