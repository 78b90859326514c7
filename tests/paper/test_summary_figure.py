"""Figure 0: a dot per loader at its rate, hollow where the pixels fail the check."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from experiments import frontier
from harness import provenance
from paper.csvfile import read_table
from paper.rendering import NothingToDrawError
from tests.paper.tables import Copy, copy_tables, drawn, edit, save, words

SUMMARY = "fig-00-summary"
REFERENCE = provenance.ROOT / "data" / "reference" / "amd-epyc-2-cores"


def dots(axes: Axes) -> dict[float, str]:
    """Rate of each dot and its fill."""
    lines: list[Any] = [line for line in axes.lines if line.get_marker() == "o"]
    return {float(line.get_xdata()[0]): str(line.get_markerfacecolor()) for line in lines}


def test_every_loader_has_a_dot_on_photos_and_on_thumbnails() -> None:
    photos, thumbnails = drawn(SUMMARY, REFERENCE).axes
    rows = [
        row
        for row in read_table(REFERENCE / frontier.CSV)
        if (row["subset"], row["status"]) == ("all", "ok") and row["system"] != "ours-crop"
    ]
    on_photos = [row for row in rows if row["corpus"] == "folder"]
    on_thumbnails = [row for row in rows if row["image_set"] == "small_256"]
    for axes, expected in ((photos, on_photos), (thumbnails, on_thumbnails)):
        fills = dots(axes)
        assert sorted(fills) == sorted(float(row["img_per_s"]) for row in expected)
        for row in expected:
            is_hollow = fills[float(row["img_per_s"])] == "white"
            assert is_hollow == (row["level"] == ""), row["system"]


def test_ours_is_first_then_by_rate() -> None:
    photos = drawn(SUMMARY, REFERENCE).axes[0]
    names = [label.get_text() for label in photos.get_yticklabels()]
    assert names[0] == "wallclock"
    lines: list[Any] = [line for line in photos.lines if line.get_marker() == "o"]
    rates = {line.get_ydata()[0]: line.get_xdata()[0] for line in lines}
    others = [rates[y] for y in sorted(rates) if y > 0]
    assert others == sorted(others, reverse=True)


def test_the_title_is_the_tables_ratio() -> None:
    figure = drawn(SUMMARY, REFERENCE)
    ratios = "1.05× on photos and 1.31× on thumbnails"
    assert figure.get_suptitle() == f"{ratios} over the next fastest loader"


def test_generated_originals_are_no_photos(tmp_path: Path) -> None:
    folder = copy_tables(tmp_path, frontier.CSV, source=REFERENCE)
    rows = read_table(folder / frontier.CSV)
    save(folder / frontier.CSV, [row for row in rows if row["corpus"] != "folder"])
    title = drawn(SUMMARY, folder).get_suptitle()
    assert title == "1.03× on originals and 1.31× on thumbnails over the next fastest loader"


def test_less_fidelity_that_is_faster_is_a_second_dot(tmp_path: Path) -> None:
    folder = copy_tables(tmp_path, frontier.CSV, source=REFERENCE)
    rows = read_table(folder / frontier.CSV)
    faithful = next(
        row
        for row in rows
        if (row["corpus"], row["subset"], row["system"]) == ("folder", "all", "pil-draft")
    )
    assert faithful["level"] == "faithful"
    rows.append({**faithful, "level": "close", "img_per_s": "999", "img_per_s_max": "999"})
    save(folder / frontier.CSV, rows)
    photos = drawn(SUMMARY, folder).axes[0]
    lines: list[Any] = [line for line in photos.lines if line.get_marker() == "o"]
    halves = [line.get_xdata()[0] for line in lines if line.get_fillstyle() == "bottom"]
    assert halves.count(999) == 1
    assert f"{float(faithful['img_per_s']):.0f} / 999" in [text.get_text() for text in photos.texts]


def test_a_loader_without_a_calm_repeat_is_named(tmp_path: Path) -> None:
    folder = copy_tables(tmp_path, frontier.CSV, source=REFERENCE)
    remark = "other programs disturbed every repeat"
    assert remark not in words(drawn(SUMMARY, folder))
    edit(folder / frontier.CSV, "system=dali corpus=folder subset=all", calm_repeats="0")
    assert f"{remark} of: DALI (CPU)" in words(drawn(SUMMARY, folder))
    edit(folder / frontier.CSV, "", calm_repeats="0")
    text = words(drawn(SUMMARY, folder))
    assert remark in text
    assert f"{remark} of" not in text


def test_an_interval_around_1_is_called_a_tie(tmp_path: Path) -> None:
    folder = copy_tables(tmp_path, frontier.CSV, source=REFERENCE)
    ours = "system=ours corpus=folder subset=all"
    changes = {"speedup_vs_next": 1.1, "speedup_vs_next_min": 0.9, "speedup_vs_next_max": 1.3}
    edit(folder / frontier.CSV, ours, **changes)
    assert drawn(SUMMARY, folder).get_suptitle().startswith("1.10× (a tie) on photos and ")


def test_originals_stand_in_for_a_folder_that_was_not_measured(copy: Copy) -> None:
    folder = copy(frontier.CSV)
    rows = [row for row in read_table(folder / frontier.CSV) if row["corpus"] != "folder"]
    save(folder / frontier.CSV, rows)
    titles = [axes.get_title(loc="left") for axes in drawn(SUMMARY, folder).axes]
    assert titles == ["Originals at full resolution", "Images of 256 px"]


def test_without_our_loader_there_is_nothing_to_show(copy: Copy) -> None:
    folder = copy(frontier.CSV)
    for image_set in ("small_256", "original"):
        edit(folder / frontier.CSV, f"system=ours image_set={image_set}", img_per_s="")
    with pytest.raises(NothingToDrawError, match="no rate of our loader"):
        drawn(SUMMARY, folder)
