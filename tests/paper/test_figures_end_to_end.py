"""The figures of the end-to-end experiments: what they show, and what they say where a row is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.paper import made_up
from tests.paper.made_up import CPU, T4, Machine, Rows
from wallclock.paper.figures import FIGURES
from wallclock.paper.figures.fig_07_pipeline import mermaid
from wallclock.paper.figures.style import styled
from wallclock.paper.rendering import NothingToDrawError, measured_sources

Save = Callable[[Path, str, Rows], Path]
Make = Callable[..., Rows]

MACHINES = pytest.mark.parametrize("machine", [T4, CPU], ids=["gpu", "cpu"])


def drawn(stem: str, folder: Path) -> Figure:
    """The figure of that stem, drawn from the tables in `folder`."""
    module = FIGURES[stem]
    with styled():
        return module.draw(measured_sources(folder, module.SOURCES, module.OPTIONAL))


def words(figure: Figure) -> str:
    """All text in a figure, spaces and line breaks plain."""
    texts = [item.get_text() for item in figure.findobj(Text) if isinstance(item, Text)]
    return "\n".join(texts).replace("\u00a0", " ").replace("\n", " ")


# --- figure 1: the baseline beside the serial recipes -------------------------------------------


def test_the_baseline_shows_busy_seconds_and_marks_its_wall(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    save_table(tmp_path, "t4-serial-stages.csv", serial_rows())
    alone = words(drawn("fig-01-stacked-stage-time", tmp_path))
    assert "busy" not in alone
    save_table(tmp_path, "t4-baseline-stages.csv", made_up.baseline(T4))
    beside = drawn("fig-01-stacked-stage-time", tmp_path)
    assert "baseline: 4 workers," in words(beside)
    assert "wall 595 s (597 s busy)" in words(beside)
    assert "busy seconds of all processes, which overlap; diamond: wall" in words(beside)
    (diamond,) = [line for line in beside.axes[0].lines if line.get_marker() == "D"]
    assert float(diamond.get_xdata()[0]) == pytest.approx(1e5 / 168, rel=1e-3)  # type: ignore[index,arg-type]


def test_a_baseline_that_did_not_run_or_saw_other_images_is_left_out(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    save_table(tmp_path, "t4-serial-stages.csv", serial_rows())
    (row,) = made_up.baseline(T4)
    for absent in (made_up.without(row, "error", "killed"), row | {"image_set": "original"}):
        save_table(tmp_path, "t4-baseline-stages.csv", [absent])
        assert "workers" not in words(drawn("fig-01-stacked-stage-time", tmp_path))


def test_a_run_too_short_for_its_queue_is_said_to_be_one(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    save_table(tmp_path, "t4-serial-stages.csv", serial_rows())
    (row,) = made_up.baseline(T4)
    short = {name: float(str(row[name])) / 6 for name in ("wall_s", "seconds_per_100k")}
    for row_of, said in ((row, False), (row | short, True)):
        save_table(tmp_path, "t4-baseline-stages.csv", [row_of])
        assert (
            "its queue was full at the start" in words(drawn("fig-01-stacked-stage-time", tmp_path))
        ) == said


def test_a_stand_in_that_takes_no_time_needs_no_second_panel(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    rows = serial_rows(device="AMD EPYC", device_kind="cpu")
    save_table(
        tmp_path,
        "t4-serial-stages.csv",
        [row | {"forward_s": 0, "forward_share": 0} for row in rows],
    )
    assert len(drawn("fig-01-stacked-stage-time", tmp_path).axes) == 1


# --- figures 2 and 4: the sweeps ----------------------------------------------------------------


@MACHINES
def test_batch_sweep_has_memory_only_where_there_is_a_gpu(
    machine: Machine, tmp_path: Path, save_table: Save
) -> None:
    save_table(tmp_path, "batch-sweep.csv", made_up.batch_sweep(machine))
    figure = drawn("fig-02-batch-sweep", tmp_path)
    assert len(figure.axes) == (2 if machine.on_gpu else 1)
    assert ("GiB" in words(figure)) == machine.on_gpu
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == [
        "1",
        "8",
        "16",
        "32",
        "64",
        "128",
        "256",
    ]
    assert "PIL decode, 4 workers, FP32" in words(figure)
    assert ("mock model of 9.2 to 315.2 ms a batch" in words(figure)) == (machine.weights == "none")


def test_fast_runs_are_labelled_in_whole_images(tmp_path: Path, save_table: Save) -> None:
    rows = [row | {"img_per_s": 12_345.6} for row in made_up.batch_sweep(CPU)]
    save_table(tmp_path, "batch-sweep.csv", rows)
    assert "12,346" in words(drawn("fig-02-batch-sweep", tmp_path))


def test_a_batch_that_did_not_fit_is_marked_at_the_axis(tmp_path: Path, save_table: Save) -> None:
    rows = made_up.batch_sweep(T4)
    rows[-1] = made_up.without(rows[-1], "oom", "tried to allocate 2.25 GiB")
    rows[-2] = made_up.without(rows[-2], "error", "killed")
    save_table(tmp_path, "batch-sweep.csv", rows)
    figure = drawn("fig-02-batch-sweep", tmp_path)
    labels = [item.get_text() for item in figure.axes[0].texts]
    assert "out of memory" in labels
    assert "error" in labels
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert [float(line.get_xdata()[0]) for line in crosses] == [128, 256]  # type: ignore[index,arg-type]
    assert (
        "not drawn: batch 128: error (killed); batch 256: oom (tried to allocate 2.25 GiB)"
        in words(figure)
    )


@MACHINES
def test_workers_sweep_shows_the_wait_below(
    machine: Machine, tmp_path: Path, save_table: Save
) -> None:
    rows = made_up.workers_sweep(machine)
    save_table(tmp_path, "workers-sweep.csv", rows)
    above, below = drawn("fig-04-workers-sweep", tmp_path).axes
    assert "libjpeg-turbo decode, batch 64, FP32" in above.get_title(loc="left")
    assert "waiting" in below.get_ylabel()
    save_table(tmp_path, "workers-sweep.csv", [row | {"wait_share": None} for row in rows])
    assert len(drawn("fig-04-workers-sweep", tmp_path).axes) == 1


# --- figure 5 -----------------------------------------------------------------------------------


def test_runtimes_without_a_time_say_why_in_grey(tmp_path: Path, save_table: Save) -> None:
    save_table(tmp_path, "onnx-vs-pytorch.csv", made_up.runtimes(T4))
    figure = drawn("fig-05-onnx-vs-pytorch", tmp_path)
    for expected in (
        *("PyTorch FP32", "torch.compile FP16", "ONNX Runtime, CUDA, FP16", "242 ms · 264 img/s"),
        *(
            "63.6 ms · 1,006 img/s",
            "milliseconds per batch of 64",
            "line: p50 to p95",
            "50 batches",
        ),
    ):
        assert expected in words(figure)
    (grey,) = [item for item in figure.axes[0].texts if "unavailable" in item.get_text()]
    assert grey.get_color() == "#666666"
    assert len(grey.get_text()) < 80


def test_a_runtime_with_an_empty_time_is_no_bar(tmp_path: Path, save_table: Save) -> None:
    rows = made_up.runtimes(T4)
    save_table(tmp_path, "onnx-vs-pytorch.csv", [rows[0] | {"p95_ms": None}])
    with pytest.raises(NothingToDrawError, match="PyTorch FP32 has status ok but an empty time"):
        drawn("fig-05-onnx-vs-pytorch", tmp_path)


# --- figure 7 -----------------------------------------------------------------------------------


def test_the_pipeline_says_each_share_for_both_sets(t4_run: Path) -> None:
    figure = drawn("fig-07-pipeline", t4_run / "data")
    for expected in (
        "58 %",
        "51 %",
        "38 %",
        "8.0 %",
        "< 0.1 %",
        "256 px",
        "originals",
        "PIL decode, PIL resize",
    ):
        assert expected in words(figure)


def test_the_pipeline_as_mermaid(
    t4_run: Path, tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    text = (t4_run / "figures" / "fig-07-pipeline.mmd").read_text(encoding="utf-8")
    assert "flowchart LR" in text
    assert 'decode["<b>decode</b><br/>256 px 8.0 %<br/>originals 51 %"]' in text
    assert (
        "read --> decode --> resize --> normalize --> assemble --> h2d --> forward --> d2h --> serialize"
        in text
    )
    assert "&lt; 0.1 %" in text
    assert text.count("style ") == 9
    save_table(tmp_path, "t4-serial-stages-original.csv", serial_rows("original"))
    module = FIGURES["fig-07-pipeline"]
    one = mermaid(measured_sources(tmp_path, module.SOURCES, module.OPTIONAL))
    assert "256 px" not in one
    assert "originals 51 %" in one


def test_no_pipeline_without_pillows_recipe(
    tmp_path: Path, serial_rows: Make, save_table: Save
) -> None:
    rows = serial_rows()
    save_table(tmp_path, "t4-serial-stages.csv", [rows[0] | {"status": "error"}, *rows[1:]])
    with pytest.raises(NothingToDrawError, match="no row of decoder pil"):
        drawn("fig-07-pipeline", tmp_path)


# --- figure 10 ----------------------------------------------------------------------------------


def test_steps_say_their_factor_over_the_baseline(tmp_path: Path, save_table: Save) -> None:
    rows = made_up.steps(CPU)
    rows[3] = made_up.without(
        rows[3], "gate failed", "its vectors are too far from the reference's"
    )
    save_table(tmp_path, "throughput-steps.csv", rows)
    text = words(drawn("fig-10-throughput-summary", tmp_path))
    for expected in (
        *(
            "Baseline PIL, 4 workers, batch 32, FP32",
            "+ FP16 libjpeg-turbo/OpenCV, 8 workers, batch 64, FP16",
        ),
        *(
            "× 5.88",
            "measured end to end",
            "forward: mock model of 40 ms a batch",
            "gate failed (its vectors",
        ),
        *("PSNR 29 dB against PIL, vectors' cosine 0.9910",),
    ):
        assert expected in text
    assert "× 1.57" not in text
    rows[0] = made_up.without(rows[0], "error", "killed")
    save_table(tmp_path, "throughput-steps.csv", rows)
    assert "×" not in words(drawn("fig-10-throughput-summary", tmp_path))


# --- figure 12: predicted against measured -------------------------------------------------------


@MACHINES
def test_predictions_stand_over_what_was_measured_and_the_papers_are_hollow(
    tmp_path: Path, save_table: Save, machine: Machine
) -> None:
    rows = made_up.prediction(machine)
    lost = rows[0] | {
        "status": "not predicted",
        "reason": "no cost of loading",
        "img_per_s": None,
        "error": None,
    }
    save_table(tmp_path, "prediction.csv", [*rows, lost])
    figure = drawn("fig-12-predicted-vs-measured", tmp_path)
    (axes,) = figure.axes
    markers = [line for line in axes.lines if line.get_marker() not in ("None", None, "")]
    shown = np.concatenate([line.get_xydata() for line in markers])
    expected = [
        (float(str(row["measured_img_per_s"])), float(str(row["img_per_s"]))) for row in rows
    ]
    assert np.array(sorted(shown.tolist())) == pytest.approx(np.array(sorted(expected)), rel=1e-4)
    hollow = [line.get_xydata() for line in markers if line.get_markerfacecolor() == "white"]
    assert len(np.concatenate(hollow)) == len(
        [row for row in rows if row["measured_origin"] == "paper"]
    )
    said = words(figure)
    assert "median 6%, worst 10%" in said
    assert "1 cells not predicted or not measured" in said


def test_without_a_prediction_there_is_no_figure_12(tmp_path: Path, save_table: Save) -> None:
    rows = [row | {"measured_img_per_s": None} for row in made_up.prediction(T4)]
    save_table(tmp_path, "prediction.csv", rows)
    with pytest.raises(NothingToDrawError, match="both predicted and measured"):
        drawn("fig-12-predicted-vs-measured", tmp_path)
