"""Protocols `fidelity` and `agreement`: pictures against Pillow's, of recipes and of decoders."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness import decoders
from harness.engines.pipeline import load_stages
from harness.measures import PSNR_CEILING_DB
from harness.protocols import fidelity
from harness.protocols.fidelity import compare_loader_output, resized
from harness.protocols.protocol import no_progress
from harness.spec import Cell, Slice
from tests.harness.engines.conftest import manifest_in
from wallclock.errors import ImageError, Unavailable, UserError
from wallclock.preprocess import Preprocess
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages import decode
from wallclock.stages.decode import Decode, Decoder, PixelArray

MODEL = ModelSpec("null", weights="none", input_px=32)
PILLOW = Recipe("pillow", "pil", "pil", "bicubic")


def test_bicubic_pictures_equal_the_second_reference_only(tmp_path: Path) -> None:
    manifest = manifest_in(tmp_path, 20)
    bicubic = resized(PILLOW, MODEL, manifest, {})
    images = {at: bicubic[item.id] for at, item in enumerate(manifest.valid)}
    values = compare_loader_output(images, manifest, MODEL, "cpu", 0)
    assert values["n_compared"] == 20
    assert values["psnr_db_bicubic"] == PSNR_CEILING_DB
    assert values["psnr_db_min"] <= values["psnr_db_p5"] <= values["psnr_db"] < PSNR_CEILING_DB


@pytest.mark.parametrize(
    "geometry",
    ["shortest:36,crop:32x32,bicubic", "longest:32,crop:32x32,bilinear", "none,crop:32x32,bicubic"],
)
def test_pictures_that_were_cropped_have_references_that_are(tmp_path: Path, geometry: str) -> None:
    """Resized whole by Pillow, then cut: of the squashed pictures they are far."""
    manifest = manifest_in(tmp_path, 6)
    preprocess = Preprocess.parse(geometry)
    resample = Image.Resampling[preprocess.interpolation.upper()]
    images = {}
    for at, item in enumerate(manifest.valid):
        picture = Image.open(manifest.root / item.path).convert("RGB")
        height, width = preprocess.resized(picture.height, picture.width)
        left, top = (width - 32) // 2, (height - 32) // 2
        whole = picture.resize((width, height), resample)
        images[at] = np.asarray(whole.crop((left, top, left + 32, top + 32)))
    values = compare_loader_output(images, manifest, MODEL, "cpu", 0, geometry)
    assert values["psnr_db_min"] == PSNR_CEILING_DB
    squashed = compare_loader_output(images, manifest, MODEL, "cpu", 0)
    assert squashed["psnr_db"] < 30


@pytest.mark.parametrize(("engine", "kind"), [("serial", np.ndarray), ("dataloader", Image.Image)])
def test_only_the_decomposition_passes_arrays(tmp_path: Path, engine: str, kind: type) -> None:
    manifest = manifest_in(tmp_path, 1)
    item = manifest.valid[0]
    stages = load_stages(replace(PILLOW, engine=engine), MODEL, manifest)
    pixels = stages.decode(item, stages.read(item))
    assert isinstance(pixels, kind)
    expected = resized(replace(PILLOW, engine="serial"), MODEL, manifest, {})[item.id]
    np.testing.assert_array_equal(stages.resize(item, pixels), expected)


def test_fidelity_is_judged_image_by_image(corpus: Slice, tmp_path: Path) -> None:
    recipes = [
        {"name": "fast", "decoder": "simplejpeg", "resizer": "torch", "dct_scale": "auto"},
        {"name": "area", "decoder": "pil", "resizer": "opencv", "interpolation": "area"},
        {"name": "paper", "decoder": "pil", "resizer": "opencv", "interpolation": "linear"},
    ]
    reference, params = Recipe("reference"), {"recipes": recipes}
    cell = Cell("fast", "fidelity", "fidelity", 0, reference, corpus, MODEL, params)
    result = fidelity.fidelity(cell, tmp_path, no_progress).values["fidelity"]
    assert result["area"]["psnr_loss_vs_area_db"] == 0.0
    assert result["paper"]["psnr_gain_vs_paper_db"] == 0.0
    assert result["fast"]["psnr_loss_vs_area_db"] < 0 < result["fast"]["psnr_gain_vs_paper_db"]
    assert 0 < result["fast"]["max_abs_diff"] < result["paper"]["max_abs_diff"]


CELL = Cell(
    "decoders",
    "agreement",
    "agreement-original",
    0,
    Recipe("reference"),
    Slice("folder", "original", 3, "digest", ""),
    MODEL,
    {"images": 3},
)


def lacks_library(reuse: bool) -> Decode:
    """As a decoder does that imports a library which is not installed."""
    import missing_library  # type: ignore[import-not-found]

    loaded: Decode = missing_library.decode
    return loaded


def says_unavailable(reuse: bool) -> Decode:
    """As a decoder does that looks for its library first."""
    raise Unavailable("missing_library is not installed")


def fails_when_called(reuse: bool) -> Decode:
    """As a decoder does that imports its library at the first image."""

    def decode_image(
        data: bytes, scale: int = 1, size: tuple[int, int] | None = None
    ) -> PixelArray:
        return lacks_library(reuse)(data)

    return decode_image


def refuses_large(reuse: bool) -> Decode:
    """Pillow's decoder, but for one of the images."""
    pillow = decode.make("pil")
    images: list[bytes] = []

    def decode_image(
        data: bytes, scale: int = 1, size: tuple[int, int] | None = None
    ) -> PixelArray:
        images.append(data)
        if len(images) == 2:
            raise ImageError("decode", "toy: too large")
        return pillow(data)

    return decode_image


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Measure the agreement of some decoders, one of which may be a toy."""
    manifest = manifest_in(tmp_path, 3)
    monkeypatch.setattr(fidelity, "open_corpus", lambda cell: manifest)

    def run(*names: str, toy: Callable[[bool], Decode] = refuses_large) -> Any:
        monkeypatch.setitem(decode.DECODERS, "toy", Decoder("toy", "Toy", ("toy",), toy))
        monkeypatch.setattr(decoders, "NAMES", names)
        return fidelity.agreement(CELL, tmp_path, lambda done: None)

    return run


@pytest.mark.parametrize("toy", [lacks_library, says_unavailable, fails_when_called])
def test_a_missing_library_ungates_its_own_decoder_only(
    measure: Callable[..., Any], toy: Callable[[bool], Decode]
) -> None:
    measurement = measure("pil", "toy", "simplejpeg", toy=toy)
    compared = measurement.values["agreement"]
    assert "missing_library" in compared["toy"]["unavailable"]
    assert compared["pil"] == {"max_abs_diff": 0}
    assert compared["simplejpeg"]["max_abs_diff"] <= 2
    assert measurement.values["n_compared"] == 3
    assert not measurement.failures, "the images are sound"


def test_an_image_that_one_decoder_refuses_is_listed(measure: Callable[..., Any]) -> None:
    measurement = measure("pil", "toy")
    assert measurement.values["agreement"]["toy"] == {"max_abs_diff": 0}
    assert measurement.values["n_compared"] == 2
    (failure,) = measurement.failures
    assert (failure["id"], failure["stage"]) == ("image 1", "decode")


def test_without_the_reference_nothing_is_compared(
    measure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pillow = Decoder("pil", "PIL", ("pillow",), fails_when_called)
    monkeypatch.setitem(decode.DECODERS, "pil", pillow)
    with pytest.raises(UserError, match="every image failed"):
        measure("pil", "simplejpeg")
