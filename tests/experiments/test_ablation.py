"""`ablation`: its rungs, and its table."""

from itertools import pairwise

import pytest

from experiments import ablation
from harness.records import Record
from tests.experiments import made
from tests.experiments.conftest import Grid
from wallclock.recipe import Recipe

LIMITS = {"min_psnr_db": 25.0, "min_cosine": 0.9}
RATES = {"baseline": 50.0, "libjpeg_turbo": 100.0, "scaled_decode": 300.0, "torch_resize": 330.0}


def test_each_rung_adds_one_step(grid: Grid) -> None:
    cells = grid("ablation", "repeats=3")
    rungs = [cell for cell in cells if cell.repeat == 0 and cell.params["mode"] == "cumulative"]
    assert [cell.params["step"] for cell in rungs] == [ablation.BASELINE, *ablation.STEPS]
    for before, after in pairwise(rungs):
        old, new = vars(before.recipe), vars(after.recipe)
        changed = {name for name in old if old[name] != new[name]} - {"name"}
        assert changed == set(ablation.STEPS[after.params["step"]])
    last = rungs[-1].recipe
    assert (last.engine, last.decoder, last.resizer) == ("threads", "simplejpeg", "torch")
    assert (last.dct_scale, last.normalize_on) == ("auto", "device")
    alone = [cell for cell in cells if cell.repeat == 0 and cell.params["mode"] == "alone"]
    assert [cell.params["step"] for cell in alone] == list(ablation.STEPS)[1:]
    assert {cell.recipe.decoder for cell in alone} == {"pil"}
    assert len({(cell.label, cell.repeat) for cell in cells}) == len(cells) == 30


def rung(mode: str, step: str, rate: float) -> Record:
    params = {"mode": mode, "step": step, "fidelity": LIMITS}
    values = {"n_loaded": round(rate * 10), "cores": 2}
    recipe = Recipe(step, engine="dataloader")
    return made.record("ablation", "loading", f"{mode}-{step}", values, params, recipe=recipe)


def test_gains_are_against_the_rung_before_and_the_baseline() -> None:
    records = [rung("cumulative", step, rate) for step, rate in RATES.items()]
    records.append(rung("alone", "scaled_decode", 150.0))
    rows = ablation.tables(records)[ablation.CSV]
    gains = [(row["speedup_vs_baseline"], row["speedup_vs_previous"]) for row in rows]
    assert gains == [(1, 1), (2, 2), (6, 3), (6.6, pytest.approx(1.1)), (3, 3)]
    assert {row["gate"] for row in rows} == {"not checked"}


def test_without_the_baseline_there_is_no_gain() -> None:
    (row,) = ablation.tables([rung("cumulative", "threads", 500.0)])[ablation.CSV]
    assert (row["img_per_s"], row["speedup_vs_baseline"]) == (500.0, None)
