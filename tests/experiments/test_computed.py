"""Experiments that compute from what others measured."""

from dataclasses import replace
from typing import Any

import pytest

from experiments.analytic import cells as analytic
from experiments.suite import cells as suite
from harness.records import Record
from harness.spec import Recipe
from tests.experiments import made
from tests.experiments.conftest import Grid
from tests.experiments.made import MS

# --- analytic -------------------------------------------------------------------------------------


Row = dict[str, Any]


def test_source_to_the_printed_digits() -> None:
    rows = [row for row in analytic.source_rows() if row["printed_utilization"]]
    assert [row["batch_size"] for row in rows] == [32, 64, 128, 256, 512, 1024, 35]
    for row in rows:
        places = len(str(row["printed_utilization"]).partition(".")[2])
        assert round(100 * row["utilization"], places) == row["printed_utilization"]
        assert row["transform_ms"] == pytest.approx(row["printed_transform_ms"])
    row = rows[3]
    assert (f"{row['slowdown']:.2f}", f"{row['demand_gb_per_s']:.1f}") == ("5.45", "10.9")
    assert (round(row["accelerator_img_per_s"]), row["transform_img_per_s"]) == (21806, 4000)
    assert "5,300 and 850" in row["note"]
    assert round(row["crossover_batch"]) == 22


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


# --- suite ----------------------------------------------------------------------------------------


def records() -> list[Record]:
    """All passes of the paper in two repeats: 100 images a second, then 50; decoding takes 5 ms."""
    measured: list[Record] = []
    for name, passes in suite.PASSES.items():
        for image_set in passes.n_images:
            for number in range(passes.n_passes // len(passes.n_images)):
                decoders = passes.decoders or ("pil", "opencv", "turbojpeg")
                decoder = decoders[number % len(decoders)]
                recipe = Recipe(f"{name}-{number}", decoder=decoder, batch_size=32)
                for repeat, wall_ms in enumerate((100, 200)):
                    samples = {"wall": [wall_ms * MS], "decode": [5 * MS] * 10}
                    values: dict[str, Any] = {"n_embedded": 10}
                    new = made.record(
                        name, passes.protocol, recipe.name, values, {}, samples, recipe
                    )
                    corpus = replace(new.cell.images, image_set=image_set)
                    cell = replace(new.cell, corpus=corpus, repeat=repeat)
                    measured.append(replace(new, cell=cell))
    return measured


def rows(measured: list[Record]) -> dict[object, Row]:
    return {row["what"]: row for row in suite.tables(measured)[suite.CSV]}


def test_other_passes_do_not_count() -> None:
    """Pillow's worker sweep and other decoders are not of the paper."""
    measured = records()
    extra = [
        replace(record, cell=replace(record.cell, label="more", recipe=changed))
        for record in measured
        if record.cell.experiment in ("workers", "decoders")
        for changed in [replace(record.cell.recipe, decoder="simplejpeg")]
    ]
    assert rows([*measured, *extra]) == rows(measured)


def test_a_pass_that_was_not_measured_leaves_no_sum() -> None:
    measured = [
        replace(record, status="error", reason="killed", samples={})
        if record.cell.label == "batch-3"
        else record
        for record in records()
    ]
    by_name = rows(measured)
    assert by_name["batch"]["suite_s"] is None
    assert by_name["batch"]["reason"] == "6 of 7 passes were measured: --experiment batch"
    total = by_name[suite.ALL]
    assert (total["status"], total["suite_s"], total["n_images"]) == ("not measured", None, None)
    assert total["reason"] == "not all passes were measured: --experiment batch"
    assert by_name["t4"]["status"] == "ok"
    assert {row["status"] for row in rows([]).values()} == {"not measured"}
