"""What the experiments share: pairs of repeats, levels of fidelity, who says the last sentence."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from experiments import contents
from experiments.common import Row
from experiments.frontier import levels, pairs
from experiments.sentences import MeasuredRows, TableRow
from harness.records import Record
from tests.experiments import made

# --- pairs ----------------------------------------------------------------------------------------


def repeats(*rates: float, others: tuple[float, ...] = ()) -> list[Record]:
    """Ten seconds at these rates, the repeats numbered; beside `others` cores of other programs."""
    records = []
    for number, rate in enumerate(rates):
        values: dict[str, float] = {"n_loaded": round(rate * 10)}
        if others:
            values["other_cores"] = others[number]
        record = made.record("frontier", "loading", "x", values, {})
        records.append(replace(record, cell=replace(record.cell, repeat=number)))
    return records


def test_a_ratio_is_the_median_of_pairs_of_one_block() -> None:
    row = pairs.ratio_columns("gain", repeats(500, 480, 300), repeats(50, 40, 60))
    assert row == {"gain": 10.0, "gain_min": 5.0, "gain_max": 12.0}
    without_first = pairs.ratio_columns("gain", repeats(500, 480, 300)[1:], repeats(50, 40, 60))
    assert without_first["gain_max"] == 12.0
    assert without_first["gain_min"] == 5.0


def test_a_single_pair_has_no_interval() -> None:
    row = pairs.ratio_columns("gain", repeats(500), repeats(50, 40, 60))
    assert row == {"gain": 10.0, "gain_min": None, "gain_max": None}
    assert pairs.ratio_columns("gain", repeats(500), []) == {}
    assert pairs.in_words(row, "gain") == "10.0× (one repeat)"
    assert not pairs.is_tie(row, "gain")


@pytest.mark.parametrize(
    ("ends", "tie"), [((0.96, 1.41), True), ((1.21, 1.46), False), ((0.5, 1), True)]
)
def test_an_interval_around_1_is_a_tie(ends: tuple[float, float], tie: bool) -> None:
    row = {"gain": 1.29, "gain_min": ends[0], "gain_max": ends[1]}
    assert pairs.is_tie(row, "gain") == tie
    assert pairs.in_words(row, "gain").startswith("1.29× (")
    assert pairs.in_words(row, "gain").endswith("× (0.96 to 1.41)") == (ends[0] == 0.96)


def test_a_disturbed_repeat_is_in_no_pair_and_is_named() -> None:
    disturbed = repeats(500, 480, 300, others=(0.0, 0.1, 0.98))
    assert [record.cell.repeat for record in pairs.counting(disturbed)] == [0, 1]
    row = pairs.ratio_columns("gain", disturbed, repeats(50, 40, 60))
    assert row == {"gain": 11.0, "gain_min": 10.0, "gain_max": 12.0}
    reversed_row = pairs.ratio_columns("gain", repeats(50, 40, 60), disturbed)
    assert reversed_row["gain_max"] == 0.1
    noted = pairs.note_disturbance({"reason": ""}, disturbed)
    assert noted["calm_repeats"] == 2
    expected = "repeats that others disturbed (left out): 3 by 0.98 cores"
    assert noted["reason"] == expected
    failed = pairs.note_disturbance({"reason": "no memory"}, disturbed)
    assert failed["reason"] == f"no memory; {expected}"


# --- levels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "level", "gate"),
    [
        ({"psnr_db": 47.4, "psnr_db_min": 40.0}, "faithful", "passed"),
        ({"psnr_db": 46.1, "psnr_db_min": 39.9}, "close", "passed"),
        ({"psnr_db": 46.1, "psnr_db_min": 30.0}, "close", "passed"),
        ({"psnr_db": 59.1, "psnr_db_min": 29.9}, "", "failed"),
        ({"psnr_db": 47.4}, "", "not checked"),
    ],
)
def test_the_worst_picture_decides_and_any_level_passes_the_gate(
    values: dict[str, float], level: str, gate: str
) -> None:
    row = levels.judge(values, "random")
    assert (row["level"], row["gate"], row["psnr_db"]) == (level, gate, values["psnr_db"])
    assert levels.judge(values | {"cosine": 0.99}, "pretrained")["cosine"] == 0.99
    assert levels.judge(values | {"cosine": 0.99}, "random")["cosine"] is None
