"""`serial`: its grid, and its tables from made records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments import serial
from tests.experiments import made
from wallclock.clock import STAGES
from wallclock.records import Record
from wallclock.spec import Recipe

PIL = Recipe("pil")
OPENCV = Recipe("opencv", decoder="opencv", resizer="opencv", interpolation="linear")
GOOD = {"psnr_db": 30.0, "psnr_db_min": 20.0, "cosine": 0.99, "cosine_min": 0.9}


def passed(
    recipe: Recipe,
    wall_ms: int,
    repeat: int = 0,
    image_set: str = "small_256",
    protocol: str = "serial",
) -> Record:
    """A pass of ten images whose nine stages took 10 ms each and whose decode took the rest, but 5 ms."""
    samples = {name: [10 * made.MS] for name in STAGES}
    samples["decode"] = [(wall_ms - 85) * made.MS]
    samples["wall"] = [wall_ms * made.MS]
    label = f"{recipe.name}-{image_set}"
    return made.record(
        "serial", protocol, label, recipe, repeat, image_set, samples, {"n_embedded": 10}
    )


def fidelity(found: dict[str, object], image_set: str = "small_256") -> Record:
    limits = {"min_psnr_db": 25.0, "min_cosine": 0.9}
    return made.record(
        "serial",
        "fidelity",
        f"fidelity-{image_set}",
        PIL,
        0,
        image_set,
        values={"fidelity": found},
        params=limits,
    )


def test_the_grid(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[serial]", "repeats=2", "n=2")
    cells = serial.cells(plan, plan.settings.experiments["serial"])
    assert [(cell.protocol, cell.label, cell.repeat) for cell in cells] == [
        ("fidelity", "fidelity-original", 0),
        *(
            (protocol, f"{name}-original", repeat)
            for repeat in range(2)
            for protocol, name in (
                ("serial", "pil"),
                ("serial", "opencv"),
                ("serial", "turbojpeg"),
                ("floor", "floor"),
            )
        ),
    ]
    assert all(cell.corpus is not None and cell.corpus.n == 2 for cell in cells)
    recipes = [cell.recipe for cell in cells if cell.protocol == "serial" and cell.recipe]
    assert {(recipe.engine, recipe.workers, recipe.dtype) for recipe in recipes} == {
        ("serial", 0, "fp32")
    }
    assert len({cell.identity()["label"] + str(cell.repeat) for cell in cells}) == len(cells)


def test_a_row_is_the_median_pass_whole() -> None:
    records = [passed(PIL, wall, repeat) for repeat, wall in enumerate((900, 300, 500))]
    (row,) = serial.tables(records)["t4-serial-stages.csv"]
    assert tuple(row) == serial.COLUMNS
    assert (row["wall_s"], row["wall_s_min"], row["wall_s_max"], row["repeats"]) == (
        0.5,
        0.3,
        0.9,
        3,
    )
    assert row["decode_s"] == pytest.approx(0.415)
    stages = [float(str(row[f"{name}_s"])) for name in STAGES]
    assert sum(stages) + float(str(row["unattributed_s"])) == pytest.approx(0.5)
    assert [row[f"{name}_share"] for name in STAGES] == pytest.approx(
        [seconds / 0.5 for seconds in stages]
    )
    assert row["img_per_s"] == pytest.approx(20)
    assert row["seconds_per_100k"] == pytest.approx(5_000)
    assert (row["seconds_per_100k_origin"], row["origin"]) == ("extrapolated", "measured")
    assert row["decode_resize_share_without_forward"] == pytest.approx(0.425 / 0.49)


def test_of_two_passes_the_faster_is_the_median() -> None:
    (row,) = serial.tables([passed(PIL, 900), passed(PIL, 300, 1)])["t4-serial-stages.csv"]
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
        "t4-serial-stages.csv": ["pil", "opencv", "floor"],
        "t4-serial-stages-original.csv": ["opencv"],
    }
    floor = tables["t4-serial-stages.csv"][-1]
    assert (floor["decoder"], floor["resizer"], floor["gate"]) == ("null", "null", None)
    assert tables.keys() <= serial.TABLES.keys()


@pytest.mark.parametrize(
    ("found", "gate", "timed"),
    [
        (GOOD, "passed", True),
        ({**GOOD, "psnr_db": 24.9}, "failed", False),
        ({**GOOD, "cosine": 0.89}, "failed", False),
        ({"psnr_db": 30.0, "psnr_db_min": 20.0}, "passed", True),
        ({"unavailable": "no library"}, "not checked", True),
    ],
)
def test_a_recipe_that_makes_another_picture_gets_no_time(
    found: dict[str, object], gate: str, timed: bool
) -> None:
    records = [fidelity({"pil": GOOD, "opencv": found}), passed(PIL, 500), passed(OPENCV, 300)]
    pil, opencv = serial.tables(records)["t4-serial-stages.csv"]
    assert (pil["gate"], pil["status"]) == ("reference", "ok")
    assert opencv["gate"] == gate
    assert (opencv["status"] == "ok") is timed
    assert (opencv["wall_s"] is not None) is timed
    assert (opencv["img_per_s"] is not None) is timed
    if not timed:
        assert opencv["status"] == "gate failed"
        assert all(opencv[f"{name}_s"] is None for name in STAGES)


def test_without_a_comparison_nothing_is_claimed() -> None:
    (row,) = serial.tables([passed(OPENCV, 300)])["t4-serial-stages.csv"]
    assert (row["gate"], row["status"]) == ("not checked", "ok")
    other_set = fidelity({"opencv": GOOD}, "original")
    (row,) = serial.tables([other_set, passed(OPENCV, 300)])["t4-serial-stages.csv"]
    assert row["gate"] == "not checked"


def test_what_could_not_run_is_a_row_with_the_reason_and_no_number() -> None:
    lost = replace(passed(OPENCV, 300), status="unavailable", reason="no libturbojpeg")
    (row,) = serial.tables([lost])["t4-serial-stages.csv"]
    assert (row["status"], row["reason"], row["wall_s"]) == ("unavailable", "no libturbojpeg", None)
    assert tuple(row) == serial.COLUMNS


def test_a_crashed_repeat_leaves_the_others() -> None:
    crashed = replace(passed(PIL, 100), status="error", reason="killed")
    (row,) = serial.tables([crashed, passed(PIL, 500, 1)])["t4-serial-stages.csv"]
    assert (row["status"], row["wall_s"], row["repeats"]) == ("ok", 0.5, 1)


def test_only_a_hundred_thousand_images_are_measured_as_such() -> None:
    whole = replace(passed(PIL, 500), values={"n_embedded": 100_000})
    (row,) = serial.tables([whole])["t4-serial-stages.csv"]
    assert row["seconds_per_100k_origin"] == "measured"
