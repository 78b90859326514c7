"""`serial`: its grid, and its tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments import serial
from tests.experiments import made
from tests.experiments.conftest import Grid
from tests.experiments.made import MS
from wallclock.clock import STAGES
from wallclock.records import Record
from wallclock.spec import Recipe

PIL = Recipe("pil")
OPENCV = Recipe("opencv", decoder="opencv", resizer="opencv", interpolation="linear")
GOOD = {"psnr_db": 30.0, "psnr_db_min": 20.0, "cosine": 0.99, "cosine_min": 0.9}
SMALL = serial.CSVS["small_256"]


def passed(
    recipe: Recipe,
    wall_ms: int,
    repeat: int = 0,
    image_set: str = "small_256",
    protocol: str = "serial",
) -> Record:
    """Ten images; nine stages of 10 ms each, decode the rest of the wall time but 5 ms."""
    samples = {name: [10 * MS] for name in STAGES}
    samples |= {"decode": [(wall_ms - 85) * MS], "wall": [wall_ms * MS]}
    label, values = f"{recipe.name}-{image_set}", {"n_embedded": 10}
    return made.record("serial", protocol, label, recipe, repeat, image_set, samples, values)


def test_grid(grid: Grid) -> None:
    cells = grid("serial", "repeats=2", "n=2")
    names = ("pil", "opencv", "turbojpeg", "floor")
    assert [(cell.protocol, cell.label, cell.repeat) for cell in cells] == [
        ("fidelity", "fidelity-original", 0),
        *(
            ("floor" if name == "floor" else "serial", f"{name}-original", repeat)
            for repeat in range(2)
            for name in names
        ),
    ]
    assert {cell.images.n for cell in cells} == {2}
    recipes = [cell.recipe for cell in cells if cell.protocol == "serial"]
    assert {(r.engine, r.workers, r.dtype) for r in recipes} == {("serial", 0, "fp32")}


def test_row_is_the_median_pass() -> None:
    records = [passed(PIL, wall, repeat) for repeat, wall in enumerate((900, 300, 500))]
    (row,) = serial.tables(records)[SMALL]
    assert tuple(row) == serial.COLUMNS
    walls = (row["wall_s"], row["wall_s_min"], row["wall_s_max"], row["repeats"])
    assert walls == (0.5, 0.3, 0.9, 3)
    assert row["decode_s"] == pytest.approx(0.415)
    stages = [float(str(row[f"{name}_s"])) for name in STAGES]
    assert sum(stages) + float(str(row["unattributed_s"])) == pytest.approx(0.5)
    shares = [row[f"{name}_share"] for name in STAGES]
    assert shares == pytest.approx([seconds / 0.5 for seconds in stages])
    assert (row["img_per_s"], row["seconds_per_100k"]) == pytest.approx((20, 5_000))
    assert row["decode_resize_share_without_forward"] == pytest.approx(0.425 / 0.49)


def test_of_two_passes_the_faster_is_the_median() -> None:
    (row,) = serial.tables([passed(PIL, 900), passed(PIL, 300, 1)])[SMALL]
    assert row["wall_s"] == 0.3


def test_a_table_for_each_image_set_the_floor_last() -> None:
    records = [
        passed(OPENCV, 300, image_set="original"),
        passed(replace(PIL, name="floor"), 90, protocol="floor"),
        passed(PIL, 500),
        passed(OPENCV, 300),
    ]
    tables = serial.tables(records)
    assert {name: [row["recipe"] for row in rows] for name, rows in tables.items()} == {
        SMALL: ["pil", "opencv", "floor"],
        serial.CSVS["original"]: ["opencv"],
    }
    floor = tables[SMALL][-1]
    assert (floor["decoder"], floor["resizer"], floor["gate"]) == ("null", "null", None)


def test_gate_is_per_image_set() -> None:
    def fidelity(image_set: str) -> Record:
        values, limits = {"fidelity": {"opencv": GOOD}}, {"min_psnr_db": 25, "min_cosine": 0.9}
        label = f"fidelity-{image_set}"
        return made.record(
            "serial", "fidelity", label, PIL, 0, image_set, values=values, params=limits
        )

    timed = [passed(PIL, 500), passed(OPENCV, 300)]
    for image_set, gates in (
        ("small_256", ["reference", "passed"]),
        ("original", ["not checked"] * 2),
    ):
        rows = serial.tables([fidelity(image_set), *timed])[SMALL]
        assert [row["gate"] for row in rows] == gates
        assert {row["status"] for row in rows} == {"ok"}
