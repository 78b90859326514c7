"""Levels of fidelity."""

import pytest

from experiments import _levels


@pytest.mark.parametrize(
    ("least", "level"),
    [
        (99.0, "faithful"),
        (40.0, "faithful"),
        (39.9, "close"),
        (30.0, "close"),
        (29.9, ""),
        (None, ""),
    ],
)
def test_the_worst_picture_decides(least: float | None, level: str) -> None:
    assert _levels.level_of(least) == level


def test_a_strict_level_reaches_the_looser_one() -> None:
    pairs = [(reached, level) for reached in ("faithful", "close", "") for level in _levels.LEVELS]
    reaching = [pair for pair in pairs if _levels.reaches(*pair)]
    assert reaching == [("faithful", "faithful"), ("faithful", "close"), ("close", "close")]
    assert not _levels.reaches(None, "close")


@pytest.mark.parametrize(
    ("values", "level", "gate"),
    [
        ({"psnr_db": 47.4, "psnr_db_min": 41.6}, "faithful", "passed"),
        ({"psnr_db": 46.1, "psnr_db_min": 38.3}, "close", "passed"),
        ({"psnr_db": 59.1, "psnr_db_min": 25.1}, "", "failed"),
        ({"psnr_db": 47.4}, "", "not checked"),
    ],
)
def test_any_level_passes_the_gate(values: dict[str, float], level: str, gate: str) -> None:
    row = _levels.judge(values, "random")
    assert (row["level"], row["gate"], row["psnr_db"]) == (level, gate, values["psnr_db"])
    assert _levels.judge(values | {"cosine": 0.99}, "pretrained")["cosine"] == 0.99
    assert _levels.judge(values | {"cosine": 0.99}, "random")["cosine"] is None
