"""Experiments on whole jobs, on one machine and many."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from experiments.cluster.systems import SYSTEMS
from experiments.cores import cells as cores
from experiments.train import cells as train
from harness import provenance
from harness.records import Record
from tests.experiments import made
from tests.experiments.conftest import Grid
from wallclock.errors import UserError

# --- train ----------------------------------------------------------------------------------------


def rows_of(records: list[Record]) -> dict[str, dict[str, Any]]:
    return {str(row["part"]): row for row in train.tables(records)[train.CSV]}


def test_an_unknown_place_of_the_augmentation(grid: Grid) -> None:
    with pytest.raises(UserError, match=re.escape("no experiment.train.augment is called 'gpu'")):
        grid("train", "experiment.train.augment=[gpu]")


@pytest.mark.parametrize(
    ("device", "together", "limit"),
    [
        ("cpu", {"n_loaded": 480}, "step"),
        ("cpu", {"other_cores": 1.0}, "other processes"),
        ("cuda", {"n_loaded": 200}, "decode"),
        ("cuda", {"n_loaded": 80}, "main"),
    ],
)
def test_what_limits_a_job(device: str, together: dict[str, Any], limit: str) -> None:
    """200 images in ten seconds, of which the main process waits four; the step alone does 50/s."""
    assert rows_of(made.train(device, **together))["together"]["limited_by"] == limit


# --- cores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "expected"), [(1, {1}), (3, {1, 2, 3}), (12, {1, 2, 4, 8, 12}), (32, {1, 2, 4, 8, 16})]
)
def test_all_cores_are_measured_where_they_are_no_power(
    grid: Grid, monkeypatch: pytest.MonkeyPatch, n: int, expected: set[int]
) -> None:
    machine = provenance.machine() | {"cores": n}
    monkeypatch.setattr(provenance, "machine", lambda: machine)
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


# --- cluster --------------------------------------------------------------------------------------


def test_grid_of_cluster(grid: Grid) -> None:
    cells = grid("cluster", "repeats=3", "corpus.image_set=small_256")
    jobs = [cell for cell in cells if cell.label.endswith("-job")]
    assert [cell.params["system"] for cell in jobs] == [*SYSTEMS] * 3
    assert [cell.repeat for cell in jobs] == [repeat for repeat in range(3) for _ in SYSTEMS]
    n = {cell.params["system"]: cell.params["n"] for cell in jobs}
    assert n["ours"] == n["ours-ray"] == n["daft"]
    assert {cell.params["least_s"] for cell in jobs} == {60}
    damaged = [cell for cell in cells if cell.params["damaged"]]
    assert {cell.params["n"] for cell in damaged} == {n["daft"]}
    assert not any("least_s" in cell.params for cell in damaged)
    assert {cell.model.service_ms for cell in cells} == {0}
