"""Figures: equal tables give equal bytes, and what cannot be drawn says why."""

import re
from importlib import resources
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from experiments.batch import cells as batch
from experiments.decoders import cells as decoders
from experiments.frontier import cells as frontier
from experiments.onnx import cells as onnx
from experiments.opt import cells as opt
from experiments.opt import spans
from experiments.opt.spans import Span, Window
from experiments.predict import cells as predict
from experiments.scaling import cells as scaling
from experiments.serial import cells as serial
from experiments.serial.figure import mermaid
from experiments.steps import cells as steps
from experiments.t4 import cells as t4
from experiments.workers import cells as workers
from harness.drawing import style
from harness.drawing.rendering import NothingToDrawError, Rendering, read_measured_sources
from harness.drawing.style import new_figure
from harness.table import read_table
from paper.figures import FIGURES, render
from tests.fixture_run import fixture_tables
from tests.paper.tables import (
    CPU,
    REFERENCE,
    Copy,
    copy_tables,
    drawn,
    edit,
    fail,
    markers,
    save,
    words,
)
from wallclock.clock import STAGES
from wallclock.errors import UserError

SMALL, ORIGINAL = serial.CSVS["small_256"], serial.CSVS["original"]
STACKED, BARS = "fig-01-stacked-stage-time", "fig-03-decoder-comparison"
BATCH, WORKERS = "fig-02-batch-sweep", "fig-04-workers-sweep"
PIPELINE, FRONTIER = "fig-07-pipeline-mermaid", "fig-11-frontier"
RUNTIMES, PREDICTION = "fig-05-onnx-vs-pytorch", "fig-12-predicted-vs-measured"
STEPS, SUMMARY = "fig-10-throughput-summary", "fig-00-summary"
QUEUE_FULL, PIL = "its queue was full at the start", "decoder=pil"


class TestRendering:
    @pytest.mark.slow
    def test_bytes_do_not_depend_on_settings(self, tmp_path: Path) -> None:
        before = dict(mpl.rcParams)
        for stem in (STACKED, BARS):
            plain = render(stem, fixture_tables(), tmp_path / "plain")
            with mpl.rc_context({"font.size": 20, "lines.linewidth": 5, "svg.hashsalt": "x"}):
                changed = render(stem, fixture_tables(), tmp_path / "changed")
            assert [path.suffix for path in plain.paths] == [".png", ".svg", ".pdf"]
            for a, b in zip(plain.paths, changed.paths, strict=True):
                assert a.read_bytes() == b.read_bytes(), a.name
        assert dict(mpl.rcParams) == before

    def test_the_layouts_last_digits_do_not_reach_the_svg(self, tmp_path: Path) -> None:
        drawings = []
        for shift in (0, 1e-12):
            figure = new_figure(2)
            figure.set_layout_engine("none")
            for left in (0.1, 0.6):
                axes = figure.add_axes((left + shift, 0.1, 0.3, 0.8))
                axes.plot([0, 1], [0, 1])
            path = next(
                path
                for path in style.save(figure, "fig", "A line", tmp_path)
                if path.suffix == ".svg"
            )
            drawings.append(path.read_text())
        assert drawings[0] == drawings[1]
        assert "<title>A line</title>" in drawings[0]
        names = re.findall(r'clipPath id="(\w+)"', drawings[0])
        assert len(names) == len(set(names)) == 2
        assert set(re.findall(r"url\(#(\w+)\)", drawings[0])) == set(names)

    @pytest.mark.slow
    def test_every_figure_is_drawn_on_a_gpu(self, t4_tables: Path, tmp_path: Path) -> None:
        """A hatch of dots once made an SVG of a megabyte."""
        for stem in FIGURES:
            render(stem, t4_tables, tmp_path)
        sizes = {path.stem: path.stat().st_size for path in tmp_path.glob("*.svg")}
        assert list(FIGURES) == sorted(sizes)
        assert max(sizes.values()) < 250_000, sizes

    def test_missing_tables_are_named(self, copy: Copy, tmp_path: Path) -> None:
        folder = copy(SMALL)
        assert render(BARS, folder, tmp_path) == Rendering(BARS, (), f"no {decoders.CSV}")
        skipped = render("fig-06-cpu-gpu-timeline", folder, tmp_path).skipped
        assert skipped == f"no {t4.TIMELINE_CSV} nor {opt.TIMELINE_CSV}"
        with pytest.raises(UserError, match="did you mean fig-03-decoder-comparison"):
            render("fig-03-decoders", folder, tmp_path)

    def test_tables_without_measurement(self, copy: Copy, tmp_path: Path) -> None:
        folder = copy(SMALL, decoders.CSV)
        edit(folder / decoders.CSV, status="failed")
        save(folder / SMALL, read_table(folder / SMALL)[-1:])
        reasons = [render(stem, folder, tmp_path / "out").skipped for stem in (STACKED, BARS)]
        assert "no recipe" in reasons[0]
        assert reasons[1] == f"no row with status ok in {decoders.CSV}"
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("stem", "csv", "where", "column", "reason"),
        [
            (STACKED, SMALL, PIL, "wall_s", "no wall time"),
            (WORKERS, workers.CSV, "", "img_per_s", "no row .* has a rate"),
            (RUNTIMES, onnx.CSV, "1", "p95_ms", "row 1 has status ok but lacks one of .*p95_ms"),
            (PIPELINE, SMALL, PIL, "status", "no row of decoder pil"),
            (FRONTIER, frontier.CSV, "", "psnr_db", "both a rate and a PSNR"),
            (PREDICTION, predict.CSV, "", "measured_img_per_s", "both predicted and measured"),
        ],
    )
    def test_missing_numbers_are_named(
        self, copy: Copy, stem: str, csv: str, where: str, column: str, reason: str
    ) -> None:
        folder = copy(csv)
        edit(folder / csv, where, **{column: ""})
        with pytest.raises(NothingToDrawError, match=reason):
            drawn(stem, folder)


GATED = {"status": "gate failed", "reason": "vectors too far"}
TEXTS: list[tuple[str, str, str, dict[str, Any], str, str]] = [
    (STACKED, "", "", {}, f"98 %|33 %|{CPU}|harness floor 0.269 s|extrapolated from n = 48", "GiB"),
    (BARS, "", "", {}, "19.6|0.221|(libjpeg-turbo 3.2.0)|median 367 KB|p50 to p90", "GiB"),
    (BATCH, "", "", {}, "PIL decode, 4 workers, FP32", "GiB"),
    (RUNTIMES, "", "", {}, "ONNX Runtime, CPU, INT8|398 ms · 40.2 img/s|batch of 16", "GiB"),
    (FRONTIER, "", "", {}, "DALI (GPU): unavailable (no NVIDIA GPU is here)", "GiB"),
    (PREDICTION, "", "", {}, "worst 22.7 %|n = 35 cells of", "not predicted"),
    (PREDICTION, predict.CSV, "experiment=opt", GATED, "1 cell not predicted or not", "GiB"),
    (STACKED, t4.CSV, "", {}, "baseline: 4 workers, batch 32|overlap; diamond", QUEUE_FULL),
    (STACKED, t4.CSV, "", {"wall_s": 0.7}, QUEUE_FULL, "†"),
    (STACKED, t4.CSV, "", {"image_set": "original"}, "floor", "workers"),
    (STACKED, t4.CSV, "", {"status": "error"}, "floor", "workers"),
    (
        STACKED,
        SMALL,
        PIL,
        {"gate": "not checked"},
        "PIL bilinear resize †|OpenCV 47 dB",
        "linear †",
    ),
    (STACKED, SMALL, PIL, GATED, "PIL: gate failed (vectors too far)", "†"),
    (BATCH, batch.CSV, "", {"weights": "none", "service_ms": 8}, "model of 8 ms per batch", "GiB"),
    (
        STEPS,
        steps.CSV,
        "step=batch",
        GATED,
        "Baseline PIL, 4 workers, batch 32|3.35 0.27×",
        "1.08×",
    ),
    (STEPS, steps.CSV, "step=batch", GATED, "gate failed (vec|PSNR 47 dB", "1.08×"),
    (STEPS, steps.CSV, "step=fp16", {"cosine": 0.9998}, "vectors' cosine 0.9998", "cosine 1.0000"),
    (STEPS, steps.CSV, "step=baseline", GATED, "gate failed (vectors too far)", "×"),
]


@pytest.mark.parametrize(("stem", "csv", "where", "changes", "present", "absent"), TEXTS)
def test_text(
    copy: Copy, stem: str, csv: str, where: str, changes: dict[str, Any], present: str, absent: str
) -> None:
    """Words in a figure, `|` between them, and one that is not, after a change of its tables."""
    folder = copy()
    if csv and changes:
        (fail if "reason" in changes else edit)(folder / csv, where, **changes)
    text = words(drawn(stem, folder)).replace("  ", " ")
    assert not [expected for expected in present.split("|") if expected not in text]
    assert absent not in text


def test_failed_batches_are_marked_at_the_axis(copy: Copy) -> None:
    folder = copy(batch.CSV)
    fail(folder / batch.CSV, "batch_size=256", "oom", "tried to allocate 2.25 GiB")
    fail(folder / batch.CSV, "batch_size=128", "error", "killed")
    figure = drawn(BATCH, folder)
    labels = [item.get_text() for item in figure.axes[0].texts]
    assert {"out of memory", "error"} <= set(labels)
    assert [x for x, _ in markers(figure.axes[0].lines, "x")] == [128, 256]
    expected = "batch 128: error (killed); batch 256: oom (tried to allocate 2.25 GiB)"
    assert f"not drawn: {expected}" in words(figure)


def test_mermaid(t4_tables: Path, copy: Copy, tmp_path: Path) -> None:
    render(PIPELINE, t4_tables, tmp_path)
    text = (tmp_path / f"{PIPELINE}.mmd").read_text(encoding="utf-8")
    assert 'decode["<b>decode</b><br/>256 px images 8.0 %<br/>originals 51.3 %"]' in text
    assert " --> ".join(STAGES) in text
    assert "&lt; 0.1 %" in text
    assert text.count("style ") == 9
    chart = mermaid(read_measured_sources(copy(ORIGINAL), (), FIGURES[PIPELINE].optional))
    assert "256 px" not in chart
    assert "originals 21.3 %" in chart


# --- spans ----------------------------------------------------------------------------------------


def forward_passes(n: int, period: float = 10.0, duration: float = 6.0) -> list[Span]:
    return [Span("gpu", "forward", i, i * period, duration) for i in range(n)]


def loading(start: float, n: int = 20) -> list[Span]:
    return [Span("worker 0", "decode", i, 10.0 * i + start, 10.0) for i in range(n)]


#: A loader whose recording ends early.
EARLY = [*forward_passes(20), *loading(-180)]


@pytest.mark.parametrize(
    ("recorded", "options", "window"),
    [
        ([*forward_passes(20), *loading(-25)], {}, Window(0.0, 80.0, 8, complete=True)),
        (forward_passes(20), {"at_least_ms": 125}, Window(0.0, 120.0, 12, complete=True)),
        (forward_passes(10), {"at_least_ms": 125}, Window(0.0, 90.0, 9, complete=True)),
        (EARLY, {"at_least_ms": 1000}, Window(0.0, 80.0, 8, complete=False)),
        # Unless the run itself ended.
        (EARLY, {"total": 20}, Window(0.0, 80.0, 8, complete=True)),
        (forward_passes(2), {}, Window(0.0, 10.0, 1, complete=True)),
        (forward_passes(1), {}, None),
    ],
)
def test_window_is_complete_periods(
    recorded: list[Span], options: dict[str, Any], window: Window | None
) -> None:
    assert spans.choose_window(recorded, **options) == window


# --- of the reference's tables, changed -----------------------------------------------------------


def test_a_loader_without_a_calm_repeat_is_named(tmp_path: Path) -> None:
    folder = copy_tables(tmp_path, frontier.CSV, source=REFERENCE)
    remark = "other programs disturbed every repeat"
    assert remark not in words(drawn(SUMMARY, folder))
    edit(folder / frontier.CSV, "system=tf-data folder=photos level=faithful", calm_repeats="0")
    assert f"{remark} of: tf.data" in words(drawn(SUMMARY, folder))
    edit(folder / frontier.CSV, "", calm_repeats="0")
    text = words(drawn(SUMMARY, folder))
    assert remark in text
    assert f"{remark} of" not in text


def test_an_interval_around_1_is_called_a_tie(tmp_path: Path) -> None:
    folder = copy_tables(tmp_path, frontier.CSV, source=REFERENCE)
    ours = "system=ours folder=photos level=faithful"
    changes = {"speedup_vs_next": 1.1, "speedup_vs_next_min": 0.9, "speedup_vs_next_max": 1.3}
    edit(folder / frontier.CSV, ours, **changes)
    assert drawn(SUMMARY, folder).get_suptitle().startswith("1.10× (a tie) on photos and ")


def test_too_few_jobs_have_no_line(tmp_path: Path) -> None:
    copy_tables(tmp_path, scaling.CSV, source=REFERENCE)
    save(tmp_path / scaling.CSV, read_table(tmp_path / scaling.CSV)[:2])
    with pytest.raises(NothingToDrawError, match="fewer than 3 jobs"):
        drawn("fig-18-scaling", tmp_path)


# --- colours --------------------------------------------------------------------------------------


def test_a_stage_has_one_colour() -> None:
    """On the page of `wallclock trace`, which has no matplotlib, as in the figures."""
    css = (resources.files("wallclock.trace") / "trace.css").read_text(encoding="utf-8")
    for stage, (fill, _) in style.STAGE_STYLES.items():
        assert f".stage-{stage} {{ background: {fill};" in css


@pytest.mark.parametrize("fill", [fill for fill, _ in style.STAGE_STYLES.values()])
def test_text_inside_can_be_read(fill: str) -> None:
    """WCAG 2.2, 1.4.3: large text has a contrast of 3 at least."""
    ink = "#FFFFFF" if style.is_dark(fill) else style.INK
    light, dark = sorted((luminance(fill), luminance(ink)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3


def luminance(colour: str) -> float:
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
