"""`ablation`: its rungs, and its table."""

from dataclasses import replace
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
    assert (last.engine, last.decoder, last.resizer) == ("threads", "native", "native")
    assert (last.dct_scale, last.normalize_on) == ("auto", "device")
    alone = [cell for cell in cells if cell.repeat == 0 and cell.params["mode"] == "alone"]
    assert [cell.params["step"] for cell in alone] == list(ablation.STEPS)[1:]
    assert {cell.recipe.decoder for cell in alone[:-1]} == {"pil"}
    assert len({(cell.label, cell.repeat) for cell in cells}) == len(cells) == 36


def rung(mode: str, step: str, rate: float, repeat: int = 0, others: float = 0.0) -> Record:
    params = {"mode": mode, "step": step, "fidelity": LIMITS}
    values = {"n_loaded": round(rate * 10), "cores": 2, "other_cores": others}
    recipe = Recipe(step, engine="dataloader")
    new = made.record("ablation", "loading", f"{mode}-{step}", values, params, recipe=recipe)
    return replace(new, cell=replace(new.cell, repeat=repeat))


def test_gains_are_against_the_rung_before_and_the_baseline() -> None:
    records = [rung("cumulative", step, rate) for step, rate in RATES.items()]
    records.append(rung("alone", "scaled_decode", 150.0))
    rows = ablation.tables(records)[ablation.CSV]
    gains = [(row["speedup_vs_baseline"], row["speedup_vs_previous"]) for row in rows]
    assert gains == [(1, 1), (2, 2), (6, 3), (6.6, pytest.approx(1.1)), (3, 3)]
    assert {row["gate"] for row in rows} == {"not checked"}
    assert {row["speedup_vs_previous_min"] for row in rows} == {None}, "one repeat"


def test_a_gain_has_the_interval_of_its_pairs_and_may_be_a_tie() -> None:
    rates = {**RATES, "uint8": 340.0, "threads": 500.0}
    records = [
        rung("cumulative", step, rate * (0.8 if step == "uint8" and repeat == 1 else 1), repeat)
        for repeat in range(3)
        for step, rate in rates.items()
    ]
    rows = ablation.tables(records)[ablation.CSV]
    uint8 = next(row for row in rows if row["step"] == "uint8")
    ends = [uint8[f"speedup_vs_previous_{end}"] for end in ("min", "max")]
    assert ends == pytest.approx([0.8 * 340 / 330, 340 / 330])


def test_a_disturbed_pass_is_in_no_gain() -> None:
    records = [rung("cumulative", "baseline", 50.0, repeat) for repeat in range(3)]
    others = (0.0, 0.98, 0.0)
    records += [
        rung("cumulative", "libjpeg_turbo", rate, repeat, others[repeat])
        for repeat, rate in enumerate((100.0, 40.0, 110.0))
    ]
    row = ablation.tables(records)[ablation.CSV][1]
    gain = [row[f"speedup_vs_previous{end}"] for end in ("", "_min", "_max")]
    assert gain == [2.1, 2.0, 2.2]
    assert (row["calm_repeats"], row["img_per_s_min"]) == (2, 100.0)
    assert "2 by 0.98 cores" in str(row["reason"])


def test_passes_are_long_enough_in_the_papers_profile(grid: Grid) -> None:
    cells = grid("ablation")
    assert {cell.repeat for cell in cells} == {0, 1, 2}
    assert {(cell.params["seconds"], cell.params["min_images"]) for cell in cells} == {(3, 200)}


def test_without_the_baseline_there_is_no_gain() -> None:
    (row,) = ablation.tables([rung("cumulative", "threads", 500.0)])[ablation.CSV]
    assert (row["img_per_s"], row["speedup_vs_baseline"]) == (500.0, None)
