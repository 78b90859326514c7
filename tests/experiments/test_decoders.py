"""`decoders`: its grid, and its table from made records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import decoders
from tests.experiments import made
from wallclock.records import Record
from wallclock.spec import Recipe


def timed(decoder: str, ms: list[float], repeat: int = 0, image_set: str = "small_256") -> Record:
    samples = {"decode": [round(value * made.MS) for value in ms]}
    recipe, label = Recipe(decoder, decoder=decoder), f"{decoder}-{image_set}"
    return made.record(
        "decoders", "decode", label, recipe, repeat, image_set, samples, {"megapixels": 2.0}
    )


def agreement(found: dict[str, dict[str, object]], image_set: str = "small_256") -> Record:
    return made.record(
        "decoders",
        "agreement",
        f"agreement-{image_set}",
        Recipe("baseline"),
        image_set=image_set,
        values={"agreement": found},
        params={"images": 3, "max_abs_diff": 2},
    )


def test_the_grid(tmp_path: Path) -> None:
    plan = made.plan(tmp_path, "experiment=[decoders]", "repeats=2")
    cells = decoders.cells(plan, plan.settings.experiments["decoders"])
    names = ("pil", "opencv", "turbojpeg", "simplejpeg")
    assert [(cell.protocol, cell.label, cell.repeat) for cell in cells] == [
        ("agreement", "agreement-original", 0),
        *(("decode", f"{name}-original", repeat) for repeat in range(2) for name in names),
    ]
    assert [cell.recipe.decoder for cell in cells[1:5] if cell.recipe] == list(names)
    assert all(cell.corpus is not None and cell.corpus.n == 3 for cell in cells)


def test_mean_and_percentiles_are_over_the_buffers_of_the_median_repeat() -> None:
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
    ("found", "gate", "counts"),
    [
        ({"max_abs_diff": 0}, "passed", True),
        ({"max_abs_diff": 2}, "passed", True),
        ({"max_abs_diff": 3}, "failed", False),
        ({"unavailable": "not here"}, "not checked", True),
    ],
)
def test_a_decoder_that_makes_other_pixels_gets_no_time(
    found: dict[str, object], gate: str, counts: bool
) -> None:
    records = [
        agreement({"pil": {"max_abs_diff": 0}, "opencv": found}),
        timed("pil", [2.0]),
        timed("opencv", [1.0]),
    ]
    pil, opencv = decoders.tables(records)[decoders.CSV]
    assert (pil["gate"], pil["status"]) == ("reference", "ok")
    assert (opencv["gate"], opencv["status"]) == (gate, "ok" if counts else "gate failed")
    assert (opencv["mean_ms"] is not None) is counts


def test_each_image_set_has_a_gate_of_its_own() -> None:
    records = [
        agreement({"opencv": {"max_abs_diff": 9}}, "original"),
        agreement({"opencv": {"max_abs_diff": 0}}, "small_256"),
        timed("opencv", [1.0], image_set="original"),
        timed("opencv", [1.0], image_set="small_256"),
    ]
    rows = decoders.tables(records)[decoders.CSV]
    assert [(row["image_set"], row["gate"]) for row in rows] == [
        ("original", "failed"),
        ("small_256", "passed"),
    ]


def test_a_missing_library_is_a_row_with_the_reason() -> None:
    lost = replace(
        timed("turbojpeg", []),
        status="unavailable",
        reason="libturbojpeg is not installed",
        samples={},
    )
    (row,) = decoders.tables([lost])[decoders.CSV]
    assert (row["status"], row["reason"]) == ("unavailable", "libturbojpeg is not installed")
    assert row["mean_ms"] is row["p50_ms"] is row["n_buffers"] is None
