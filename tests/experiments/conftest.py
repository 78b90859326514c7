"""Fixtures of the experiments' tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

import experiments
from harness.spec import Cell
from tests.experiments import made

Grid = Callable[..., list[Cell]]


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    """The cells of an experiment over three small images in a folder."""

    def cells(name: str, *overrides: str) -> list[Cell]:
        plan = made.plan(tmp_path, f"experiment=[{name}]", *overrides)
        return experiments.load(name).cells(plan, plan.settings.experiments[name])

    return cells
