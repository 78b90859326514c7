"""`limits`: its grid, and its table."""

import pytest

from experiments import limits
from harness.records import Record
from tests.experiments import made
from tests.experiments.conftest import Grid
from wallclock.recipe import ModelSpec


def limit(what: str, rate: float, ms: float = 0.0) -> Record:
    model = ModelSpec("null", "none", service_ms_per_image=ms)
    values = {"n_loaded": round(rate * 10), "n_unique": 4}
    return made.record("limits", "ceiling", f"{what}-{ms}", values, {"what": what}, model=model)


@pytest.mark.parametrize(
    ("memory", "ms", "rate", "stage", "efficiency"),
    [
        (500, 10.0, 98.0, "forward", 0.98),
        (500, 0.2, 440.0, "decode and resize", 0.88),
        (900, 0.2, 440.0, "read", 0.88),
    ],
)
def test_efficiency_is_over_the_lowest_ceiling(
    memory: float, ms: float, rate: float, stage: str, efficiency: float
) -> None:
    records = [limit("decode_files", 500), limit("decode_memory", memory), limit("loader", 450)]
    records += [limit("forward", 100, 10.0), limit("forward", 5000, 0.2)]
    records.append(limit("end_to_end", rate, ms))
    rows = {row["what"]: row for row in limits.tables(records)[limits.CSV]}
    assert rows["loader"]["efficiency"] == pytest.approx(0.9)
    assert rows["end_to_end"]["efficiency"] == pytest.approx(efficiency)
    assert rows["end_to_end"]["limited_by"] == stage
    assert rows["decode_files"]["efficiency"] is None


@pytest.mark.parametrize(
    ("rates", "reason"),
    [
        ((495, 498), ""),
        ((495, 510, 520), "above its ceiling: within the spread of the repeats"),
        ((501, 510, 520), "above its ceiling: the ceiling is not one"),
    ],
)
def test_a_rate_above_its_ceiling_says_so(rates: tuple[float, ...], reason: str) -> None:
    records = [limit("decode_files", 500), *(limit("loader", rate) for rate in rates)]
    rows = {row["what"]: row for row in limits.tables(records)[limits.CSV]}
    assert rows["loader"]["reason"] == reason


def test_the_engine_can_be_the_limit() -> None:
    records = [limit("decode_files", 90_000), limit("engine", 60_000), limit("loader", 57_000)]
    rows = {row["what"]: row for row in limits.tables(records)[limits.CSV]}
    assert rows["loader"]["limited_by"] == "the loader itself"
    assert rows["loader"]["efficiency"] == pytest.approx(0.95)


def test_grid_has_mock_models_without_a_gpu(grid: Grid) -> None:
    cells = grid("limits", "repeats=1")
    assert len({cell.label for cell in cells}) == len(cells)
    ends = [cell for cell in cells if cell.params["what"] == "end_to_end"]
    passes = [(cell.recipe.name, cell.model.service_ms_per_image) for cell in ends]
    assert passes == [("fast", 10.0), ("fast", 0.2), ("optimized", 0.2)]
    assert {cell.params["allocator"] for cell in cells} == {"keep"}
    rounds = [cell.params["batches"] / cell.recipe.workers for cell in ends if cell.recipe.workers]
    assert min(rounds) >= 10, "work in progress at either end must be negligible"
