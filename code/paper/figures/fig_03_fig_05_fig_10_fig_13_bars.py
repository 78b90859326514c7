"""Figures 3, 5, 10 and 13: decoders, runtimes, and throughput by step and by rung, as bars."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import ablation, decoders, onnx, steps
from harness.spec import IMAGE_SETS
from paper.csvfile import Row, distinct, joined, number, ok_rows
from paper.figures import style
from paper.format import digits, factor, percent
from paper.labels import ABLATION, DECODERS, RUNTIMES, SETS, SHORT_SETS, STEPS
from paper.rendering import NothingToDrawError, Tables, output

#: The bar of a runtime of ONNX Runtime's; all others are blue.
_ONNX_BAR = "#E8B54D"


@output(
    "fig-03-decoder-comparison",
    "Milliseconds to decode one image, by decoder and image set",
    decoders.CSV,
)
def draw_decoders(tables: Tables) -> Figure:
    """Mean time a decoder in a loop, with a line from p50 to p90; a panel an image set."""
    rows = [row for row in tables[decoders.CSV] if row["context"] == "loop"]
    measured, names = ok_rows(rows), distinct(rows, "decoder")
    sets = [name for name in IMAGE_SETS if name in distinct(measured, "image_set")]
    if not sets:
        known = " or ".join(IMAGE_SETS)
        raise NothingToDrawError(f"no row in {decoders.CSV} is of an image set called {known}")
    figure = style.new_figure(1.05 + 0.42 * len(names))
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    for axes, image_set in zip(panels, sets, strict=True):
        of_set = {row["decoder"]: row for row in rows if row["image_set"] == image_set}
        columns = ("mean_ms", "p50_ms", "p90_ms")
        _bars(axes, [of_set.get(name) for name in names], columns, height=0.6)
        style.horizontal_bars(axes, [_decoder_name(name, rows) for name in names], 0.14)
        axes.set_xlabel("milliseconds per image")
        axes.set_title(_set_title(image_set, measured))
    buffers = " / ".join(f"{int(n):,}" for n in distinct(measured, "n_buffers"))
    remarks = (f"{buffers} images in memory", "bar: mean, line: p50 to p90")
    marked = style.mark_explained(measured)
    style.place_caption(figure, measured, *remarks, marked, style.left_out(rows))
    return figure


@output(
    "fig-05-onnx-vs-pytorch",
    "Latency of one batch in each runtime, the forward pass alone",
    onnx.CSV,
)
def draw_runtimes(tables: Tables) -> Figure:
    """Mean time a batch by runtime, with a line from p50 to p95; without a time, the reason.

    A panel a model, with its own scale.
    """
    rows = tables[onnx.CSV]
    measured, models = ok_rows(rows), distinct(rows, "model")
    by_model = [[row for row in rows if row["model"] == model] for model in models]
    lengths = [len(of_model) for of_model in by_model]
    figure = style.new_figure(0.4 + 0.65 * len(models) + 0.3 * len(rows))
    panels = figure.subplots(len(models), squeeze=False, height_ratios=lengths)[:, 0]

    def after(row: Row) -> str:
        return " ms" + (f" · {digits(row['img_per_s'])} img/s" if row["img_per_s"] else "")

    for axes, model, of_model in zip(panels, models, by_model, strict=True):
        _bars(axes, of_model, ("mean_ms", "p50_ms", "p95_ms"), after, reason=74)
        style.horizontal_bars(axes, [_runtime_name(row) for row in of_model], 0.36)
        axes.set_xlabel(f"milliseconds per batch of {joined(of_model, 'batch_size')}")
        axes.set_title(f"Forward pass alone, {model}")
    batches = joined(measured, "n_batches")
    remarks = (f"{batches} batches" if batches else "", "bar: mean, line: p50 to p95")
    style.place_caption(figure, measured, *remarks, style.mark_explained(measured))
    return figure


@output(
    "fig-10-throughput-summary",
    "Throughput after each cumulative step, measured end to end",
    steps.CSV,
)
def draw_steps(tables: Tables) -> Figure:
    """One bar a step, images a second, with its factor over the baseline.

    A panel an image set and order of the steps; the reverse one begins with the same baseline.
    """
    rows = [{"order": steps.PAPER, **row} for row in tables[steps.CSV]]
    measured = ok_rows(rows)
    orders = dict.fromkeys((row["image_set"], row["order"]) for row in rows)
    series = [_ladder(rows, *order) for order in orders]
    figure = style.new_figure(0.55 + sum(0.4 + 0.42 * len(ladder) for ladder in series))
    heights = [len(ladder) for ladder in series]
    panels = figure.subplots(len(series), 1, squeeze=False, height_ratios=heights)[:, 0]
    ends = dict[str, float]()
    for axes, ladder in zip(panels, series, strict=True):
        about = ladder[0]["image_set"]
        base = number(ladder[0]["img_per_s"]) if ladder[0]["step"] == "baseline" else None

        def after(row: Row, base: float | None = base) -> str:
            if not base or row["step"] == "baseline":
                return ""
            return f"  {factor(float(row['img_per_s']) / base)}"

        columns = ("img_per_s", "img_per_s_min", "img_per_s_max")
        _bars(axes, ladder, columns, after, reason=80, weight="bold")
        style.horizontal_bars(axes, [_step_name(row) for row in ladder], 0.26)
        order = "" if ladder[-1]["order"] == steps.PAPER else ", in reverse order"
        axes.set_title(f"Each step added to those above it{order}: {SHORT_SETS[about]}")
        ends[about] = max(ends.get(about, 0.0), axes.get_xlim()[1])
    for axes, ladder in zip(panels, series, strict=True):  # one scale for both orders
        axes.set_xlim(right=ends[ladder[0]["image_set"]])
    panels[-1].set_xlabel("images per second, measured end to end")
    remarks = (style.spread_remark(measured, "line"), _fidelity(rows))
    left_out = style.left_out(rows, lambda row: STEPS[row["step"]])
    style.place_caption(figure, measured, *remarks, style.mark_explained(measured), left_out)
    return figure


def _ladder(rows: Sequence[Row], image_set: str, order: str) -> list[Row]:
    """The steps of one image set in one order, from the baseline that both orders share."""
    of_set = [row for row in rows if row["image_set"] == image_set]
    base = [row for row in of_set if row["step"] == "baseline"]
    return [*base, *(row for row in of_set if row["order"] == order and row not in base)]


@output("fig-13-ablation", "What each step to the fast loader brings", ablation.CSV)
def draw_ablation(tables: Tables) -> Figure:
    """A panel an image set: cumulative rungs as bars from top to bottom, steps alone as circles."""
    rows = tables[ablation.CSV]
    measured, steps_in_order = ok_rows(rows), [ablation.BASELINE, *ablation.STEPS]
    sets = distinct(measured, "image_set")
    figure = style.new_figure(2.9)

    def after(row: Row) -> str:
        gain = row["speedup_vs_previous"]
        return f"   {factor(gain)}" if gain and row["step"] != ablation.BASELINE else ""

    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    for axes, image_set in zip(panels, sets, strict=True):
        of_set = [row for row in rows if row["image_set"] == image_set]
        rungs = {row["step"]: row for row in of_set if row["mode"] == "cumulative"}
        columns = ("img_per_s", "img_per_s_min", "img_per_s_max")
        _bars(axes, [rungs.get(step) for step in steps_in_order], columns, after)
        for row in ok_rows(of_set):
            if row["mode"] == "alone":
                position = steps_in_order.index(row["step"])
                marker = {"mfc": "white", "mec": style.INK, "zorder": 3}
                axes.plot([number(row["img_per_s"])], [position], "o", ms=5, **marker)
        style.horizontal_bars(axes, [ABLATION[step] for step in steps_in_order], 0.32)
        axes.set_xlabel("images per second")
        axes.set_title(SETS[image_set].capitalize())
    remarks = (
        f"{joined(measured, 'cores')} cores, pages cached",
        "bars: steps added from top to bottom; circles: the step alone on the baseline",
        style.spread_remark(measured, "horizontal lines"),
    )
    left_out = style.left_out(rows, lambda row: f"{row['mode']} {ABLATION[row['step']]}")
    # A rung loads as many images as it can in the time: a range says enough. No network runs.
    counts = [int(row["n_images"]) for row in measured]
    loaded = f"n = {min(counts):,} to {max(counts):,} images a repeat"
    described = [{**row, "n_images": "", "weights": ""} for row in measured]
    style.place_caption(figure, described, loaded, *remarks, left_out)
    return figure


def _bars(
    axes: Axes,
    rows: Sequence[Row | None],
    columns: tuple[str, str, str],
    after: Callable[[Row], str] = lambda row: "",
    *,
    reason: int = 0,
    height: float = 0.62,
    weight: str = "normal",
) -> None:
    """A bar to the first column, a line between the others, the number and `after` beside them.

    A row without a measurement shows its status, and as many characters of `reason` as fit.
    """
    for position, row in enumerate(rows):
        if row is None:
            continue
        if row["status"] != "ok":
            words = style.why(row, reason) if reason else row["status"]
            style.beside_bar(axes, 0, position, words).set(color=style.GREY, fontsize=7)
            continue
        value, low, high = (number(row[column]) for column in columns)
        if value is None or low is None or high is None:
            raise NothingToDrawError(f"row {position + 1} has status ok but lacks one of {columns}")
        colour = _ONNX_BAR if row.get("runtime", "").startswith("onnx") else style.BAR
        axes.barh(position, value, height=height, color=colour, **style.EDGE)
        # Not an error bar: those are relative to the value, which may lie outside the quantiles.
        if high > low:
            style.range_line(axes, (low, high), position)
        text = f"{digits(value)}{after(row)}{style.mark(row)}"
        style.beside_bar(axes, max(value, high), position, text).set_fontweight(weight)


def _set_title(image_set: str, rows: Sequence[Row]) -> str:
    """The set's name and the sizes of its images, without which a time means little."""
    row = next(row for row in rows if row["image_set"] == image_set)
    title, kilobytes, megapixels = SETS[image_set], row["median_kb"], row["median_megapixels"]
    title = title[:1].upper() + title[1:]
    if not kilobytes or not megapixels:
        return title
    return f"{title}\n(median {digits(kilobytes)} KB, {float(megapixels):.2g} megapixels)"


def _runtime_name(row: Row) -> str:
    opset = f" (opset {row['opset']})" if row["opset"] else ""
    pruned = f", pruned {percent(row['pruned'], 0)}" if row["pruned"] not in ("", "0") else ""
    return f"{RUNTIMES[row['runtime']]} {row['dtype'].upper()}{opset}{pruned}"


def _decoder_name(decoder: str, rows: Sequence[Row]) -> str:
    libraries = distinct([row for row in rows if row["decoder"] == decoder], "library")
    name = DECODERS[decoder]
    if not libraries:
        return name
    return libraries[0] if libraries[0].startswith(name) else f"{name}\n({libraries[0]})"


def _step_name(row: Row) -> str:
    libraries = "/".join(dict.fromkeys((DECODERS[row["decoder"]], DECODERS[row["resizer"]])))
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
