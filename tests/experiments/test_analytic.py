"""`analytic`: the source's print to the last digit, this machine's rows, cited accelerators."""

from typing import Any

import pytest

from experiments import analytic
from harness.records import Record
from tests.experiments import made
from tests.experiments.conftest import Grid

Row = dict[str, Any]


def rows_of(records: list[Record], csv: str = analytic.CSV) -> dict[str, Row]:
    return {str(row["what"]): row for row in analytic.tables(records)[csv]}


def test_source_to_the_printed_digits() -> None:
    rows = [row for row in analytic.source_rows() if row["printed_utilization"]]
    assert [row["batch_size"] for row in rows] == [32, 64, 128, 256, 512, 1024, 35]
    for row in rows:
        places = len(row["printed_utilization"].partition(".")[2])
        assert f"{100 * row['utilization']:.{places}f}" == row["printed_utilization"]
        assert f"{row['transform_ms']:.10g}" == row["printed_transform_ms"]
    row = rows[3]
    assert (f"{row['slowdown']:.2f}", f"{row['demand_gb_per_s']:.1f}") == ("5.45", "10.9")
    assert (round(row["accelerator_img_per_s"]), row["transform_img_per_s"]) == (21806, 4000)
    assert "5,300 and 850" in row["note"]
    assert round(row["crossover_batch"]) == 22


@pytest.mark.parametrize(
    ("scenario", "size", "utilization", "bottleneck", "workers"),
    [
        ("workers: 16", 256, 36.7, "transform", 44),
        ("workers: 16", 32, 100.0, "accelerator", 11),
        ("workers: 32", 512, 50.5, "storage", 56),
        ("samples of 5 MB", 256, 1.8, "transform", 437),
        ("DALI at 50 GB/s", 512, 50.5, "storage", None),
    ],
)
def test_sources_scenarios_against_every_wall(
    scenario: str, size: int, utilization: float, bottleneck: str, workers: int | None
) -> None:
    """The source's 100 % with DALI holds for transform against step, not for one drive."""
    (row,) = (
        row
        for row in analytic.source_rows()
        if (row["scenario"], row["batch_size"]) == (scenario, size)
    )
    assert round(100 * row["utilization_all_walls"], 1) == utilization
    assert (row["bottleneck"], row["workers_needed"]) == (bottleneck, workers)
    if scenario.startswith("DALI"):
        assert row["utilization"] == 1
        assert row["crossover_batch"] is None


def test_this_machine() -> None:
    rows = rows_of(made.analytic())
    row = rows["this machine, workers: 4, batch 32"]
    assert row["transform_ms"] == pytest.approx(32 / 300 * 1e3)
    assert row["utilization"] == pytest.approx(42 / (32 / 300 * 1e3))
    assert row["bottleneck"] == "transform"
    # 10 ms a batch, and 10/3 - 1 ms an image that the transform takes longer.
    assert row["crossover_batch"] == pytest.approx(10 / (10 / 3 - 1))
    assert (row["step_origin"], row["workers_needed"]) == ("measured", 8)
    assert row["storage_img_per_s"] == pytest.approx(10_000), "the faster of the cold passes"
    assert row["interconnect_img_per_s"] is None
    assert "upper bound" in row["note"]
    last = rows["this machine, workers: 4, batch 1024"]
    assert (last["step_origin"], round(last["step_ms"])) == ("extrapolated", 1034)
    assert rows_of(made.analytic("cuda"))[last["what"]]["note"] == ""


def test_walls() -> None:
    walls = rows_of(made.analytic(), analytic.WALLS_CSV)
    cold = walls["storage, cold, readers: 1"]
    assert (cold["img_per_s"], cold["gb_per_s"]) == (pytest.approx(2500), pytest.approx(0.05))
    assert (cold["img_per_s_min"], cold["img_per_s_max"]) == (pytest.approx(2000), 5000)
    assert (cold["from_disk_share"], walls["storage, warm"]["from_disk_share"]) == (1, None)
    copy, forward = walls["interconnect: h2d"], walls["accelerator: forward"]
    assert (copy["status"], copy["img_per_s"]) == ("unavailable", None)
    assert (forward["batch_size"], forward["img_per_s"]) == (32, pytest.approx(32 / 0.042))
    copy = rows_of(made.analytic("cuda"), analytic.WALLS_CSV)["interconnect: h2d"]
    assert copy["gb_per_s"] == pytest.approx(1000 * 4 * 3 * 224**2 / 1e9)


def test_accelerators_have_a_source_and_predicted_rates() -> None:
    walls = rows_of(made.analytic(), analytic.WALLS_CSV)
    cited = [row for row in walls.values() if row["wall"] == analytic.ELSEWHERE]
    assert [row["what"].split(",")[0] for row in cited] == ["T4", "L4", "A100", "H100", "H200"]
    assert [row["origin"] for row in cited] == ["paper", *["predicted"] * 4]
    assert all(row["source"].startswith("https://www.nvidia.com/") for row in cited)
    t4, l4, *_ = cited
    assert (t4["img_per_s_min"], t4["img_per_s_max"]) == (1006, 1006)
    assert (t4["utilization"], t4["workers_needed"]) == (pytest.approx(300 / 1006), 11)
    assert l4["img_per_s"] == pytest.approx(1006 * 300 / 320), "its memory is slower than a T4's"
    assert l4["img_per_s_max"] == pytest.approx(1006 * 121 / 65)


@pytest.mark.parametrize("part", ["step", "contention"])
def test_a_part_that_failed_is_a_wall_with_its_status(part: str) -> None:
    tables = analytic.tables(made.analytic(failed=part))
    assert {row["case"] for row in tables[analytic.CSV]} == {"source"}
    wall = {"step": "accelerator", "contention": "transform"}[part]
    (failed,) = (row for row in tables[analytic.WALLS_CSV] if row["wall"] == wall)
    assert (failed["status"], failed["img_per_s"]) == ("error", None)
    assert analytic.tables([]) == {}


def test_noise_for_the_step_is_normalized_already(grid: Grid) -> None:
    *parts, step = grid("analytic", "experiment.analytic.recipe.normalize_on=device")
    assert [part.protocol for part in parts] == ["storage", "contention"]
    assert (parts[1].recipe.normalize_on, step.recipe.normalize_on) == ("device", "host")
