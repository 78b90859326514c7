"""`ladder`: its grid in two rounds, and its tables."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments import ladder
from tests.experiments import made
from tests.experiments.conftest import Grid


def test_grid(grid: Grid) -> None:
    cells = grid("ladder", "repeats=1", "corpus.image_set=small_256")
    mock = [cell for cell in cells if cell.params["setup"] == ladder.MOCK]
    assert [cell.params["rung"] for cell in mock] == [1, 2, 3, 4, 5, 5, 5]
    assert [cell.params["rung"] for cell in cells[len(mock) :]] == [1, 2, 3, 4, 5]
    step, device = mock[3].model, mock[4].model
    assert step.service_ms + 8 * step.service_ms_per_image == pytest.approx(8e3 / 28)
    assert device.service_ms == pytest.approx(0.35 * step.service_ms)
    service = mock[4].params["serve"]
    assert service["preprocess_ms"] == pytest.approx(63.5 + 0.65 * 1e3 / 21, abs=0.1)
    assert (service["workers"], service["port"]) == (8, 0)
    for cell in cells:
        assert cell.params["n"] % 8 == cell.params["warm_up"] % 8 == 0


def test_second_round_is_at_shares_of_what_was_measured(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[ladder]")
    options = plan.settings.experiments["ladder"]
    cells = ladder.second_round(plan, options, made.ladder())
    rates = [cell.params["rate"] for cell in cells if cell.params["rung"] == 4]
    assert rates == [30 * share for share in options["latency"]["shares"]]
    assert {cell.params["rung"] for cell in cells} == {2, 3, 4, 5}
    assert {cell.params["duty"] for cell in cells} == {0.05}


def test_rows() -> None:
    tables = ladder.tables(made.ladder())
    rows = {row["what"]: row for row in tables[ladder.CSV]}
    gains = [rows[f"rung-{n}"].get("speedup_vs_previous") for n in (1, 2, 3, 4, 5)]
    assert gains == [None, *(pytest.approx(gain) for gain in (3, 20 / 9, 1.5, 2))]
    assert rows["rung-4"]["speedup_vs_rung_1"] == pytest.approx(10)
    assert rows["rung-4"]["error"] == pytest.approx(28 / 30 - 1)
    assert [rows[f"rung-{n}"]["source_per_s"] for n in (3, 4, 5)] == [21, 28, None]
    duties = {name: rows[name]["duty"] for name in ("rung-4", "rung-5", "rung-5-duty-0.09")}
    assert duties == {"rung-4": None, "rung-5": 0.05, "rung-5-duty-0.09": 0.09}
    assert rows["rung-5-duty-0.09"]["speedup_vs_previous"] == pytest.approx(40 / 30)
    box = rows["box-rung-5"]
    assert (box["device"], rows["rung-1"]["device"]) == ("Test CPU (4 cores)", ladder.MOCK)
    assert (box["predicted_per_s"], box.get("speedup_vs_previous")) == (None, None)
    assert box["cpu_ms_per_request"] == pytest.approx(2.5)
    assert (box["kb_per_request"], box["wasted_share"], box["bed_ms_per_request"]) == (10, 0.025, 5)


def test_the_knee_is_the_highest_rate_within_the_bound() -> None:
    rows = ladder.tables(made.ladder())[ladder.LATENCY_CSV]
    low, high, failed = rows
    assert (low["latency_p99_ms"], low["within_bound"], low["knee"]) == (500, True, True)
    assert (high["latency_p99_ms"], high["within_bound"], high["knee"]) == (2000, False, False)
    assert (low["keeps_up"], high["keeps_up"]) == (True, False)
    assert (failed["status"], failed["knee"], failed["latency_p99_ms"]) == ("error", None, None)


def test_a_rate_that_is_not_kept_up_with_is_no_knee() -> None:
    records = [
        replace(record, samples={**record.samples, "latency": [500 * made.MS]})
        if record.cell.label == "rung-4-at-1.2"
        else record
        for record in made.ladder()
    ]
    low, high, _ = ladder.tables(records)[ladder.LATENCY_CSV]
    assert (high["within_bound"], high["keeps_up"], high["knee"]) == (True, False, False)
    assert (low["knee"], high["arrived_per_s"], high["requests_per_s"]) == (True, 36, 30)


def test_repeats_make_a_range() -> None:
    first = made.ladder()[0]
    repeats = [
        replace(first, cell=replace(first.cell, repeat=i), samples={"wall": [s * made.S]})
        for i, s in enumerate((10, 12, 8))
    ]
    (row,) = ladder.tables(repeats)[ladder.CSV]
    names = ("requests_per_s", "requests_per_s_min", "requests_per_s_max", "repeats")
    assert [row[name] for name in names] == pytest.approx([3, 2.5, 3.75, 3])
