"""`t4`, `opt` and `fast`: one recipe each, in the paper's settings and with its timeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import experiments
from tests.reference import reference_records
from wallclock.spec import Cell


@pytest.mark.parametrize(
    ("name", "compared"), [("t4", 0), ("opt", 1), ("fast", 1)], ids=["t4", "opt", "fast"]
)
def test_grid(name: str, compared: int, grid: Callable[..., list[Cell]]) -> None:
    cells = grid(name, "repeats=2")
    protocols = ["fidelity"] * compared + ["throughput"] * 2
    assert [cell.protocol for cell in cells] == protocols
    assert [cell.repeat for cell in cells[compared:]] == [0, 1]
    assert len({cell.recipe for cell in cells[compared:]}) == 1
    for cell in cells[:compared]:
        assert [recipe["name"] for recipe in cell.params["recipes"]] == [cells[-1].recipe.name]


@pytest.mark.parametrize("name", ["t4", "opt", "fast"])
def test_timeline_is_of_the_first_repeat_with_spans(name: str) -> None:
    module: Any = experiments.load(name)
    records = reference_records(name)
    (spans,) = [record.spans for record in records if record.spans]
    rows = module.tables(records)[module.TIMELINE_CSV]
    assert len(rows) == len(spans)
    lane, stage, _, start_ns, duration_ns = spans[0]
    assert (rows[0]["lane"], rows[0]["stage"]) == (lane, stage)
    assert (rows[0]["start_ms"], rows[0]["duration_ms"]) == (start_ns / 1e6, duration_ns / 1e6)
