"""Protocol `fidelity`: pictures against Pillow's."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.measures import PSNR_CEILING_DB
from harness.protocols import fidelity
from harness.protocols.fidelity import compare_loader_output, resized
from harness.protocols.protocol import no_progress
from harness.spec import Cell, Recipe, Slice
from tests.harness.engines.conftest import manifest_in
from wallclock.preprocess import Preprocess
from wallclock.recipe import ModelSpec

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
