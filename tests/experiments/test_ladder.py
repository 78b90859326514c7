"""`ladder`: its grid in two rounds, and its tables."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.ladder import cells as ladder
from experiments.sentences import MeasuredRows
from harness import provenance
from harness.table import read_table
from tests.experiments import made
from tests.experiments.conftest import Grid


def test_grid(grid: Grid) -> None:
    cells = grid("ladder", "repeats=1", "corpus.image_set=small_256")
    full = [cell for cell in cells if cell.protocol == "ladder"]
    mock, model, box = (
        [cell for cell in full if cell.params["setup"] == setup]
        for setup in (ladder.MOCK, ladder.MODEL, ladder.BOX)
    )
    assert [cell.params["rung"] for cell in mock] == [1, 2, 3, 4, 5, 5, 5]
    assert [cell.params["rung"] for cell in model] == [1, 2, 3, 4, 5]
    assert [cell.params["rung"] for cell in box] == [1, 2, 3, 4, 5]
    assert [*mock, *model, *box] == full
    step, device = mock[3].model, mock[4].model
    assert step.service_ms + 8 * step.service_ms_per_image == pytest.approx(8e3 / 28)
    assert device.service_ms == pytest.approx(0.35 * step.service_ms)
    service = mock[4].params["serve"]
    assert service["preprocess_ms"] == pytest.approx(63.5 + 0.65 * 1e3 / 21, abs=0.1)
    assert (service["workers"], service["port"]) == (8, 0)
    for cell in full:
        assert cell.params["n"] % 8 == cell.params["warm_up"] % 8 == 0


def test_rungs_with_the_model(grid: Grid) -> None:
    """The configured one, on the device; downloads and callbacks as slow as the mock's."""
    random = ("model=dinov2-small", "model.weights=random")
    cells = grid("ladder", "repeats=1", "corpus.image_set=original", *random)
    model = [cell for cell in cells if cell.params["setup"] == ladder.MODEL]
    for cell in model:
        assert (cell.model.name, cell.model.weights) == ("dinov2-small", "random")
        assert cell.params["download_ms"] + cell.params["callback_ms"] == pytest.approx(2e3 / 9)
        assert cell.params["preprocess_ms"] == 0
        assert (cell.recipe.device, cell.recipe.dtype) == ("cpu", "fp32")
    service = model[4].params["serve"]
    assert service["model"] == "facebook/dinov2-small"
    assert service.items() >= {"weights": "random", "device": "cpu", "dtype": "fp32"}.items()
    assert [cell.params["n"] for cell in model] == [64, 160, 160, 160, 160]


def test_redelivery_is_longer_than_the_timeout(grid: Grid) -> None:
    cells = grid("ladder", "repeats=1", "corpus.image_set=small_256")
    cells = [cell for cell in cells if cell.protocol == "redelivery"]
    unbounded, bounded, serve = (cell.params for cell in cells)
    # 45 requests a second, for 8 s, in three queues.
    assert (unbounded["queue_size"], bounded["queue_size"]) == (0, 120)
    assert unbounded["n"] > 2 * 45 * 8
    assert {**bounded, "queue_size": 0} == unbounded
    assert (serve["rung"], serve["serve"]["port"]) == (5, 0)
    device = cells[2].model
    assert 8 * device.service_ms_per_image * serve["n"] > 8 * 8e3, "not all within one timeout"


def test_second_round_is_at_shares_of_what_was_measured(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[ladder]")
    options = plan.settings.experiments["ladder"]
    cells = ladder.second_round(plan, options, made.ladder())
    rates = [cell.params["rate"] for cell in cells if cell.params["rung"] == 4]
    assert rates == [30 * share for share in options["latency"]["shares"]]
    assert {cell.params["rung"] for cell in cells} == {2, 3, 4, 5}
    assert {cell.params["duty"] for cell in cells} == {0.05, 0.09}


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


def test_the_mocks_price_is_that_of_the_sources_machine(tmp_path: Path) -> None:
    options = made.plan(tmp_path, "experiment=[ladder]").settings.experiments["ladder"]
    table = read_table(provenance.ROOT / "data" / "paper" / "fleet.csv")
    prices = {row["input"]: row["value"] for row in table}
    assert prices["g4dn.2xlarge usd_per_hour"] == options["mock_usd_per_hour"]
