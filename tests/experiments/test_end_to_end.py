"""The rows that the end-to-end experiments share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from experiments import _end_to_end
from experiments._common import Row
from tests.experiments import made
from tests.experiments.made import MS
from wallclock.clock import STAGES
from wallclock.records import Record
from wallclock.spec import ModelSpec, Recipe


def record(recipe: Recipe, repeat: int = 0, wall_ms: int = 1000, **changes: Any) -> Record:
    samples = {name: [10 * MS] * 5 for name in STAGES}
    samples |= {"wait": [MS] * 5, "batch": [20 * MS] * 5, "wall": [wall_ms * MS]}
    telemetry = {"cpu_cores": [1.0, 3.0], "throttle_reasons": ["power cap"]}
    values = {"n_embedded": 10, "n_unique": 10, "steady": True, "startup_s": 2.0}
    return made.record(
        "t4",
        "throughput",
        recipe.name,
        recipe,
        repeat,
        samples=samples,
        values={**values, "telemetry": telemetry},
        **changes,
    )


def table(records: list[Record]) -> list[Row]:
    return _end_to_end.tables("a.csv")(records)["a.csv"]


def test_row_is_the_median_pass_with_its_spread() -> None:
    recipe = Recipe("baseline", workers=4)
    records = [record(recipe, repeat, wall) for repeat, wall in enumerate((3000, 1000, 2000))]
    (row,) = table(records)
    assert tuple(row) == _end_to_end.COLUMNS
    walls = (row["wall_s"], row["wall_s_min"], row["wall_s_max"], row["repeats"])
    assert walls == (2.0, 1.0, 3.0, 3)
    rates = (row["img_per_s"], row["img_per_s_min"], row["img_per_s_max"])
    assert rates == (5.0, 10 / 3, 10.0)
    assert sum(float(str(row[f"{name}_share"])) for name in STAGES) == pytest.approx(1)
    assert row["wait_share"] == pytest.approx(0.0025)
    assert row["usd_per_million"] == pytest.approx(1e6 / 5 / 3600 * 3.6)
    assert (row["cpu_cores_used"], row["throttle_reasons"]) == (2.0, "power cap")
    assert (row["gate"], row["status"], row["dct_margin"]) == ("reference", "ok", None)


def test_out_of_memory_is_a_row() -> None:
    small, large = record(Recipe("batch-1", batch_size=1)), record(Recipe("big", batch_size=256))
    rows = table([small, replace(large, status="oom", reason="out of memory")])
    assert [(row["batch_size"], row["status"]) for row in rows] == [(1, "ok"), (256, "oom")]
    assert rows[1]["img_per_s"] is None


def test_service_time_of_a_mock_model() -> None:
    mock = ModelSpec("null", weights="none", service_ms=8.0, service_ms_per_image=2.0)
    (row,) = table([record(Recipe("baseline", batch_size=32), model=mock)])
    assert (row["weights"], row["service_ms"]) == ("none", 72.0)
