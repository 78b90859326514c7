"""`cores`: its grid, its table, and the predictions that were committed before it was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from experiments import _core_predictions, cores
from experiments._core_predictions import CORES, EMBED, Measured
from experiments._sentences import MeasuredRows
from harness import provenance
from tests.experiments import made
from tests.experiments.conftest import Grid
from wallclock.errors import UserError

PREDICTED = [
    {
        "system": system,
        "image_set": "small_256",
        "cores": str(n),
        "variant": "",
        "allocator": "keep",
    }
    | {"workers_per_core": "4" if system == "pil-draft" else "1"}
    | {"speedup_vs_one_core": gain, "speedup_low": "1.4", "speedup_high": "2.4"}
    for system in ("ours", "pil-draft", *EMBED)
    for n, gain in ((1, ""), (2, "1.9"))
]


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core_predictions, "load", lambda: PREDICTED)


def on(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """Plan for a machine with so many cores."""
    machine = provenance.machine() | {"cores": n}
    monkeypatch.setattr(provenance, "machine", lambda: machine)


@pytest.mark.usefixtures("committed")
class TestGrid:
    def test_every_system_on_every_number_of_cores(
        self, grid: Grid, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        on(monkeypatch, 4)
        cells = grid("cores", "repeats=3", "corpus.image_set=small_256")
        assert len(cells) == 3 * 3 * 4
        by_label = {cell.label: cell for cell in cells}
        assert {cell.params["pinned_cores"] for cell in cells} == {1, 2, 4}
        draft = by_label["pil-draft-4"]
        assert (draft.recipe.workers, draft.params["allocator"]) == (16, "keep")
        assert by_label["ours-2"].recipe.workers == 0, "as many threads as cores"
        assert {cell.recipe.device for cell in cells} == {"cpu"}
        jobs = [by_label[f"{name}-4"].params["settings"]["processes"] for name in EMBED]
        assert jobs == [1, 4]
        counts = [by_label[f"embed-threads-{n}"].params["n"] for n in (1, 2, 4)]
        assert counts == [8000, 16000, 32000]
        assert by_label["embed-threads-1"].model.weights == "none"

    def test_all_cores_are_measured_where_they_are_no_power(
        self, grid: Grid, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for n, expected in ((1, {1}), (3, {1, 2, 3}), (12, {1, 2, 4, 8, 12}), (32, {*CORES})):
            assert {*cores._counts(CORES, n)} == expected
        on(monkeypatch, 3)
        cells = grid("cores", "experiment.cores.systems=[ours]", "corpus.image_set=small_256")
        assert [cell.label for cell in cells] == ["ours-1", "ours-2", "ours-3"]

    def test_a_system_that_nobody_predicted(self, grid: Grid) -> None:
        with pytest.raises(UserError, match="no system is called 'dali'"):
            grid("cores", "experiment.cores.systems=[dali]")


def table(records: Sequence[Any]) -> dict[tuple[Any, Any], Mapping[str, Any]]:
    rows = cores.tables(records)[cores.CSV]
    assert all(row.keys() == {*cores.COLUMNS} for row in rows)
    return {(row["system"], row["cores"]): row for row in rows}


@pytest.mark.usefixtures("committed")
class TestTable:
    def test_gains_beside_what_was_predicted(self) -> None:
        rows = table(made.cores())
        two, four = rows["ours", 2], rows["ours", 4]
        assert (two["origin"], two["threads_per_core"], two["workers"]) == ("measured", "2", 2)
        assert two["speedup_vs_one_core"] == pytest.approx(1.8)
        assert two["predicted_img_per_s"] == pytest.approx(2000)
        assert (two["error"], two["within_interval"]) == (pytest.approx(2 / 1.8 - 1), True)
        assert (two["committed_speedup"], two["committed_within_interval"]) == (1.9, True)
        assert two["committed_error"] == pytest.approx(1.9 / 1.8 - 1)
        assert four["committed_speedup"] is None, "which nobody predicted"
        assert four["error"] == pytest.approx(4 / 3 - 1)
        assert rows["ours", 1]["predicted_img_per_s"] is None

    def test_more_cores_than_there_are_are_predicted(self) -> None:
        rows = table(made.cores())
        eight, sixteen = rows["ours", 8], rows["ours", 16]
        assert (eight["origin"], eight["repeats"], eight["error"]) == ("predicted", None, None)
        assert eight["img_per_s"] == eight["predicted_img_per_s"] == pytest.approx(8000)
        # An image of 1 ms holds the lock for 70 µs and 2 % of its time: 11,111 a second at most.
        assert sixteen["img_per_s"] == pytest.approx(1e6 / 90, rel=1e-3)
        assert (eight["limited_by"], sixteen["limited_by"]) == ("transform", "main")
        processes = rows["embed-processes", 16]
        assert processes["img_per_s"] == pytest.approx(16_000, rel=1e-3), "a lock each"

    def test_a_jobs_rate_is_that_of_its_loop(self) -> None:
        rows = table(made.cores())
        on_1, on_2 = (rows["embed-processes", n] for n in (1, 2))
        assert (on_1["img_per_s"], on_2["img_per_s"]) == (1000, 2000)
        assert (on_1["wall_s"], on_1["startup_s"]) == (10, 2)
        assert on_1["main_ms_per_image"] == pytest.approx(0.02)
        assert on_2["error"] == pytest.approx(0)

    def test_without_a_pass_on_one_core_there_is_no_gain(self) -> None:
        first, *others = made.cores()
        lost = replace(first, status="error", reason="killed", samples={}, values={})
        rows = table([lost, *others])
        assert rows["ours", 1]["status"] == "error"
        assert rows["ours", 2]["speedup_vs_one_core"] is None
        assert rows["ours", 4]["predicted_img_per_s"] == pytest.approx(3600), "from two cores"
        assert rows["ours", 4]["committed_error"] is None

    def test_a_system_that_is_not_here(self) -> None:
        absent = replace(made.cores()[0], status="unavailable", samples={}, values={})
        rows = cores.tables([absent])[cores.CSV]
        assert [(row["status"], row["img_per_s"]) for row in rows] == [("unavailable", None)]

    def test_the_sentence_compares_most_cores_with_one(self) -> None:
        rows = [
            {name: "" if cell is None else str(cell) for name, cell in row.items()}
            for row in cores.tables(made.cores())[cores.CSV]
        ]
        text = cores.sentence(MeasuredRows(lambda csv: rows))
        assert text == "on 4 cores ours loads 3,000 256 px images per second, 3.00× one core"
        two = [row for row in rows if row["cores"] in "12"]
        text = cores.sentence(MeasuredRows(lambda csv: two))
        assert text.endswith("1.80× one core (1.90× was predicted)")
        assert cores.sentence(MeasuredRows(lambda csv: rows[:1])) == ""
        busy = [row | {"other_cores": "1.5"} for row in rows]
        text = cores.sentence(MeasuredRows(lambda csv: busy))
        assert text == "other programs kept up to 1.5 cores busy, so that no gain counts"


class TestPredictions:
    """Of a system that did 2,000 images a second on two cores, 10 % slower each than one alone."""

    BASE = Measured("pil", "small_256", "synthetic", "CPU", 2, 64, 2000.0)
    CONTENTION = ((1, 1.0), (2, 1.1))

    def rows(self, **changes: Any) -> dict[Any, Any]:
        base = replace(self.BASE, **changes)
        return {row["cores"]: row for row in base.rows(self.CONTENTION)}

    def test_what_was_measured_is_predicted_of_as_many_cores(self) -> None:
        rows = self.rows()
        assert [*rows] == [*CORES]
        assert rows[2]["img_per_s"] == pytest.approx(2000)
        assert rows[1]["img_per_s"] == pytest.approx(1100), "alone, it is as much faster"
        assert rows[16]["speedup_vs_one_core"] == pytest.approx(16 / 1.1)
        assert rows[16]["speedup_low"] < 16 / 1.1 < rows[16]["speedup_high"]
        assert rows[1]["speedup_vs_one_core"] is None
        assert {row["origin"] for row in rows.values()} == {"predicted"}

    def test_threads_of_one_process_share_its_lock(self) -> None:
        ours, others = self.rows(system="ours")[16], self.rows()[16]
        locked_s = 70e-6 + 0.02 / 1100
        assert ours["img_per_s"] == pytest.approx(1 / locked_s, rel=1e-3)
        assert (ours["limited_by"], others["limited_by"]) == ("main", "transform")

    def test_the_main_process_is_one_on_any_machine(self) -> None:
        row = self.rows(system="embed-processes", main_ms=0.2)[16]
        assert row["img_per_s"] == pytest.approx(5000, rel=1e-3)
        assert row["limited_by"] == "main"


def test_the_committed_predictions_are_complete() -> None:
    """Five loaders of each image set and both jobs, on every number of cores."""
    rows = _core_predictions.load()
    assert [*rows[0]] == [*_core_predictions.COLUMNS]
    for image_set in ("small_256", "original"):
        systems = list(dict.fromkeys(r["system"] for r in rows if r["image_set"] == image_set))
        assert len(systems) == _core_predictions.FASTEST + len(EMBED)
        assert "ours" in systems
        for system in systems:
            of_system = [_core_predictions.committed(rows, system, image_set, n) for n in CORES]
            assert all(row and float(row["img_per_s"]) > 0 for row in of_system)
