"""Figures: equal tables give equal bytes, and what cannot be drawn says why."""

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from experiments.batch import cells as batch
from experiments.decoders import cells as decoders
from experiments.frontier import cells as frontier
from experiments.onnx import cells as onnx
from experiments.opt import cells as opt
from experiments.predict import cells as predict
from experiments.serial import cells as serial
from experiments.serial.figure import mermaid
from experiments.steps import cells as steps
from experiments.t4 import cells as t4
from experiments.workers import cells as workers
from harness.drawing import style
from harness.drawing.rendering import NothingToDrawError, Rendering, read_measured_sources
from harness.drawing.style import new_figure
from harness.table import ok_rows, read_table
from paper.figures import FIGURES, render
from tests.fixture_run import fixture_tables
from tests.paper.tables import CPU, Copy, drawn, edit, fail, markers, save, words
from wallclock.clock import STAGES
from wallclock.errors import UserError

SMALL, ORIGINAL = serial.CSVS["small_256"], serial.CSVS["original"]
STACKED, BARS = "fig-01-stacked-stage-time", "fig-03-decoder-comparison"
BATCH, WORKERS = "fig-02-batch-sweep", "fig-04-workers-sweep"
PIPELINE, FRONTIER = "fig-07-pipeline", "fig-11-frontier"
RUNTIMES, PREDICTION = "fig-05-onnx-vs-pytorch", "fig-12-predicted-vs-measured"
STEPS = "fig-10-throughput-summary"
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


class TestBars:


class TestSweeps:

    def test_failed_batches_are_marked_at_the_axis(self, copy: Copy) -> None:
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
