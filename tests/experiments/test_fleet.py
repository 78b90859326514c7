"""`fleet`: its grid, its inputs and rows, and the check against a cluster's runs."""

from collections.abc import Iterator
from typing import Any

import pytest

from experiments import fleet
from harness.predict import fleet as simulation
from harness.predict.fleet import Fleet, Run
from harness.records import Record
from tests.experiments import made
from tests.experiments.conftest import Grid
from wallclock.recipe import Recipe


def records() -> list[Record]:
    """An image of 20 KB takes 2 ms of a core, a GET 0.5 ms; 400 a second by one thread."""
    values = {"cpu_s": {"1": 0.001, "4": 0.002}, "mean_bytes": 2e4}
    gets = {"passes": {f"http-0/{n}/bytes": {"n": 100, "cpu_ms": 0.5} for n in (1, 16)}}
    params, samples = {"form": "files", "in_flight": 16}, {"http-0/1/bytes": [made.S // 4]}
    samples |= {"http-0/16/bytes": [made.S]}
    return [
        made.record("predict", "contention", "loading-fast", values, {}, recipe=Recipe("fast")),
        made.record("storage", "forms", "files", gets, params, samples),
    ]


def scaled(actors: int, seconds: float, **values: Any) -> Record:
    """20,000 images by so many actors."""
    values = {"n_loaded": 20_000, "actors": actors, "shard": 1000, **values}
    wall = {"wall": [round(seconds * made.S)]}
    return made.record("cluster", "scaled", f"ours-ray-on-{actors}", values, {}, wall)


@pytest.fixture(autouse=True)
def _instant(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows without their simulation, which tests/predict has."""
    run = Run(2.0, 3600.0, 1, "GPU")
    monkeypatch.setattr(simulation, "simulate", lambda case, runs: [run] * runs)
    yield
    fleet._simulated.cache_clear()


def test_grid_measures_what_others_do_not(grid: Grid) -> None:
    small = ("corpus.image_set=small_256", "experiment.fleet.images={small_256: 3}")
    cells = grid("fleet", *small)
    labels = ["loading-small_256", "files_s3-small_256", "files-small_256"]
    assert [cell.label for cell in cells] == labels
    assert [cell.protocol for cell in cells] == ["contention", "forms", "forms"]
    assert cells[0].params["seconds"] > 0
    assert cells[1].params["where"] == ["http-0"]


def test_inputs_say_where_they_are_from() -> None:
    inputs = {str(row["input"]): row for row in fleet.tables(records())[fleet.INPUTS_CSV]}
    loads = inputs["load_ms_small_256"]
    assert (loads["value"], loads["origin"]) == (2, "measured")
    assert loads["source"] == "experiment predict, loading-fast"
    assert inputs["kb_small_256"]["value"] == 20
    assert inputs["http_get_ms_small_256"]["value"] == 0.5
    assert inputs["http_gets_per_s_small_256"]["value"] == 400
    assert "reference" in str(inputs["load_ms_original"]["source"])
    assert (inputs["T4 low"]["value"], inputs["T4 high"]["value"]) == (1006, 1006)
    for row in inputs.values():
        assert row["origin"] in ("measured", "cited", "assumed")
        assert row["source"] or row["assumption"]


def test_rows() -> None:
    rows = fleet.tables(records())[fleet.CSV]
    assert len(rows) == (2 * 6 + 2) * len(fleet.NODES) * 2
    cells = {
        "arrangement": fleet.LIST,
        "image_set": "original",
        "instance": "g4dn.xlarge",
        "nodes": 8,
    }
    (row,) = (row for row in rows if cells.items() <= row.items())
    # Node-hours times the price, and the head's.
    assert row["usd_on_demand"] == pytest.approx(2 * (8 * 0.526 + 0.1008))
    assert row["usd_spot"] == pytest.approx(2 * (8 * 0.247 + 0.1008))
    assert row["usd_per_million"] == pytest.approx((2 * (8 * 0.526 + 0.1008) + 8) / 20)
    assert (row["img_per_s"], row["bound_by"]) == (pytest.approx(2e7 / 7200), "GPU")
    assert (row["device"], row["origin"]) == ("Test CPU (4 cores)", "predicted")
    fed = [row for row in rows if row["feeder"] and row["nodes"] == 2]
    assert {row["instance"] for row in fed} == {"g6.xlarge", "p5.48xlarge"}
    for row in fed:
        feeders = int(str(row["feeders"]))
        assert feeders % 2 == 0
        node_usd = {"g6.xlarge": 0.8048, "p5.48xlarge": 55.04}[str(row["instance"])]
        hourly = 2 * node_usd + feeders * 0.714 + 0.1008
        assert row["usd_on_demand"] == pytest.approx(2 * hourly)


def test_a_cluster_s_runs_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [Run(seconds / 3600, 0, 0, "GPU") for seconds in (100, 121, 140)]
    starts = []

    def simulate(case: Fleet, n: int) -> list[Run]:
        starts.append(case.timing.actor_start_s)
        return runs

    monkeypatch.setattr(simulation, "simulate", simulate)
    alone = scaled(1, 220, actor_img_per_s=100.0, begin_s=20.0)
    two = scaled(2, 110, actor_img_per_s=7.0, begin_s=7.0)
    (row,) = fleet.tables([two, alone])[fleet.CHECK_CSV]
    names = ("actors", "shard", "actor_img_per_s", "n_images", "measured_s", "simulated_s")
    assert [row[name] for name in names] == pytest.approx([2, 1000, 100, 20_000, 110, 121])
    assert (row["error"], row["is_within"]) == (pytest.approx(0.1), True)
    assert starts == [3.5]  # its own start, half of which the probe is
    assert set(row) == set(fleet.TABLES[fleet.CHECK_CSV])
    assert fleet.tables([two]) == {}
