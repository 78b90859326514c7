"""Fixtures of the experiments' tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments import contents
from harness.plan import Plan
from harness.spec import Cell
from tests.experiments import made

Grid = Callable[..., list[Cell]]


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    """The cells of an experiment over three small images in a folder."""

    def cells(name: str, *overrides: str) -> list[Cell]:
        plan = made.plan(tmp_path, f"experiment=[{name}]", *overrides)
        return contents.load(name).cells(plan, plan.settings.experiments[name])

    return cells


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Of a diagnosis of three small images in a folder."""
    return made.plan(tmp_path, "experiment=[diagnose]")


@pytest.fixture
def options(plan: Plan) -> dict[str, Any]:
    """Of the experiment `diagnose`."""
    return dict(plan.settings.experiments["diagnose"])
