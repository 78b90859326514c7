"""`cores`: its grid and its table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from experiments import cores
from harness import provenance
from tests.experiments import made
from tests.experiments.conftest import Grid


def on(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """Plan for a machine with so many cores."""
    machine = provenance.machine() | {"cores": n}
    monkeypatch.setattr(provenance, "machine", lambda: machine)


class TestGrid:
    def test_every_system_on_every_number_of_cores(
        self, grid: Grid, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        on(monkeypatch, 4)
        draft = "experiment.cores.systems.pil-draft.workers_per_core=4"
        cells = grid("cores", "repeats=3", "corpus.image_set=small_256", draft)
        assert len(cells) == 3 * 3 * 7
        by_label = {cell.label: cell for cell in cells}
        assert {cell.params["pinned_cores"] for cell in cells} == {1, 2, 4}
        draft_4 = by_label["pil-draft-4"]
        assert (draft_4.recipe.workers, draft_4.params["allocator"]) == (16, "keep")
        assert by_label["ours-2"].recipe.workers == 0, "as many threads as cores"
        assert {cell.recipe.device for cell in cells} == {"cpu"}
        jobs = [by_label[f"{name}-4"].params["settings"]["processes"] for name in cores.EMBED]
        assert jobs == [1, 4]
        counts = [by_label[f"embed-threads-{n}"].params["n"] for n in (1, 2, 4)]
        assert counts == [8000, 16000, 32000]
        assert by_label["embed-threads-1"].model.weights == "none"

    @pytest.mark.parametrize(
        ("n", "expected"),
        [(1, {1}), (3, {1, 2, 3}), (12, {1, 2, 4, 8, 12}), (32, {1, 2, 4, 8, 16})],
    )
    def test_all_cores_are_measured_where_they_are_no_power(
        self, grid: Grid, monkeypatch: pytest.MonkeyPatch, n: int, expected: set[int]
    ) -> None:
        on(monkeypatch, n)
        cells = grid("cores", "corpus.image_set=small_256")
        assert {cell.params["pinned_cores"] for cell in cells} == expected


def table(records: Sequence[Any]) -> dict[tuple[Any, Any], Mapping[str, Any]]:
    rows = cores.tables(records)[cores.CSV]
    assert all(row.keys() == {*cores.COLUMNS} for row in rows)
    return {(row["system"], row["cores"]): row for row in rows}


class TestTable:
    def test_gains_over_one_core(self) -> None:
        rows = table(made.cores())
        one, two = rows["ours", 1], rows["ours", 2]
        assert (two["origin"], two["workers"]) == ("measured", 2)
        assert two["speedup_vs_one_core"] == pytest.approx(1.8)
        assert one["speedup_vs_one_core"] is None

    def test_a_jobs_rate_is_that_of_its_loop(self) -> None:
        rows = table(made.cores())
        on_1, on_2 = (rows["embed-processes", n] for n in (1, 2))
        assert (on_1["img_per_s"], on_2["img_per_s"]) == (1000, 2000)
        assert (on_1["wall_s"], on_1["startup_s"]) == (10, 2)
        assert on_1["main_ms_per_image"] == pytest.approx(0.02)

    def test_without_a_pass_on_one_core_there_is_no_gain(self) -> None:
        first, *others = made.cores()
        lost = replace(first, status="error", reason="killed", samples={}, values={})
        rows = table([lost, *others])
        assert rows["ours", 1]["status"] == "error"
        assert rows["ours", 4]["speedup_vs_one_core"] is None

    def test_a_system_that_is_not_here(self) -> None:
        absent = replace(made.cores()[0], status="unavailable", samples={}, values={})
        rows = cores.tables([absent])[cores.CSV]
        assert [(row["status"], row["img_per_s"]) for row in rows] == [("unavailable", None)]
