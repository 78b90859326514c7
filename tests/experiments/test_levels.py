"""Levels of fidelity."""

import pytest

from experiments import _levels


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
    row = _levels.judge(values, "random")
    assert (row["level"], row["gate"], row["psnr_db"]) == (level, gate, values["psnr_db"])
    assert _levels.judge(values | {"cosine": 0.99}, "pretrained")["cosine"] == 0.99
    assert _levels.judge(values | {"cosine": 0.99}, "random")["cosine"] is None
