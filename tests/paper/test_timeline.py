"""Figures of spans, and the summary."""

from collections import defaultdict
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from experiments.frontier import cells as frontier
from experiments.opt import cells as opt
from experiments.opt import spans
from experiments.opt.spans import Span, Window
from experiments.t4 import cells as t4
from harness.drawing.rendering import NothingToDrawError
from harness.table import read_table
from tests.paper.tables import REFERENCE, Copy, Row, copy_tables, drawn, edit, save, words
from wallclock.clock import STAGES

# --- timeline -------------------------------------------------------------------------------------


STEM = "fig-06-cpu-gpu-timeline"
COLUMNS = list(t4.TABLES[t4.TIMELINE_CSV])
Rows = list[Row]


def forward_passes(n: int, period: float = 10.0, duration: float = 6.0) -> list[Span]:
    return [Span("gpu", "forward", i, i * period, duration) for i in range(n)]


def loading(start: float, n: int = 20) -> list[Span]:
    return [Span("worker 0", "decode", i, 10.0 * i + start, 10.0) for i in range(n)]


def timeline(workers: int = 4, n: int = 20, image_ms: float = 0.5, step_ms: float = 100) -> Rows:
    """Rows of a GPU run in which each worker loads every `workers`-th batch of 32 images."""
    machine: dict[str, Any] = {"corpus": "abo", "weights": "pretrained", "device": "Tesla T4"}
    machine |= {"n_images": 20000, "batch_size": 32, "workers": workers}
    recorded = []
    for batch in range(n):
        start, lane = step_ms * batch, f"worker {batch % workers}"
        for index in range(64):
            at, stage = start - step_ms * workers + image_ms * index, STAGES[1 + index % 2]
            recorded.append(Span(lane, stage, batch, at, image_ms))
        recorded.append(Span("main", "wait", batch, start, step_ms * 0.1))
        recorded.append(Span("gpu", "forward", batch, start + step_ms * 0.1, step_ms * 0.8))
    names = ("lane", "stage", "batch", "start_ms", "duration_ms")
    return [machine | dict(zip(names, astuple(span), strict=True)) for span in recorded]


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


class TestFigure:
    @pytest.mark.parametrize(
        ("baseline", "optimized", "present", "absent"),
        [
            ({}, {"workers": 8, "n": 40, "step_ms": 57}, "drawn together, batch", "not recorded"),
            ({"step_ms": 4000}, {"step_ms": 5, "image_ms": 0.05}, "different scales", "hatched"),
            ({"image_ms": 12}, None, "recorded spans, not a model", "drawn together"),
        ],
    )
    def test_remarks(
        self, tmp_path: Path, baseline: Any, optimized: Any, present: str, absent: str
    ) -> None:
        save(tmp_path / t4.TIMELINE_CSV, timeline(**baseline), COLUMNS)
        if optimized:
            save(tmp_path / opt.TIMELINE_CSV, timeline(**optimized), COLUMNS)
        figure = drawn(STEM, tmp_path)
        assert present in words(figure)
        assert absent not in words(figure)
        limits = [axes.get_xlim()[1] for axes in figure.axes]
        assert (limits[0] > 20 * limits[-1]) == ("different scales" in words(figure))

    def test_too_few_batches(self, copy: Copy) -> None:
        folder = copy(t4.TIMELINE_CSV, opt.TIMELINE_CSV)
        rows = [row for row in read_table(folder / opt.TIMELINE_CSV) if row["batch"] == 0]
        save(folder / opt.TIMELINE_CSV, [row | {"n_images": "6400"} for row in rows])
        assert "optimized: too few batches to show" in words(drawn(STEM, folder))
        (folder / t4.TIMELINE_CSV).unlink()
        with pytest.raises(NothingToDrawError, match="no two forward passes"):
            drawn(STEM, folder)


# --- summary figure -------------------------------------------------------------------------------


SUMMARY = "fig-00-summary"


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
    assert f"{faithful['img_per_s']:.0f} / 999" in [text.get_text() for text in photos.texts]


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
