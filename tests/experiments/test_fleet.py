"""`fleet`: the formula."""

from typing import Any

import pytest

from experiments import _accelerators, fleet
from harness.records import Record
from tests.experiments import made
from wallclock.recipe import Recipe


def loading(load_ms: float) -> Record:
    """Loading takes so long of a core where all cores are busy, and half of it alone."""
    all_cores = str(made.MACHINE["cores"])
    values = {"cpu_s": {"1": load_ms / 2e3, all_cores: load_ms / 1e3}, "mean_bytes": 20_000}
    return made.record("predict", "contention", "loading-fast", values, {}, recipe=Recipe("fast"))


def rows(load_ms: float) -> dict[tuple[str, int], dict[str, Any]]:
    made_rows = fleet.tables([loading(load_ms)])[fleet.CSV]
    assert all(row.keys() == {*fleet.COLUMNS} for row in made_rows)
    return {(row["instance"], row["nodes"]): row for row in made_rows}


def test_what_binds_sets_the_rate_and_the_dollars() -> None:
    """0.116 ms of a core for a GET: 3.884 ms more make 4 ms, 500 images/s on two cores."""
    by = rows(3.884)
    one, eight = by["g4dn.xlarge", 1], by["g4dn.xlarge", 8]
    assert (one["bound_by"], one["img_per_s"]) == ("CPU", pytest.approx(500))
    assert one["hours"] == pytest.approx((280 + 40_000) / 3600)
    assert eight["img_per_s"] == pytest.approx(4000)
    assert eight["hours"] == pytest.approx((280 + 5000) / 3600)
    assert one["usd_on_demand"] == pytest.approx(0.526 * one["hours"] + 8)
    assert one["usd_per_million_spot"] == pytest.approx((0.247 * one["hours"] + 8) / 20)
    low, high = _accelerators.load()["L4"].rates("fp16")
    gpu = rows(0.1)["g6.2xlarge", 1]
    assert (gpu["bound_by"], gpu["img_per_s"]) == ("GPU", pytest.approx((low * high) ** 0.5))
    assert (gpu["img_per_s_low"], gpu["img_per_s_high"]) == pytest.approx((low, high))
    assert by["g6.2xlarge", 1]["img_per_s_high"] == pytest.approx(1000), "its four cores' rate"


def test_without_a_measured_loader_there_is_no_table() -> None:
    assert fleet.tables([]) == {}
