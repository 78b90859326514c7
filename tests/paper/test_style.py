"""Colours and labels of figures, and figures of parts of a job."""

from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from experiments import ablation
from paper.csvfile import read_table
from paper.figures import fig_02_fig_04_sweeps, fig_15_formats, fig_17_storage, fig_19_ladder, style
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

# --- palette --------------------------------------------------------------------------------------


Floats = npt.NDArray[np.float64]
#: Of linear RGB.
VISIONS: Mapping[str, Floats] = {
    "full": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    # Luminance alone (Rec. ITU-R BT.709).
    "grey": np.tile([0.2126, 0.7152, 0.0722], (3, 1)),
}
#: Linear sRGB → XYZ (IEC 61966-2-1), and the white of D65.
XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
)  # fmt: skip
WHITE = XYZ.sum(axis=1)
#: Several times a just noticeable difference: of areas that touch, and of others.
LEAST_BESIDE, LEAST = 20.0, 12.0
#: In grey, where the order of the stages and their labels help.
LEAST_GREY = 4.0
#: What each figure draws: colour, and what else tells it apart.
LOOKS: Mapping[str, Sequence[tuple[str, object]]] = {
    "sweeps": [
        (fig_02_fig_04_sweeps._RATE, "o"),
        (fig_02_fig_04_sweeps._SECOND, "s"),
        (fig_02_fig_04_sweeps._LATENCY, "D"),
    ],
    "formats": [look[1:] for look in fig_15_formats._LOOKS.values()],
    "storage": list(fig_17_storage._SOURCES.values()),
    "ladder": list(fig_19_ladder._SERIES.values()),
}


def lab(colour: str, vision: str) -> Floats:
    """L*, a* and b* of a colour as that vision sees it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    ratios = XYZ @ np.clip(VISIONS[vision] @ linear, 0, 1) / WHITE
    small = (6 / 29) ** 3
    x, y, z = np.where(ratios > small, np.cbrt(ratios), ratios / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(a: str, b: str, vision: str) -> float:
    return float(np.linalg.norm(lab(a, vision) - lab(b, vision)))


def test_distances_are_those_of_the_literature() -> None:
    """Black to white is 100; sRGB's red lies at (53.24, 80.09, 67.20)."""
    assert distance("#000000", "#FFFFFF", "full") == pytest.approx(100, abs=0.01)
    assert lab("#FF0000", "full") == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    # What the matrices are for: a red and a green of one lightness come together.
    red, green = "#C05050", "#50802A"
    assert distance(red, green, "deuteranopia") < distance(red, green, "full") / 2


@pytest.mark.parametrize("vision", VISIONS)
def test_stages_that_touch_differ(vision: str) -> None:
    """A hatch is a difference in grey, not a substitute for one of colour."""
    for (first, a), (second, b) in pairwise(style.STAGE_STYLES.items()):
        if vision == "grey" and a[1] != b[1]:
            continue
        least = LEAST_GREY if vision == "grey" else LEAST_BESIDE
        apart = distance(a[0], b[0], vision)
        assert apart >= least, f"{first} and {second}: {apart:.1f}"


@pytest.mark.parametrize("vision", [name for name in VISIONS if name != "grey"])
def test_all_stages_differ(vision: str) -> None:
    for (first, a), (second, b) in combinations(style.STAGE_STYLES.items(), 2):
        apart = distance(a[0], b[0], vision)
        assert a[1] != b[1] or apart >= LEAST, f"{first} and {second}: {apart:.1f}"


def test_a_stage_has_one_colour() -> None:
    """On the page of `wallclock trace`, which has no matplotlib, as in the figures."""
    css = (resources.files("wallclock.trace") / "trace.css").read_text(encoding="utf-8")
    for stage, (fill, _) in style.STAGE_STYLES.items():
        assert f".stage-{stage} {{ background: {fill};" in css


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("figure", LOOKS)
def test_looks_differ(figure: str, vision: str) -> None:
    """By colour, or by a marker, a hatch or a dash."""
    least = LEAST_GREY if vision == "grey" else LEAST
    for (a, mark), (b, other) in combinations(LOOKS[figure], 2):
        apart = distance(a, b, vision)
        assert mark != other or apart >= least, f"{a} and {b}: {apart:.1f}"


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


# --- part figures ---------------------------------------------------------------------------------


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
