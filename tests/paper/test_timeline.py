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


# --- summary figure -------------------------------------------------------------------------------


SUMMARY = "fig-00-summary"


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
