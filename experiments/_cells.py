"""What the grids share: one cell, and one fidelity cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wallclock.run.plan import Plan
from wallclock.spec import Cell, ModelSpec, Recipe, Slice


def cell(
    plan: Plan,
    experiment: str,
    protocol: str,
    label: str,
    recipe: Recipe,
    corpus: Slice | None,
    *,
    repeat: int = 0,
    model: ModelSpec | None = None,
    params: Mapping[str, Any] | None = None,
) -> Cell:
    """One measurement; by default of the configured model, with the common parameters."""
    model = model or plan.settings.model
    params = plan.params if params is None else params
    return Cell(experiment, protocol, label, repeat, recipe, corpus, model, params)


def mock_model(plan: Plan, service_ms: float = 0.0, image_ms: float = 0.0) -> ModelSpec:
    """A mock model with the configured model's input and output, and this service time."""
    mock = ModelSpec("null", weights="none", service_ms=service_ms, service_ms_per_image=image_ms)
    model = plan.settings.model
    return replace(mock, input_px=model.input_px, dim=model.dim)
