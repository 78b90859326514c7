"""Figures: equal tables give equal bytes, and what cannot be drawn says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from wallclock.clock import STAGES
from wallclock.errors import UserError
from wallclock.paper.csvfile import read_table
from wallclock.paper.figures import FIGURES, render, render_all
from wallclock.paper.figures.stacked import stage_seconds
from wallclock.paper.figures.style import STAGE_STYLES, styled
from wallclock.paper.rendering import Rendering

SERIAL, ORIGINAL, DECODERS = (
    "t4-serial-stages.csv",
    "t4-serial-stages-original.csv",
    "decoder-comparison.csv",
)
STACKED, BARS = "fig-01-stacked-stage-time", "fig-03-decoder-comparison"

Rows = list[dict[str, object]]
Make = Callable[..., Rows]
Save = Callable[[Path, str, Rows], Path]


@pytest.fixture
def tables(tmp_path: Path, serial_rows: Make, decoder_rows: Make, save_table: Save) -> Path:
    """A folder with the tables of all three figures."""
    save_table(tmp_path / "data", SERIAL, serial_rows("small_256"))
    save_table(tmp_path / "data", ORIGINAL, serial_rows("original"))
    save_table(tmp_path / "data", DECODERS, decoder_rows())
    return tmp_path / "data"


def drawn(stem: str, folder: Path) -> Figure:
    """The figure of that stem, drawn from the tables in `folder`."""
    module = FIGURES[stem]
    with styled():
        return module.draw({name: read_table(folder / name) for name in module.SOURCES})


def words(figure: Figure) -> str:
    """All text in a figure, spaces plain."""
    texts = [item.get_text() for item in figure.findobj(Text) if isinstance(item, Text)]
    return "\n".join(texts).replace("\u00a0", " ")


def test_rendering_twice_gives_the_same_bytes(tables: Path, tmp_path: Path) -> None:
    for stem in (STACKED, BARS):
        one = render(stem, tables, tmp_path / "one")
        with mpl.rc_context({"font.size": 20, "lines.linewidth": 5, "svg.hashsalt": "another"}):
            two = render(stem, tables, tmp_path / "two")
        assert not one.skipped
        assert [path.suffix for path in one.paths] == [".png", ".svg", ".pdf"]
        for a, b in zip(one.paths, two.paths, strict=True):
            assert a.name == b.name == f"{one.stem}{a.suffix}"
            assert a.read_bytes() == b.read_bytes(), a.name


def test_every_figure_is_drawn_and_drawn_alike(
    t4_run: Path, tmp_path: Path, svg_only: None
) -> None:
    found = render_all(t4_run / "data", tmp_path)
    assert [each.stem for each in found] == list(FIGURES)
    for each in found:
        assert not each.skipped
        for path in each.paths:
            assert path.read_bytes() == (t4_run / "figures" / path.name).read_bytes(), path.name


def test_no_svg_is_too_heavy_for_a_page(t4_run: Path) -> None:
    """A hatch of dots once made a megabyte of one."""
    sizes = {path.name: path.stat().st_size for path in (t4_run / "figures").glob("*.svg")}
    assert len(sizes) == len(FIGURES)
    assert max(sizes.values()) < 200_000, sizes


def test_every_figure_of_a_cpu_run_is_drawn(cpu_run: Path) -> None:
    drawn_stems = {path.stem for path in (cpu_run / "figures").glob("*.svg")}
    assert drawn_stems == set(FIGURES)


def test_another_table_gives_another_figure(
    tables: Path, tmp_path: Path, serial_rows: Make, save_table: Save, svg_only: None
) -> None:
    before = render(STACKED, tables, tmp_path / "one")
    save_table(tables, SERIAL, serial_rows(forward_factor=1.5))
    after = render(STACKED, tables, tmp_path / "two")
    for a, b in zip(before.paths, after.paths, strict=True):
        assert a.read_bytes() != b.read_bytes()


def test_a_missing_table_is_a_reason_and_the_others_are_drawn(
    tables: Path, tmp_path: Path, svg_only: None
) -> None:
    (tables / DECODERS).unlink()
    found = {each.stem: each for each in render_all(tables, tmp_path / "out")}
    assert found[STACKED].paths
    assert found[BARS] == Rendering(BARS, (), f"no {DECODERS}")
    assert (
        found["fig-06-cpu-gpu-timeline"].skipped
        == "no timeline-baseline.csv nor timeline-optimized.csv"
    )


def test_a_table_without_a_measurement_is_a_reason(
    tables: Path, tmp_path: Path, serial_rows: Make, decoder_rows: Make, save_table: Save
) -> None:
    save_table(tables, DECODERS, [row | {"status": "failed"} for row in decoder_rows()])
    save_table(tables, SERIAL, serial_rows()[-1:])
    save_table(tables, ORIGINAL, [serial_rows("original")[0] | {"wall_s": None}])
    stems = (STACKED, "fig-01b-stacked-stage-time-original", BARS)
    reasons = [render(stem, tables, tmp_path / "out").skipped for stem in stems]
    assert "no recipe" in reasons[0]
    assert "no wall clock" in reasons[1]
    assert reasons[2] == f"no row with status ok in {DECODERS}"
    assert not (tmp_path / "out").exists()


def test_no_figure_of_that_name(tables: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean fig-03-decoder-comparison"):
        render("fig-03-decoders", tables, tmp_path)


def test_segments_add_up_to_the_total(tables: Path) -> None:
    for row in read_table(tables / SERIAL):
        seconds = stage_seconds(row)
        assert sum(seconds.values()) == pytest.approx(float(row["seconds_per_100k"]), rel=1e-4)
        assert "forward" not in stage_seconds(row, excluded=("forward",))


def test_stacked_bars_print_results_they_show(tables: Path) -> None:
    figure = drawn(STACKED, tables)
    text = words(figure)
    for expected in (
        *(
            "588 s",
            "493 s",
            "490 s",
            "58 %",
            "15 %",
            "Tesla T4",
            "harness floor 1.2 s",
            "random weights",
        ),
        *("extrapolated from n = 10,000", "Amazon Berkeley Objects", "median of 5 repeats"),
    ):
        assert expected in text
    (legend,) = figure.legends
    assert [item.get_text() for item in legend.get_texts()] == [*STAGES, "unattributed"]
    assert len(figure.axes) == 1


def test_a_cpu_gets_a_second_panel_without_forward(
    tables: Path, serial_rows: Make, save_table: Save
) -> None:
    save_table(tables, SERIAL, serial_rows(device="AMD EPYC", device_kind="cpu", forward_factor=60))
    figure = drawn(STACKED, tables)
    whole, rest = figure.axes
    assert "without forward" in rest.get_title(loc="left")
    assert rest.get_xlim()[1] < whole.get_xlim()[1] / 10


def test_recipes_that_failed_or_were_not_compared_are_named(
    tables: Path, serial_rows: Make, save_table: Save
) -> None:
    rows = serial_rows()
    rows[0] |= {"gate": "not checked"}
    rows[1] |= {"psnr_db": 29.2}
    rows[2] |= {"status": "unavailable", "reason": "set $LIBTURBOJPEG or $PATH", "wall_s": None}
    save_table(tables, SERIAL, rows)
    text = words(drawn(STACKED, tables))
    assert "PIL bilinear resize †" in text
    assert "OpenCV bilinear resize †" not in text
    assert "not compared" in text
    assert "PSNR against the first recipe: OpenCV 29 dB" in text
    assert "libjpeg-turbo: unavailable (set $LIBTURBOJPEG or $PATH)" in text.replace("\n", " ")


def test_decoders_have_a_panel_for_each_image_set(
    tables: Path, decoder_rows: Make, save_table: Save
) -> None:
    both = drawn(BARS, tables)
    assert len(both.axes) == 2
    for expected in (
        "24.8",
        "0.46",
        "(libjpeg-turbo 3.1.2)",
        "libjpeg-turbo 2.1.5",
        "median 305 KB",
        "p50 to p90",
    ):
        assert expected in words(both)
    rows = [row for row in decoder_rows() if row["image_set"] == "original"]
    rows[2] |= {"status": "unavailable", "reason": "no libturbojpeg was found", "mean_ms": None}
    save_table(tables, DECODERS, rows)
    one = drawn(BARS, tables)
    assert len(one.axes) == 1
    assert "unavailable" in [item.get_text() for item in one.axes[0].texts]


def test_stages_are_told_apart_without_colour() -> None:
    def luminance(colour: str) -> float:
        weights = (0.2126, 0.7152, 0.0722)
        channels = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
        return sum(
            weight * float(channel**2.2) for weight, channel in zip(weights, channels, strict=True)
        )

    assert tuple(STAGE_STYLES) == STAGES
    values = [luminance(fill) for fill, _ in STAGE_STYLES.values()]
    assert values == sorted(values)
    assert len(set(values)) == len(values)


def test_nothing_is_left_in_the_global_state(tables: Path, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    render(BARS, tables, tmp_path / "out")
    assert dict(mpl.rcParams) == before
