"""`suite`: the paper's passes by rates measured elsewhere."""

from dataclasses import replace
from typing import Any

import pytest

import experiments
from experiments import suite
from experiments._common import Row
from harness.records import Record
from tests.experiments import made
from tests.experiments.conftest import Grid
from tests.experiments.made import MS
from wallclock.recipe import Recipe


def records() -> list[Record]:
    """All passes of the paper in two repeats: 100 images a second, then 50; decoding takes 5 ms."""
    measured: list[Record] = []
    for name, passes in suite.PASSES.items():
        for image_set in passes.n_images:
            for number in range(passes.n_passes // len(passes.n_images)):
                decoders = passes.decoders or ("pil", "opencv", "turbojpeg")
                decoder = decoders[number % len(decoders)]
                recipe = Recipe(f"{name}-{number}", decoder=decoder, batch_size=32)
                for repeat, wall_ms in enumerate((100, 200)):
                    samples = {"wall": [wall_ms * MS], "decode": [5 * MS] * 10}
                    values: dict[str, Any] = {"n_embedded": 10}
                    new = made.record(
                        name, passes.protocol, recipe.name, values, {}, samples, recipe
                    )
                    corpus = replace(new.cell.images, image_set=image_set)
                    cell = replace(new.cell, corpus=corpus, repeat=repeat)
                    measured.append(replace(new, cell=cell))
    return measured


def rows(measured: list[Record]) -> dict[object, Row]:
    return {row["what"]: row for row in suite.tables(measured)[suite.CSV]}


def test_nothing_runs(grid: Grid) -> None:
    assert grid("suite") == []
    assert set(experiments.record_sources("suite")) == {"suite", *suite.PASSES}


def test_a_pass_is_the_papers_images_over_the_rate() -> None:
    by_name = rows(records())
    n_images = {"serial": 45_000, "t4": 100_000, "opt": 100_000, "batch": 140_000}
    n_images |= {"workers": 100_000, "decoders": 12_000}
    for name, n in n_images.items():
        row = by_name[name]
        assert (row["n_images"], row["status"], row["origin"]) == (n, "ok", "computed"), name
        limits = [row[f"suite_s{end}"] for end in ("", "_min", "_max")]
        each = (0.005, 0.005, 0.005) if name == "decoders" else (0.015, 0.01, 0.02)
        assert limits == pytest.approx([n * seconds for seconds in each]), name
    total = by_name[suite.ALL]
    assert (total["n_passes"], total["n_images"], total["repeats"]) == (26, 497_000, 2)
    assert total["suite_s_min"] == pytest.approx(0.01 * 485_000 + 0.005 * 12_000)
    assert total["suite_s_max"] == pytest.approx(0.02 * 485_000 + 0.005 * 12_000)


def test_other_passes_do_not_count() -> None:
    """Pillow's worker sweep and other decoders are not of the paper."""
    measured = records()
    extra = [
        replace(record, cell=replace(record.cell, label="more", recipe=changed))
        for record in measured
        if record.cell.experiment in ("workers", "decoders")
        for changed in [replace(record.cell.recipe, decoder="simplejpeg")]
    ]
    assert rows([*measured, *extra]) == rows(measured)


def test_a_pass_that_was_not_measured_leaves_no_sum() -> None:
    measured = [
        replace(record, status="error", reason="killed", samples={})
        if record.cell.label == "batch-3"
        else record
        for record in records()
    ]
    by_name = rows(measured)
    assert by_name["batch"]["suite_s"] is None
    assert by_name["batch"]["reason"] == "6 of 7 passes were measured: --experiment batch"
    total = by_name[suite.ALL]
    assert (total["status"], total["suite_s"], total["n_images"]) == ("not measured", None, None)
    assert total["reason"] == "not all passes were measured: --experiment batch"
    assert by_name["t4"]["status"] == "ok"
    assert {row["status"] for row in rows([]).values()} == {"not measured"}
