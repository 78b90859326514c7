"""`train`: one choice at a time; utilization, and what limits it."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from experiments import train
from harness.records import Record
from tests.experiments import made
from tests.experiments.conftest import Grid
from wallclock.errors import UserError


def rows_of(records: list[Record]) -> dict[str, dict[str, Any]]:
    return {str(row["part"]): row for row in train.tables(records)[train.CSV]}


def test_grid(grid: Grid) -> None:
    cells = grid("train", "repeats=3", "experiment.train.batch_sizes=[8,2]")
    by = {name: [c for c in cells if c.protocol == name] for name in {c.protocol for c in cells}}
    assert Counter(cell.protocol for cell in cells) == {"train_step": 9, "loading": 15, "train": 18}
    base, *changed = (cell.recipe for cell in by["train"] if cell.repeat == 0)
    assert (base.batch_size, base.workers, base.augment, base.dtype) == (8, 2, "cpu", "fp32")
    for recipe in changed:
        names = ("batch_size", "workers", "augment", "dtype")
        assert sum(getattr(recipe, name) != getattr(base, name) for name in names) == 1
    assert {cell.recipe.augment for cell in by["train_step"]} == {"none", "device"}
    assert all(cell.params["batch_sizes"] == [2, 8] for cell in by["train_step"])
    assert {cell.model.weights for cell in cells} == {"none"}, "model=null is for tests"
    assert all(cell.recipe.normalize_on == "device" for cell in cells)


def test_an_unknown_place_of_the_augmentation(grid: Grid) -> None:
    with pytest.raises(UserError, match=re.escape("no experiment.train.augment is called 'gpu'")):
        grid("train", "experiment.train.augment=[gpu]")


def test_rows() -> None:
    rows = rows_of(made.train())
    assert rows["loader"]["img_per_s"] == pytest.approx(38)
    step = rows["step"]
    assert (step["step_ms"], step["backward_ms"], step["augment_ms"]) == (80, 40, None)
    assert step["img_per_s"] == pytest.approx(50)
    job = rows["together"]
    shares = [job[f"{name}"] for name in ("utilization", "wait_share", "slowed_share")]
    assert shares == pytest.approx([0.4, 0.4, 0.2])
    assert job["limited_by"] == "decode"
    assert train.tables([]) == {}


@pytest.mark.parametrize(
    ("device", "together", "limit"),
    [
        ("cpu", {"n_loaded": 480}, "step"),
        ("cpu", {"other_cores": 1.0}, "other processes"),
        ("cuda", {"n_loaded": 200}, "decode"),
        ("cuda", {"n_loaded": 80}, "main"),
    ],
)
def test_what_limits_a_job(device: str, together: dict[str, Any], limit: str) -> None:
    """200 images in ten seconds, of which the main process waits four; the step alone does 50/s."""
    assert rows_of(made.train(device, **together))["together"]["limited_by"] == limit


@pytest.mark.parametrize("failed", ["train_step", "train"])
def test_a_part_that_failed(failed: str) -> None:
    records = [
        replace(part, status="error", reason="none", samples={}, values={})
        if part.cell.protocol == failed
        else part
        for part in made.train()
    ]
    job = rows_of(records)["together"]
    assert job["status"] == ("error" if failed == "train" else "ok")
    assert job["utilization"] is None
