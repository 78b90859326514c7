"""`serial`: its grid, and its tables."""

import pytest

from experiments import serial
from tests.experiments.conftest import Grid
from tests.fixture_run import fixture_records


def test_grid(grid: Grid) -> None:
    cells = grid("serial", "repeats=3", "n=2")
    protocols = ("serial",) * 3 + ("floor",)
    names = [f"{name}-original" for name in ("pil", "opencv", "turbojpeg", "floor")]
    passes = [
        (protocol, name, repeat)
        for repeat in range(3)
        for protocol, name in zip(protocols, names, strict=True)
    ]
    assert [(cell.protocol, cell.label, cell.repeat) for cell in cells] == [
        ("fidelity", "fidelity-original", 0),
        *passes,
    ]
    assert {cell.images.n for cell in cells} == {2}
    recipes = [cell.recipe for cell in cells if cell.protocol == "serial"]
    assert {(r.engine, r.workers, r.dtype) for r in recipes} == {("serial", 0, "fp32")}


@pytest.mark.parametrize("image_set", serial.CSVS)
def test_a_table_for_each_image_set_the_floor_last(image_set: str) -> None:
    records = [r for r in fixture_records("serial") if r.cell.images.image_set == image_set]
    ((csv, rows),) = serial.tables(records).items()
    assert csv == serial.CSVS[image_set]
    assert [row["recipe"] for row in rows] == ["pil", "opencv", "turbojpeg", "floor"]
    assert [row["gate"] for row in rows] == ["reference", "passed", "passed", None]
    assert (rows[-1]["decoder"], rows[-1]["resizer"]) == ("null", "null")


def test_gate_is_per_image_set() -> None:
    records = [r for r in fixture_records("serial") if r.cell.label != "fidelity-original"]
    for image_set, gate in (("small_256", "passed"), ("original", "not checked")):
        opencv = serial.tables(records)[serial.CSVS[image_set]][1]
        assert (opencv["gate"], opencv["status"]) == (gate, "ok")
