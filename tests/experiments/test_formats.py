"""`formats`: its grid, and its table."""

import pytest

from experiments import formats
from harness.decoders import DECODERS, NAMES
from harness.records import Record
from tests.experiments import made
from tests.experiments.conftest import Grid
from wallclock.recipe import Recipe


def test_grid(grid: Grid) -> None:
    cells = grid("formats", "repeats=3")
    scaled = []
    for name in NAMES:
        scaled += [f"{name}-full", f"{name}-auto"] if DECODERS[name].scales else [f"{name}-full"]
    assert [cell.label for cell in cells] == 3 * scaled
    for cell in cells:
        others = {key for key in cell.params["encodings"] if not key.startswith("jpeg")}
        assert bool(others) == (cell.label in ("pil-full", "opencv-full"))
        assert {"jpeg_baseline-75", "jpeg_444-95"} <= {*cell.params["encodings"]}


def record(decoder: str, scale: str, ms: dict[str, float], **unavailable: str) -> Record:
    keys = [*ms, *unavailable]
    values: dict[str, object] = {name: dict.fromkeys(ms, 9.0) for name in ("kb", "psnr_db")}
    values |= {"n_images": 2, "median_megapixels": 1, "unavailable": unavailable}
    samples = {key: [int(time * made.MS)] * 2 for key, time in ms.items()}
    recipe = Recipe(decoder, decoder, dct_scale=scale)
    label, params = f"{decoder}-{scale}", {"encodings": keys}
    return made.record("formats", "formats", label, values, params, samples, recipe)


def test_times_are_against_a_baseline_of_the_same_quality() -> None:
    full: dict[str, float] = {
        "jpeg_baseline-75": 4,
        "jpeg_baseline-95": 8,
        "jpeg_progressive-75": 10,
        "png": 40,
    }
    reduced: dict[str, float] = {"jpeg_baseline-75": 2, "jpeg_progressive-75": 9}
    records = [record("pil", "full", full, avif="none here"), record("pil", "auto", reduced)]
    rows = {row["what"]: row for row in formats.tables(records)[formats.CSV]}
    ratios = {what: row["time_vs_baseline"] for what, row in rows.items()}
    assert ratios == {
        "jpeg_baseline-75": 1,
        "jpeg_baseline-95": 1,
        "jpeg_progressive-75": 2.5,
        "png": 5,
        "avif": None,
        "jpeg_baseline-75 reduced": 1,
        "jpeg_progressive-75 reduced": 4.5,
    }
    assert (rows["png"]["img_per_s"], rows["png"]["quality"]) == (pytest.approx(25), "")
    assert (rows["avif"]["status"], rows["avif"]["reason"]) == ("unavailable", "none here")
