"""`analytic`: the source's print to the last digit, this machine's rows."""

from typing import Any

import pytest

from experiments import analytic
from harness.records import Record
from tests.experiments import made
from tests.experiments.conftest import Grid

Row = dict[str, Any]


def rows_of(records: list[Record]) -> dict[str, Row]:
    return {str(row["what"]): row for row in analytic.tables(records)[analytic.CSV]}


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


def test_the_copy_to_the_device_at_its_fastest_batch() -> None:
    row = rows_of(made.analytic("cuda"))["this machine, workers: 4, batch 32"]
    assert row["interconnect_img_per_s"] == pytest.approx(1000)


@pytest.mark.parametrize("part", ["step", "contention"])
def test_a_part_that_failed_is_a_row_with_its_status(part: str) -> None:
    *source, failed = analytic.tables(made.analytic(failed=part))[analytic.CSV]
    assert {row["case"] for row in source} == {"source"}
    assert (failed["what"], failed["status"]) == ("this machine", "error")
    assert failed["image_set"] == "small_256"
    assert analytic.tables([]) == {}


def test_noise_for_the_step_is_normalized_already(grid: Grid) -> None:
    *parts, step = grid("analytic", "experiment.analytic.recipe.normalize_on=device")
    assert [part.protocol for part in parts] == ["storage", "contention"]
    assert (parts[1].recipe.normalize_on, step.recipe.normalize_on) == ("device", "host")
