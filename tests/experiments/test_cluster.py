"""`cluster`: its grid, and its tables."""

from dataclasses import replace

import pytest

from experiments import cluster
from experiments._sentences import MeasuredRows
from harness.systems import SYSTEMS
from tests.experiments import made
from tests.experiments.conftest import Grid
from wallclock.errors import UserError


def test_grid(grid: Grid) -> None:
    cells = grid("cluster", "repeats=3", "corpus.image_set=small_256")
    jobs = [cell for cell in cells if cell.label.endswith("-job")]
    assert [cell.params["system"] for cell in jobs] == [*SYSTEMS] * 3
    assert [cell.repeat for cell in jobs] == [0] * 5 + [1] * 5 + [2] * 5
    n = {cell.params["system"]: cell.params["n"] for cell in jobs}
    assert n["ours"] == n["ours-ray"] == n["daft"]
    assert {cell.params["least_s"] for cell in jobs} == {60}
    damaged = [cell for cell in cells if cell.params["damaged"]]
    assert {cell.params["n"] for cell in damaged} == {n["daft"]}
    assert not any("least_s" in cell.params for cell in damaged)
    assert {cell.model.service_ms for cell in cells} == {0}


def test_grid_of_some_systems(grid: Grid) -> None:
    with pytest.raises(UserError, match="did you mean daft"):
        grid("cluster", "experiment.cluster.systems=[dafd]")


def test_grid_of_an_image_set(grid: Grid) -> None:
    cells = grid("cluster", "experiment.cluster.images={original: 20}")
    assert {cell.images.image_set for cell in cells if cell.images} == {"original"}


def test_an_unknown_image_set(grid: Grid) -> None:
    with pytest.raises(UserError, match="did you mean original"):
        grid("cluster", "experiment.cluster.images={originals: 20}")


def test_rows() -> None:
    rows = {str(row["system"]): row for row in cluster.tables(made.cluster())[cluster.CSV]}
    ours, rays, daft = (rows[name] for name in ("ours-ray", "ray-images", "daft"))
    assert (ours["img_per_s"], ours["img_per_s_per_core"], ours["repeats"]) == (100, 50, 2)
    shares = [rays[f"share_of_ours{end}"] for end in ("", "_min", "_max")]
    assert shares == [pytest.approx(25 / n) for n in (100, 110, 90)]
    assert rays["stored_kb_per_image"] == 150
    assert (ours["psnr_db_p5"], ours["gate"], rays["gate"]) == (58, "passed", "not checked")
    assert (daft["status"], daft["img_per_s"]) == ("unavailable", None)


def test_what_ray_costs_our_own_job() -> None:
    """100 a second on Ray, 90 to 110; 125 in one process, 120 to 130."""
    records = made.cluster()
    alone = [
        replace(
            record,
            cell=replace(
                record.cell, label="ours-job", params={**record.cell.params, "system": "ours"}
            ),
            values={**record.values, "n_loaded": rate},
        )
        for record, rate in zip(records[:2], (120, 130), strict=True)
    ]
    rows = {row["system"]: row for row in cluster.tables([*alone, *records])[cluster.CSV]}
    cost = [rows["ours-ray"][f"cost_over_one_process{end}"] for end in ("_min", "", "_max")]
    assert cost == pytest.approx([1 - 110 / 120, 1 - 100 / 125, 1 - 90 / 130])
    assert rows["ray-images"]["cost_over_one_process"] is None
    assert rows["ours"]["pass_s"] == 1
    cells = {name: str(value) for name, value in rows["ours-ray"].items()}
    said = cluster.sentence(MeasuredRows(lambda csv: [cells]))
    assert said == "Ray costs wallclock 20.0 % of one process's rate [8.3 %, 30.8 %]"


def test_damaged_files() -> None:
    rows = {str(row["system"]): row for row in cluster.tables(made.cluster())[cluster.CSV]}
    names = ("damaged", "aborted", "rows_lost", "errored_rows_lost", "damaged_delivered")
    assert [rows["ours-ray"][name] for name in names] == [5, "no", 0, None, 0]
    assert [rows["ray-images"][name] for name in names] == [5, "OSError: cut", None, 45, 0]
    assert rows["daft"]["aborted"] is None
