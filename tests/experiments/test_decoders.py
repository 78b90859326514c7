"""`decoders`: its grid, and its table."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import decoders
from tests.experiments import made
from tests.experiments.conftest import Grid
from tests.experiments.made import MS
from wallclock.records import Record
from wallclock.spec import Recipe


def timed(decoder: str, ms: list[float], repeat: int = 0, image_set: str = "small_256") -> Record:
    samples = {"decode": [round(value * MS) for value in ms]}
    recipe, label = Recipe(decoder, decoder=decoder), f"{decoder}-{image_set}"
    values = {"megapixels": 2.0}
    return made.record("decoders", "decode", label, recipe, repeat, image_set, samples, values)


def agreement(compared: dict[str, dict[str, object]], image_set: str = "small_256") -> Record:
    return made.record(
        "decoders",
        "agreement",
        f"agreement-{image_set}",
        Recipe("baseline"),
        image_set=image_set,
        values={"agreement": compared},
        params={"images": 3, "max_abs_diff": 2},
    )


def test_grid(grid: Grid) -> None:
    cells = grid("decoders", "repeats=2")
    names = ("pil", "opencv", "turbojpeg", "simplejpeg")
    assert [(cell.protocol, cell.label, cell.repeat) for cell in cells] == [
        ("agreement", "agreement-original", 0),
        *(("decode", f"{name}-original", repeat) for repeat in range(2) for name in names),
    ]
    assert [cell.recipe.decoder for cell in cells[1:5]] == list(names)
    assert {cell.images.n for cell in cells} == {3}


def test_times_are_of_the_median_repeat() -> None:
    ms = [1.0, 2.0, 3.0, 4.0, 10.0]
    records = [timed("pil", [9.0] * 5), timed("pil", ms, 1), timed("pil", [1.0] * 5, 2)]
    (row,) = decoders.tables(records)[decoders.CSV]
    assert tuple(row) == decoders.COLUMNS
    assert (row["mean_ms"], row["p50_ms"], row["n_buffers"], row["repeats"]) == (4.0, 3.0, 5, 3)
    assert row["p90_ms"] == pytest.approx(float(np.quantile(ms, 0.9)))
    assert (row["mean_ms_min"], row["mean_ms_max"]) == (1.0, 9.0)
    assert row["megapixels_per_s"] == pytest.approx(2.0 / 0.020)
    assert (row["library"], row["device_kind"]) == ("libjpeg-turbo 3.1.0", "cpu")


@pytest.mark.parametrize(
    ("difference", "gate"), [(0, "passed"), (2, "passed"), (3, "failed"), (None, "not checked")]
)
def test_gate_is_a_largest_difference(difference: int | None, gate: str) -> None:
    compared: dict[str, object] = {} if difference is None else {"max_abs_diff": difference}
    reference: dict[str, object] = {"max_abs_diff": 0}
    records = [agreement({"pil": reference, "opencv": compared})]
    records += [timed("pil", [2.0]), timed("opencv", [1.0])]
    pil, opencv = decoders.tables(records)[decoders.CSV]
    assert (pil["gate"], pil["status"]) == ("reference", "ok")
    assert (opencv["gate"], opencv["mean_ms"] is None) == (gate, gate == "failed")


def test_gate_is_per_image_set() -> None:
    records = [
        agreement({"opencv": {"max_abs_diff": 9}}, "original"),
        agreement({"opencv": {"max_abs_diff": 0}}, "small_256"),
        timed("opencv", [1.0], image_set="original"),
        timed("opencv", [1.0], image_set="small_256"),
    ]
    rows = decoders.tables(records)[decoders.CSV]
    gates = [(row["image_set"], row["gate"]) for row in rows]
    assert gates == [("original", "failed"), ("small_256", "passed")]
