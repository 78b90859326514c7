"""Decodes and resizes as they were measured; and vectors that were swapped."""

import math
from typing import Any

import numpy as np
import pytest

from benchmarks import fit
from harness.table import read_table
from tests.conftest import ROOT
from wallclock.predict import pictures
from wallclock.predict.pictures import Library, jpeg_ns, resize_ns
from wallclock.summary import cosine, misplaced, unit_length

REFERENCE = ROOT / "data" / "reference" / "amd-epyc-2-cores"
FORMATS = REFERENCE / "formats.csv"
DECODE = REFERENCE / "benchmarks" / "decode.csv"
DECODERS = REFERENCE / "decoder-comparison.csv"


def jpegs(*decoders: str) -> list[dict[str, Any]]:
    variants = ("baseline", "progressive")
    return [
        row
        for row in read_table(FORMATS)
        if row["variant"] in variants and row["decoder"] in decoders
    ]


def predicted_ms(row: dict[str, Any]) -> float:
    name = "JPEG" if row["variant"] == "baseline" else "progressive JPEG"
    pixels = 1e6 * row["median_megapixels"]
    density = 1e3 * row["median_kb"] / pixels
    scale = 1 if row["dct_scale"] == "full" else 8
    library: Library = "pillow" if row["decoder"] == "pil" else "turbo"
    return float(jpeg_ns(name, density, scale, library) * pixels / 1e6)


@pytest.mark.parametrize("decoder", ["pil", "simplejpeg"])
def test_jpegs_of_three_qualities_at_two_scales(decoder: str) -> None:
    errors = [abs(math.log(predicted_ms(r) / r["mean_ms"])) for r in jpegs(decoder)]
    assert len(errors) == 12
    assert sorted(errors)[len(errors) // 2] < math.log(1.1)
    assert max(errors) < math.log(1.35)


@pytest.mark.parametrize("decoder", ["pil", "simplejpeg", "turbojpeg"])
def test_what_a_reduced_scale_leaves(decoder: str) -> None:
    """The fraction of the full decode's time, which is what predictions use."""
    by_name = {row["what"]: row for row in jpegs(decoder)}
    fractions = []
    for name, full in by_name.items():
        if f"{name} reduced" in by_name:
            reduced = by_name[f"{name} reduced"]
            measured = reduced["mean_ms"] / full["mean_ms"]
            fractions.append(measured / (predicted_ms(reduced) / predicted_ms(full)))
    assert len(fractions) == 6
    within = 1 + pictures.FRACTION_ERROR
    assert sum(1 / within <= fraction <= within for fraction in fractions) >= 4


def test_scales_between() -> None:
    """Of simplejpeg, relative to 1/8, on the images of benchmarks.decode."""
    about = {"images": "original", "process": "baseline", "sampling": "4:2:0"}
    about |= {"choice": "simplejpeg"}
    of = [row for row in read_table(DECODE) if about.items() <= row.items()]
    measured = {row["scale"]: row["ms"] for row in of}
    (original,) = (
        row
        for row in read_table(DECODERS)
        if (row["image_set"], row["decoder"]) == ("original", "simplejpeg")
    )
    density = original["median_kb"] * 1e3 / (original["median_megapixels"] * 1e6)
    eighth = jpeg_ns("JPEG", density, 8, "turbo")
    for scale in (1, 2, 4):
        ratio = jpeg_ns("JPEG", density, scale, "turbo") / eighth
        assert ratio == pytest.approx(measured[f"1/{scale}"] / measured["1/8"], rel=0.2)


def test_what_is_fitted_is_of_the_table() -> None:
    """`python -m benchmarks.fit` writes it anew."""
    assert fit.FITTED.read_text(encoding="utf-8").splitlines() == [*fit.source(read_table(DECODE))]


def test_resizes() -> None:
    measured = {
        (row["choice"], row["images"]): row["ms"]
        for row in read_table(DECODE)
        if row["part"] == "resize"
    }
    choices: dict[Library, str] = {"pillow": "pil", "turbo": "torch", "native": "native"}
    for library, choice in choices.items():
        for images, pixels in fit.PIXELS.items():
            predicted = resize_ns(library, pixels, fit.MADE) / 1e6
            assert predicted == pytest.approx(measured[f"{choice} bilinear", images], rel=0.1)


def test_swapped_rows_are_misplaced_and_noise_is_not() -> None:
    rng = np.random.default_rng(0)
    a = unit_length(rng.standard_normal((20, 16), np.float32))
    rows = np.arange(20)
    noisy = unit_length(a + np.float32(0.01) * rng.standard_normal(a.shape, np.float32))
    assert not list(misplaced(a, noisy, rows, float(np.median(cosine(a, noisy)))))
    b = a.copy()
    b[[3, 8]] = b[[8, 3]]
    assert list(misplaced(a, b, rows, 1.0)) == [(3, 8), (8, 3)]
    assert list(misplaced(a, b, rows[5:], 1.0)) == [(8, 3)]
    assert not list(misplaced(a, b, rows, -1.0)), "all vectors differ more than these two"
