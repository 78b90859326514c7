"""How good predictions were: errors, skill, and what a mock's sleep decides."""

from typing import Any

import pytest

from experiments import _accuracy, diagnose, predict
from experiments._accuracy import Outcome
from paper import accuracy
from paper.csvfile import read_table
from tests.fixture_run import fixture_tables
from wallclock.predict.intervals import GAIN_ERROR, RATE_ERROR

REFERENCE = accuracy.REFERENCES / "amd-epyc-2-cores"
BASE = Outcome("present", 100.0, 100.0)


def change(predicted: float, measured: float, **others: Any) -> Outcome:
    return Outcome("alone", predicted, measured, base=BASE, **others)


def row_of(*outcomes: Outcome) -> dict[str, Any]:
    return _accuracy.rows([BASE, *outcomes])[0]


def test_a_gain_is_compared_with_a_gain() -> None:
    """Rates that are all too low by half give gains that are right."""
    base = Outcome("present", 50.0, 100.0)
    better = Outcome("alone", 100.0, 200.0, base=base)
    row = _accuracy.rows([base, better])[0]
    assert (row["rate_error_median"], row["rate_bias"]) == pytest.approx((0.5, -0.5))
    assert row["gain_error_median"] == pytest.approx(0)
    assert (row["n_rates"], row["n_gains"]) == (2, 1)


def test_what_a_sleep_decides_is_left_out() -> None:
    asleep = change(200, 200, mock=True, bottleneck="accelerator")
    seen = change(200, 200, mock=True, bottleneck="transform", measured_bottleneck="accelerator")
    network = change(300, 200, bottleneck="accelerator", measured_bottleneck="accelerator")
    row = row_of(asleep, seen, network)
    assert (row["n_decided_by_sleep"], row["n_gains"]) == (2, 1)
    assert row["gain_error_median"] == pytest.approx(0.5)
    (everything, group) = _accuracy.rows([asleep])
    assert everything["status"] == group["status"] == "not judged"


def test_directions_are_of_changes_that_are_no_noise() -> None:
    row = row_of(change(110, 120), change(128, 90), change(90, 103), change(80, 50))
    assert row["n_changes"] == 3
    assert row["changes_right_share"] == pytest.approx(2 / 3)


def test_names_of_the_bottleneck() -> None:
    names = [("main", "main"), ("main", "transform"), ("transform", "")]
    row = row_of(*(change(1, 1, bottleneck=a, measured_bottleneck=b) for a, b in names))
    assert (row["n_bottlenecks"], row["bottleneck_right_share"]) == (2, 0.5)


def test_a_simpler_predictor_names_a_bottleneck_too() -> None:
    """The one that the recipe had before its change."""
    base = Outcome("present", 100, 100, measured_bottleneck="transform")
    names = [("main", "main"), ("main", "main"), ("main", "transform")]
    changes = [
        Outcome("alone", 1, 1, bottleneck=ours, measured_bottleneck=measured, base=base)
        for ours, measured in names
    ]
    row = _accuracy.rows(changes)[0]
    assert row["bottleneck_right_share"] == pytest.approx(2 / 3)
    assert row["bottleneck_right_unchanged"] == pytest.approx(1 / 3)


def test_skill_is_over_no_change() -> None:
    """Off by 10 %, where predicting no change is off by half."""
    row = row_of(*(change(220, 200) for _ in range(5)))
    assert row["skill_unchanged"] == pytest.approx(1 - 0.1 / 0.5)
    assert row["skill_unchanged_low"] == row["skill_unchanged_high"] == pytest.approx(0.8)
    assert row_of(change(110, 100))["skill_unchanged"] is None, "nothing is better than perfect"
    mixed = row_of(*(change(200 * (1 + k / 20), 200) for k in range(9)))
    assert mixed["skill_unchanged_low"] < mixed["skill_unchanged"] < mixed["skill_unchanged_high"]


def test_words() -> None:
    text = {name: "" if cell is None else str(cell) for name, cell in row_of().items()}
    assert accuracy.describe(text) == ""
    row = row_of(*(change(220, 200) for _ in range(5)), change(1, 1, mock=True))
    text = {name: "" if cell is None else str(cell) for name, cell in row.items()}
    said = accuracy.describe(text)
    assert "off by 10.0 % in the median" in said
    assert "the direction was right in 100 % [69 %, 100 %] of 6" in said
    assert "skill over 'nothing changes' 0.80 [" in said


def test_intervals_are_made_from_the_reference_runs() -> None:
    """The committed table is what the reference runs' tables make, the constants are of it."""
    committed = read_table(accuracy.PATH)
    assert [row["predictions"] for row in committed] == [
        row["predictions"] for row in accuracy.pooled()
    ]
    pooled = accuracy.pooled()[0]
    for name, constant in (("rate", RATE_ERROR), ("gain", GAIN_ERROR)):
        p90 = pooled[f"{name}_error_p90"]
        assert isinstance(p90, float)
        assert float(committed[0][f"{name}_error_p90"]) == pytest.approx(p90, rel=1e-4)
        assert constant == pytest.approx(p90, abs=0.006)


def test_the_direction_of_every_change_was_right() -> None:
    """Of workers, too: more or fewer than cores, before a mock model and before a network."""
    proved = diagnose.outcomes(read_table(REFERENCE / diagnose.PREDICTIONS_CSV))
    others = predict.outcomes(read_table(fixture_tables() / predict.CSV))
    for outcomes, least in ((proved, 8), (others, 12)):
        row: dict[str, Any] = _accuracy.rows(outcomes)[0]
        assert row["n_changes"] >= least
        assert row["changes_right_share"] == 1


def test_no_gain_of_the_reference_is_predicted_as_a_loss() -> None:
    """Nor the other way round, of changes predicted to bring or to cost more than a tenth."""
    rows = read_table(REFERENCE / diagnose.PREDICTIONS_CSV)
    pairs = [
        (float(row["predicted_speedup"]), float(row["measured_speedup"]))
        for row in rows
        if row["measured_speedup"]
    ]
    clear = [pair for pair in pairs if not 0.9 <= pair[0] <= 1.1]
    assert len(clear) >= 8
    assert all((predicted > 1) == (measured > 1) for predicted, measured in clear)


def test_the_command_says_how_good_predictions_were(capsys: pytest.CaptureFixture[str]) -> None:
    assert accuracy.main([]) == 0
    assert "predicted gains were off by" in capsys.readouterr().out
