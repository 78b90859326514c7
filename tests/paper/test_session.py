"""What a run says first and last."""

import pytest

from paper.session import random_weights
from paper.settings import load, translate


@pytest.mark.parametrize(
    ("words", "warns"),
    [
        ("--experiment diagnose model.weights=random", True),
        ("--experiment diagnose,serial model.weights=random", True),
        ("--experiment serial model.weights=random", False),
        ("--experiment diagnose model=null", False),
    ],
)
def test_a_diagnosis_without_a_model_says_so(words: str, warns: bool) -> None:
    """The paper's own experiments are of speed, and name the weights in every row."""
    lines = random_weights(load(translate([*words.split(), "device=cpu"])))
    assert len(lines) == warns
    for line in lines:
        assert line.startswith("RANDOM WEIGHTS: ")
        assert "MODEL=" in line
        assert "\n" not in line
