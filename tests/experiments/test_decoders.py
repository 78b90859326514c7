"""`decoders`: its grid, and its table."""

from dataclasses import replace
from typing import Any

import pytest

from experiments import decoders
from harness.decoders import DECODERS, NAMES
from paper import claims
from tests.experiments.conftest import Grid
from tests.fixture_run import fixture_records


def test_grid(grid: Grid) -> None:
    cells = grid("decoders", "repeats=3")
    inside = [cell for cell in cells if cell.protocol == "loading"]
    loops = [cell for cell in cells if cell.protocol != "loading"]
    assert [(cell.protocol, cell.label, cell.repeat) for cell in loops] == [
        ("agreement", "agreement-original", 0),
        *(("decode", f"{name}-original", repeat) for repeat in range(3) for name in NAMES),
    ]
    first = loops[1 : 1 + len(NAMES)]
    assert [cell.recipe.decoder for cell in first] == list(NAMES)
    keyed = [cell.recipe.decoder for cell in first if "installed" in cell.params]
    optional = [name for name in NAMES if DECODERS[name].optional]
    assert keyed == optional, "their versions are not among the pinned ones"
    assert {cell.images.n for cell in cells} == {3}
    assert [(cell.recipe.decoder, cell.repeat) for cell in inside] == [(name, 0) for name in NAMES]
    assert {(cell.recipe.engine, cell.recipe.workers > 0) for cell in inside} == {
        ("dataloader", True)
    }


def test_quick_has_few_dataloaders(grid: Grid) -> None:
    cells = grid("decoders", "profile=quick")
    inside = [cell.label for cell in cells if cell.protocol == "loading"]
    assert inside == ["pil-original-dataloader", "simplejpeg-original-dataloader"]
    assert {cell.params.get("seconds") for cell in cells} == {None, 0.5}


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


def test_contexts_are_compared_apart() -> None:
    """A DataLoader's rows go by what it delivers, and claims still select one row."""
    records = list(fixture_records("decoders"))
    for name, img_per_s in (("pil", 100), ("opencv", 50), ("turbojpeg", 200)):
        label = f"{name}-original"
        loop = next(r for r in records if (r.cell.label, r.cell.repeat) == (label, 0))
        recipe = replace(loop.cell.recipe, engine="dataloader", workers=2)
        cell = replace(
            loop.cell, protocol="loading", label=f"{label}-dataloader", recipe=recipe, repeat=0
        )
        samples = {"decode": [2_000_000] * 4, "wall": [1_000_000_000]}
        values = {"n_loaded": img_per_s, "median_kb": 1, "median_megapixels": 1}
        records.append(replace(loop, cell=cell, samples=samples, values=values))
    before = decoders.tables(list(fixture_records("decoders")))[decoders.CSV]
    rows = decoders.tables(records)[decoders.CSV]
    assert rows[: len(before)] == before
    inside = {row["decoder"]: row for row in rows[len(before) :]}
    assert {(row["context"], row["workers"], row["mean_ms"]) for row in inside.values()} == {
        ("dataloader", 2, 2.0)
    }
    assert [row["img_per_s"] for row in inside.values()] == pytest.approx([100, 50, 200])
    assert [row["speedup_vs_pil"] for row in inside.values()] == pytest.approx([1, 0.5, 2])
    written = [{name: str(value) for name, value in row.items()} for row in rows]
    row = claims.select(written, "image_set=original decoder=pil context=loop")
    assert row is not None
    with pytest.raises(ValueError, match="2 rows match"):
        claims.select(written, "image_set=original decoder=pil")
