"""Figures: equal tables give equal bytes, and what cannot be drawn says why."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.text import Text

from experiments import batch, decoders, frontier, onnx, opt, predict, serial, steps, t4, workers
from tests.paper.tables import CPU, REFERENCE, Copy, drawn, edit, fail, save, words
from wallclock.clock import STAGES
from wallclock.errors import UserError
from wallclock.paper.csvfile import ok_rows, read_table
from wallclock.paper.figures import FIGURES, render
from wallclock.paper.figures.fig_01_stacked_stage_time import stage_seconds
from wallclock.paper.figures.fig_07_pipeline import mermaid
from wallclock.paper.figures.style import STAGE_STYLES
from wallclock.paper.rendering import NothingToDrawError, Rendering, measured_sources

SMALL, ORIGINAL = serial.CSVS["small_256"], serial.CSVS["original"]
STACKED, BARS = "fig-01-stacked-stage-time", "fig-03-decoder-comparison"
BATCH, WORKERS = "fig-02-batch-sweep", "fig-04-workers-sweep"
PIPELINE, FRONTIER = "fig-07-pipeline", "fig-11-frontier"
RUNTIMES, PREDICTION = "fig-05-onnx-vs-pytorch", "fig-12-predicted-vs-measured"
STEPS = "fig-10-throughput-summary"


def markers(lines: Sequence[Line2D], marker: str) -> list[tuple[float, float]]:
    """Positions of the points drawn with that marker."""
    points: list[Any] = [line.get_xydata() for line in lines if line.get_marker() == marker]
    return [(float(x), float(y)) for x, y in np.concatenate(points)] if points else []


class TestRendering:
    def test_bytes_do_not_depend_on_settings(self, tmp_path: Path) -> None:
        before = dict(mpl.rcParams)
        for stem in (STACKED, BARS):
            one = render(stem, REFERENCE, tmp_path / "one")
            with mpl.rc_context({"font.size": 20, "lines.linewidth": 5, "svg.hashsalt": "x"}):
                two = render(stem, REFERENCE, tmp_path / "two")
            assert [path.suffix for path in one.paths] == [".png", ".svg", ".pdf"]
            for a, b in zip(one.paths, two.paths, strict=True):
                assert a.read_bytes() == b.read_bytes(), a.name
        assert dict(mpl.rcParams) == before

    def test_every_figure_is_drawn_on_a_gpu(self, t4_run: Path) -> None:
        """A hatch of dots once made an SVG of a megabyte."""
        sizes = {path.stem: path.stat().st_size for path in (t4_run / "figures").glob("*.svg")}
        assert list(FIGURES) == sorted(sizes)
        assert len(FIGURES) == 11
        assert max(sizes.values()) < 250_000, sizes

    def test_missing_tables_are_named(self, copy: Copy, tmp_path: Path) -> None:
        folder = copy(SMALL)
        assert render(BARS, folder, tmp_path) == Rendering(BARS, (), f"no {decoders.CSV}")
        skipped = render("fig-06-cpu-gpu-timeline", folder, tmp_path).skipped
        assert skipped == f"no {t4.TIMELINE_CSV} nor {opt.TIMELINE_CSV}"

    def test_tables_without_measurement(self, copy: Copy, tmp_path: Path) -> None:
        folder = copy(SMALL, ORIGINAL, decoders.CSV)
        edit(folder / decoders.CSV, status="failed")
        save(folder / SMALL, read_table(folder / SMALL)[-1:])
        edit(folder / ORIGINAL, "decoder=pil", wall_s="")
        stems = (STACKED, "fig-01b-stacked-stage-time-original", BARS)
        reasons = [render(stem, folder, tmp_path / "out").skipped for stem in stems]
        assert "no recipe" in reasons[0]
        assert "no wall time" in reasons[1]
        assert reasons[2] == f"no row with status ok in {decoders.CSV}"
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("stem", "csv", "where", "column", "reason"),
        [
            (WORKERS, workers.CSV, "", "img_per_s", "no row .* has a rate"),
            (RUNTIMES, onnx.CSV, "1", "p95_ms", "PyTorch FP32 has status ok but an empty time"),
            (PIPELINE, SMALL, "decoder=pil", "status", "no row of decoder pil"),
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

    def test_unknown_stem(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="did you mean fig-03-decoder-comparison"):
            render("fig-03-decoders", REFERENCE, tmp_path)

    def test_stages_differ_in_luminance(self) -> None:
        assert tuple(STAGE_STYLES) == STAGES
        fills = np.array([to_rgb(fill) for fill, _ in STAGE_STYLES.values()])
        assert np.all(np.diff(fills**2.2 @ [0.2126, 0.7152, 0.0722]) > 0)


class TestStacked:
    def test_segments_add_up(self) -> None:
        for row in read_table(REFERENCE / SMALL):
            seconds = stage_seconds(row)
            assert sum(seconds.values()) == pytest.approx(float(row["seconds_per_100k"]), rel=1e-3)
            assert "forward" not in stage_seconds(row, excluded=("forward",))

    def test_cpu_has_a_panel_without_forward(self) -> None:
        figure = drawn(STACKED, REFERENCE)
        whole, rest = figure.axes
        assert "without forward" in rest.get_title(loc="left")
        assert rest.get_xlim()[1] < whole.get_xlim()[1] / 10
        text = words(figure)
        for expected in (
            *("7,425 s", "98 %", "37 %", CPU, "harness floor 0.261 s", "random weights"),
            *("extrapolated from n = 48", "synthetic images", "median of 2 / 1 repeats"),
        ):
            assert expected in text
        (legend,) = figure.legends
        assert [item.get_text() for item in legend.get_texts()] == [*STAGES, "unattributed"]

    def test_gpu_and_mock_model_need_one_panel(self, t4_copy: Copy, copy: Copy) -> None:
        folder = t4_copy(SMALL)
        assert len(drawn(STACKED, folder).axes) == 1
        assert "busy" not in words(drawn(STACKED, folder))
        edit(copy(SMALL) / SMALL, forward_s=0, forward_share=0)
        assert len(drawn(STACKED, folder).axes) == 1

    def test_baseline_marks_wall_time(self, t4_tables: Path) -> None:
        figure = drawn(STACKED, t4_tables)
        assert "baseline: 4 workers, batch 32" in words(figure)
        assert "busy seconds of all processes, which overlap; diamond: wall time" in words(figure)
        ((wall, _),) = markers(figure.axes[0].lines, "D")
        assert wall == pytest.approx(595)

    def test_unlike_failed_and_short_baselines(self, copy: Copy) -> None:
        folder = copy(SMALL, t4.CSV)
        assert "its queue was full" not in words(drawn(STACKED, folder))
        edit(folder / t4.CSV, wall_s=0.7, seconds_per_100k=1500)
        assert "its queue was full at the start" in words(drawn(STACKED, folder))
        edit(folder / t4.CSV, image_set="original")
        assert "workers" not in words(drawn(STACKED, folder))
        edit(folder / t4.CSV, image_set="small_256", status="error")
        assert "workers" not in words(drawn(STACKED, folder))

    def test_failed_and_unchecked_recipes_are_named(self, copy: Copy) -> None:
        folder = copy(SMALL)
        edit(folder / SMALL, "decoder=pil", gate="not checked")
        fail(folder / SMALL, "decoder=turbojpeg", "unavailable", "set $LIBTURBOJPEG or $PATH")
        text = words(drawn(STACKED, folder))
        assert "PIL bilinear resize †" in text
        assert "OpenCV linear resize †" not in text
        assert "not compared" in text
        assert "PSNR against the first recipe: OpenCV 47 dB" in text
        assert "libjpeg-turbo: unavailable (set $LIBTURBOJPEG or $PATH)" in text


class TestDecoders:
    def test_a_panel_for_each_image_set(self, copy: Copy) -> None:
        both = drawn(BARS, REFERENCE)
        assert len(both.axes) == 2
        for expected in ("19.6", "0.221", "(libjpeg-turbo 3.2.0)", "median 367 KB", "p50 to p90"):
            assert expected in words(both)
        folder = copy(decoders.CSV)
        rows = [row for row in read_table(folder / decoders.CSV) if row["image_set"] == "original"]
        save(folder / decoders.CSV, rows)
        fail(folder / decoders.CSV, "decoder=turbojpeg", "unavailable", "no libturbojpeg")
        (axes,) = drawn(BARS, folder).axes
        assert "unavailable" in [item.get_text() for item in axes.texts]


class TestSweeps:
    def test_memory_only_on_a_gpu(self, t4_tables: Path) -> None:
        on_gpu, on_cpu = drawn(BATCH, t4_tables), drawn(BATCH, REFERENCE)
        assert (len(on_gpu.axes), len(on_cpu.axes)) == (2, 1)
        assert "GiB" in words(on_gpu)
        assert "GiB" not in words(on_cpu)
        ticks = [tick.get_text() for tick in on_cpu.axes[0].get_xticklabels()]
        assert ticks == ["1", "8", "16", "32", "64", "128", "256"]
        assert "PIL decode, 4 workers, FP32" in words(on_cpu)

    def test_mock_model_names_its_times(self, copy: Copy) -> None:
        folder = copy(batch.CSV)
        edit(folder / batch.CSV, weights="none")
        for size in (1, 8, 256):
            edit(folder / batch.CSV, f"batch_size={size}", service_ms=8 + 1.2 * size)
        assert "mock model of 9.2 to 315.2 ms a batch" in words(drawn(BATCH, folder))

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

    def test_workers_sweep_shows_the_wait_below(self, copy: Copy) -> None:
        folder = copy(workers.CSV)
        above, below = drawn(WORKERS, folder).axes
        assert "libjpeg-turbo decode, batch 64, FP32" in above.get_title(loc="left")
        assert "waiting, %" in below.get_ylabel()
        edit(folder / workers.CSV, wait_share="")
        assert len(drawn(WORKERS, folder).axes) == 1


class TestRuntimes:
    def test_reasons_replace_missing_times(self) -> None:
        figure = drawn(RUNTIMES, REFERENCE)
        for expected in (
            *("PyTorch FP32", "torch.compile FP32", "ONNX Runtime, CPU, INT8"),
            *("398 ms · 40.2 img/s", "milliseconds per batch of 16", "p50 to p95", "3 batches"),
        ):
            assert expected in words(figure)
        grey = [item for item in figure.axes[0].texts if "unavailable" in item.get_text()]
        assert len(grey) == 4
        assert all(item.get_color() == "#666666" and len(item.get_text()) < 80 for item in grey)


class TestPipeline:
    def test_shares_of_both_sets(self, t4_tables: Path) -> None:
        text = words(drawn(PIPELINE, t4_tables))
        for expected in ("58.0 %", "51.3 %", "8.0 %", "< 0.1 %", "256 px images", "originals"):
            assert expected in text

    def test_mermaid(self, t4_run: Path, copy: Copy) -> None:
        text = (t4_run / "figures" / f"{PIPELINE}.mmd").read_text(encoding="utf-8")
        assert 'decode["<b>decode</b><br/>256 px images 8.0 %<br/>originals 51.3 %"]' in text
        assert " --> ".join(STAGES) in text
        assert "&lt; 0.1 %" in text
        assert text.count("style ") == 9
        output = FIGURES[PIPELINE]
        one = mermaid(measured_sources(copy(ORIGINAL), output.required, output.optional))
        assert "256 px" not in one
        assert "originals 21.7 %" in one


class TestSteps:
    def test_factors_over_the_baseline(self, copy: Copy) -> None:
        folder = copy(steps.CSV)
        fail(folder / steps.CSV, "step=batch", "gate failed", "vectors too far from reference")
        text = words(drawn(STEPS, folder))
        for expected in (
            *("Baseline PIL, 4 workers, batch 32, FP32", "3.35 0.27×", "measured end to end"),
            *("+ FP16 libjpeg-turbo/OpenCV, 8 workers, batch 64, FP16", "gate failed (vectors"),
            "PSNR 47 dB against PIL, vectors' cosine 1.0000",
        ):
            assert expected in text.replace("  ", " ")
        assert "1.08×" not in text
        fail(folder / steps.CSV, "step=baseline", "error", "killed")
        assert "×" not in words(drawn(STEPS, folder))


class TestFrontier:
    def test_every_loader_at_its_rate_and_psnr(self) -> None:
        figure = drawn(FRONTIER, REFERENCE)
        titles = [axes.get_title(loc="left") for axes in figure.axes]
        assert titles == ["Images of 256 px", "Originals at full resolution"]
        assert markers(figure.axes[1].lines, "*") == [pytest.approx((47.5894, 608.05))]
        assert "DALI (GPU): unavailable (no NVIDIA GPU is here)" in words(figure)

    def test_names_do_not_overlap(self) -> None:
        figure = drawn(FRONTIER, REFERENCE)
        figure.draw_without_rendering()
        for axes in figure.axes:
            # Without the lines that lead to the points.
            boxes = [Text.get_window_extent(item) for item in axes.texts]
            assert len(boxes) > 8
            for one, other in combinations(boxes, 2):
                assert not other.shrunk(0.9, 0.6).overlaps(one)

    def test_subsets_of_a_folder_are_panels(self, copy: Copy) -> None:
        folder = copy(frontier.CSV)
        rows = [r for r in read_table(folder / frontier.CSV) if r["image_set"] == "original"]
        subsets = ("all", "baseline", "progressive")
        rows = [row | {"corpus": "folder", "subset": name} for name in subsets for row in rows]
        save(folder / frontier.CSV, rows)
        titles = [axes.get_title(loc="left") for axes in drawn(FRONTIER, folder).axes[:3]]
        endings = ("", ", baseline JPEG", ", progressive JPEG")
        assert titles == [f"A folder's photos{ending}" for ending in endings]


class TestPrediction:
    def test_points_are_the_tables(self) -> None:
        figure = drawn(PREDICTION, REFERENCE)
        (axes,) = figure.axes
        rows = [r for r in ok_rows(read_table(REFERENCE / predict.CSV)) if r["measured_img_per_s"]]
        expected = [(float(r["measured_img_per_s"]), float(r["img_per_s"])) for r in rows]
        lines = [line for line in axes.lines if line.get_marker() not in ("None", None, "")]
        shown: Any = np.concatenate([line.get_xydata() for line in lines])
        assert sorted(map(tuple, shown.tolist())) == sorted(expected)
        hollow: Any = [line.get_xydata() for line in lines if line.get_markerfacecolor() == "white"]
        of_paper = [row for row in rows if row["measured_origin"] == "paper"]
        assert len(np.concatenate(hollow)) == len(of_paper)
        assert "median 5 %, worst 23 %" in words(figure)
        assert "20 cells not predicted or not measured" in words(figure)
