"""`profiler`: its cells, and its table from made records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments import profiler
from tests.experiments import made
from wallclock.records import Record
from wallclock.spec import Recipe


def measured(
    stage: int, plain: int, repeat: int = 0, torch: float = 0.01, c: float = 0.002
) -> Record:
    """Two rounds of 100 calls; a bare loop costs 10 ns a call, a stage call `stage` ns more."""
    samples = {
        "bare_loop": [1_000, 3_000],
        "stage_calls": [1_000 + 100 * stage, 3_000 + 100 * stage],
        "contextlib_calls": [1_000 + 100 * plain, 3_000 + 100 * plain],
    }
    differences = {
        "torch.profiler": {"decode": torch, "resize": torch / 2},
        "cProfile": {"decode": c, "forward": 0.0},
    }
    values = {"calls_per_round": 100, "differences": differences}
    return made.record(
        "profiler",
        "profiler",
        "profiler",
        Recipe("baseline"),
        repeat,
        samples=samples,
        values=values,
    )


def test_one_cell_a_repeat_on_the_corpus_that_is_there(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[profiler]", "repeats=2", "corpus.image_set=small_256")
    cells = profiler.cells(plan, plan.settings.experiments["profiler"])
    assert [(cell.protocol, cell.repeat) for cell in cells] == [("profiler", 0), ("profiler", 1)]
    assert {cell.corpus.image_set for cell in cells if cell.corpus} == {"small_256"}


def test_cost_is_per_call_with_the_bare_loop_taken_off() -> None:
    records = [measured(200, 800), measured(100, 900, 1), measured(300, 700, 2)]
    stage, plain, *agreement = profiler.tables(records)[profiler.CSV]
    assert tuple(stage) == profiler.COLUMNS
    assert [row["what"] for row in (stage, plain, *agreement)] == [
        *(
            "stage call",
            "contextlib call",
            "torch.profiler",
            "cProfile",
            "torch.profiler and cProfile",
        )
    ]
    assert (stage["ns_per_call"], stage["ns_per_call_min"], stage["ns_per_call_max"]) == (
        200,
        100,
        300,
    )
    assert plain["ns_per_call"] == 800
    assert (stage["ratio_to_contextlib"], plain["ratio_to_contextlib"]) == (0.25, 1)
    assert (stage["n_calls"], stage["repeats"]) == (600, 3)


def test_agreement_is_the_worst_stage_of_the_median_repeat() -> None:
    records = [measured(1, 2, repeat, torch) for repeat, torch in enumerate((0.5, 0.01, 0.02))]
    torch, c, both = profiler.tables(records)[profiler.CSV][2:]
    assert torch["max_relative_difference"] == pytest.approx(0.02)
    assert c["max_relative_difference"] == pytest.approx(0.002)
    assert both["max_relative_difference"] == pytest.approx(0.02)


def test_a_crash_is_a_row_without_numbers_and_nothing_is_no_table() -> None:
    lost = replace(measured(1, 2), status="error", reason="killed")
    rows = profiler.tables([lost])[profiler.CSV]
    assert [(row["status"], row["reason"], row["ns_per_call"]) for row in rows] == [
        ("error", "killed", None)
    ] * 2
    assert profiler.tables([]) == {}
