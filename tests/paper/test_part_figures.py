"""Figures of parts: ablation, formats, storage."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from experiments import ablation
from paper.csvfile import read_table
from paper.rendering import NothingToDrawError
from paper.session import closing_sentence
from tests.paper.tables import (
    drawn,
    markers,
    save,
    words,
    write_ablation,
    write_cluster,
    write_formats,
    write_ladder,
    write_scaling,
    write_storage,
)


def test_ablation_shows_gains_and_steps_alone(tmp_path: Path) -> None:
    write_ablation(tmp_path)
    figure = drawn("fig-13-ablation", tmp_path)
    text = words(figure)
    for expected in (
        "DataLoader + PIL",
        "+ threads engine",
        "1,500",
        "1.25×",
        "2 cores, pages cached",
    ):
        assert expected in text
    for axes in figure.axes:
        assert len(markers(axes.lines, "o")) == 5
    rows = read_table(tmp_path / ablation.CSV)
    for row in rows:
        row.update(status="unavailable", reason="none here")
    save(tmp_path / ablation.CSV, rows)
    with pytest.raises(NothingToDrawError, match="no row"):
        drawn("fig-13-ablation", tmp_path)


def test_formats_show_the_fastest_decoder_of_each(tmp_path: Path) -> None:
    write_formats(tmp_path)
    figure = drawn("fig-15-formats", tmp_path)
    full, reduced = figure.axes
    assert markers(full.lines, "D") == [(107, 10)]
    assert markers(reduced.lines, "s") == [(103, 10), (105, 10)]
    for expected in (
        "JPEG progressive",
        "PNG",
        "of each: simplejpeg",
        "PIL avif: unavailable (no AV",
    ):
        assert expected in words(figure)
    assert words(figure).count("imagecodecs") == 1


def test_storage_by_form_and_source(tmp_path: Path) -> None:
    write_storage(tmp_path)
    figure = drawn("fig-17-storage", tmp_path)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Originals at full resolution"]
    for axes in figure.axes:
        for marker, rate in (("s", 1e3), ("o", 8e3), ("D", 100)):
            rates = [x for x, _ in markers(axes.lines, marker)]
            assert rates == [rate * form * ahead for form in (1, 2, 4) for ahead in (1, 3)]
        assert [
            x
            for x in (list(np.asarray(line.get_xdata())) for line in axes.lines)
            if x == [1e3, 3e3]
        ] == [[1e3, 3e3]]
    for expected in (
        "HTTP, 5 ms added",
        "pixels, 256 px",
        "filled: 16 threads",
        "mincore finds 50%",
    ):
        assert expected in words(figure)


def test_scaling_shows_the_job_and_its_line(tmp_path: Path) -> None:
    write_scaling(tmp_path)
    figure = drawn("fig-18-scaling", tmp_path)
    (runs,) = figure.axes
    assert [x for x, _ in markers(runs.lines, "o")] == [1e3, 1e4, 1e5, 1e6]
    files = "each file of other bytes, 10 pictures, deduplicate=yes"
    memory = "memory grows by 50 MiB per 100,000 images"
    for expected in ("R² = 0.99", "1.0 % longer than extrapolated", memory, "n = 1,000,000", files):
        assert expected in words(figure)
    rows = read_table(tmp_path / "scaling.csv")
    save(tmp_path / "scaling.csv", rows[:2])
    with pytest.raises(NothingToDrawError, match="fewer than 3 jobs"):
        drawn("fig-18-scaling", tmp_path)
    save(tmp_path / "scaling.csv", rows[:0])
    with pytest.raises(NothingToDrawError, match="no row"):
        drawn("fig-18-scaling", tmp_path)


def test_ladder_beside_its_source(tmp_path: Path) -> None:
    write_ladder(tmp_path)
    figure = drawn("fig-19-ladder", tmp_path)
    rungs, latencies, model = figure.axes
    widths = [
        [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
        for axes in (rungs, model)
    ]
    assert widths == [[3, 9, 20, 30, 60, 40], [0.6, 1.8, 4, 6, 12]]
    assert [x for x, _ in markers(rungs.lines, "D")] == [3, 9, 21, 28]
    assert markers(model.lines, "D") == [], "a T4 beside a CPU"
    assert markers(latencies.lines, "^") == [(15, 0.5), (36, 2)]
    assert markers(latencies.lines, "o") == [(15, 0.5)], "a ring at the knee"
    for expected in (
        "5  wallclock serve",
        "60  (2×)  $3.33",
        "5  wallclock serve, GPU 5 %",
        "5  wallclock serve, GPU 9 %",
        "40  (1.33×)  $5.00",
        "$: of a million requests",
        "dinov2-small, fp32, 256 px images",
        "2 lost",
    ):
        assert expected in words(figure)
    assert "40 to 60 requests per second, 1.33× to 2.00× rung 4" in closing_sentence(
        tmp_path, ["ladder"]
    )
    rows = [{**row, "requests_per_s_max": "100"} for row in read_table(tmp_path / "ladder.csv")]
    save(tmp_path / "ladder.csv", rows)
    for axes in (drawn("fig-19-ladder", tmp_path).axes[at] for at in (0, 2)):
        beside = {text.xy[0] for text in axes.texts if isinstance(text, Annotation)}
        assert beside == {100}, "beside the fastest repeat"
    (tmp_path / "ladder-latency.csv").unlink()
    assert not markers(drawn("fig-19-ladder", tmp_path).axes[1].lines, "^")
    rows = read_table(tmp_path / "ladder.csv")
    save(tmp_path / "ladder.csv", [row for row in rows if row["setup"] != "model"])
    assert len(drawn("fig-19-ladder", tmp_path).axes) == 2
    save(tmp_path / "ladder.csv", [row for row in rows if row["setup"] == "this box"])
    with pytest.raises(NothingToDrawError, match="no rung on the mock"):
        drawn("fig-19-ladder", tmp_path)


def test_systems_beside_each_other(tmp_path: Path) -> None:
    write_cluster(tmp_path)
    figure = drawn("fig-20-cluster", tmp_path)
    for axes in figure.axes:
        bars = [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
        assert bars == [50, 12.5, 12.5]
    for expected in ("12.5 †  (25.0 %)", "Daft, native runner"):
        assert expected in words(figure)
    assert "25.0 % of what wallclock does" in closing_sentence(tmp_path, ["cluster"])
    rows = read_table(tmp_path / "cluster.csv")
    save(tmp_path / "cluster.csv", [{**row, "status": "error"} for row in rows])
    with pytest.raises(NothingToDrawError):
        drawn("fig-20-cluster", tmp_path)
