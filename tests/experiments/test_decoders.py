"""`decoders`: its grid, and its table."""

from dataclasses import replace
from typing import Any

import pytest

from experiments import decoders
from harness.decoders import DECODERS, NAMES
from tests.experiments.conftest import Grid
from tests.fixture_run import fixture_records


def test_grid(grid: Grid) -> None:
    cells = grid("decoders", "repeats=3")
    assert [(cell.protocol, cell.label, cell.repeat) for cell in cells] == [
        ("agreement", "agreement-original", 0),
        *(("decode", f"{name}-original", repeat) for repeat in range(3) for name in NAMES),
    ]
    first = cells[1 : 1 + len(NAMES)]
    assert [cell.recipe.decoder for cell in first] == list(NAMES)
    keyed = [cell.recipe.decoder for cell in first if "installed" in cell.params]
    optional = [name for name in NAMES if DECODERS[name].optional]
    assert keyed == optional, "their versions are not among the pinned ones"
    assert {cell.images.n for cell in cells} == {3}


def table(image_set: str, **compared: Any) -> dict[object, dict[str, object]]:
    """The fixture's rows of all decoders, with other agreement on one image set."""
    records = []
    for record in fixture_records("decoders"):
        if record.cell.label == f"agreement-{image_set}":
            agreement = {**record.values["agreement"], **compared}
            record = replace(record, values={**record.values, "agreement": agreement})
        records.append(record)
    rows = decoders.tables(records)[decoders.CSV]
    return {(row["image_set"], row["decoder"]): row for row in rows}


@pytest.mark.parametrize(
    ("difference", "gate"), [(0, "passed"), (2, "passed"), (3, "failed"), (None, "not checked")]
)
def test_gate_is_a_largest_difference_on_an_image_set(difference: int | None, gate: str) -> None:
    rows = table("original", opencv={} if difference is None else {"max_abs_diff": difference})
    opencv = rows["original", "opencv"]
    assert (opencv["gate"], opencv["mean_ms"] is None) == (gate, gate == "failed")
    assert rows["original", "pil"]["gate"] == "reference"
    assert rows["small_256", "opencv"]["gate"] == "passed"


def test_library_is_named_with_its_version() -> None:
    (record, *_) = (r for r in fixture_records("decoders") if r.cell.label == "pil-original")
    version = record.environment["versions"]["libjpeg-turbo in pillow"]
    assert table("original")["original", "pil"]["library"] == f"libjpeg-turbo {version}"


def test_paired_ratios() -> None:
    """Of 2.0, 3.0 and 2.0 in three blocks of repeats."""
    records = []
    times = {
        "pil": (20, 30, 22),
        "opencv": (13, 13, 13),
        "turbojpeg": (10, 10, 11),
        "simplejpeg": (11, 12, 11),
    }
    for record in fixture_records("decoders"):
        name, _, image_set = record.cell.label.partition("-")
        if image_set == "original" and record.cell.repeat == 0 and name in times:
            for repeat, ms in enumerate(times[name]):
                samples = {**record.samples, "decode": [ms * 1_000_000] * 4}
                cell = replace(record.cell, repeat=repeat)
                records.append(replace(record, cell=cell, samples=samples))
    rows = {row["decoder"]: row for row in decoders.tables(records)[decoders.CSV]}
    turbo = rows["turbojpeg"]
    limits = [turbo[f"speedup_vs_pil{end}"] for end in ("_min", "", "_max")]
    assert limits == [2, 2, 3]
