"""Figure 5: the time of a batch in each runtime."""

from matplotlib.figure import Figure

from experiments.onnx import cells as onnx
from harness.drawing import style
from harness.drawing.bars import draw_bars
from harness.drawing.format import digits, percent
from harness.drawing.labels import Labels
from harness.drawing.rendering import Tables, output
from harness.table import Row, distinct, join_distinct, ok_rows

#: What the runtimes are called; a dtype follows the comma.
_RUNTIMES = Labels(
    {
        "pytorch": "PyTorch",
        "pytorch-compile": "torch.compile",
        "pytorch-cudagraph": "PyTorch, CUDA graph,",
        "onnxruntime": "ONNX Runtime, CUDA,",
        "onnxruntime-tensorrt": "ONNX Runtime, TensorRT,",
        "onnxruntime-cpu": "ONNX Runtime, CPU,",
        "openvino": "OpenVINO",
    }
)
#: The bar of a runtime of ONNX Runtime's; all others are blue.
_ONNX_BAR = "#E8B54D"


@output(
    "fig-05-onnx-vs-pytorch",
    "Latency of one batch in each runtime, the forward pass alone",
    onnx.CSV,
)
def draw(tables: Tables) -> Figure:
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
        draw_bars(axes, model_rows, columns, _unit_and_rate, colour_of=_colour)
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


def _colour(row: Row) -> str:
    return _ONNX_BAR if row["runtime"].startswith("onnx") else style.BAR


def _runtime_name(row: Row) -> str:
    opset = f" (opset {row['opset']})" if row["opset"] else ""
    pruned = f", pruned {percent(row['pruned'], 0)}" if row["pruned"] else ""
    return f"{_RUNTIMES[row['runtime']]} {row['dtype'].upper()}{opset}{pruned}"


def _runtime_and_model(row: Row) -> str:
    return f"{_runtime_name(row)} ({row['model']})"
