"""Two references of the pixels, and Pillow's own image between its decode and its resize."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.engines.conftest import manifest_in
from wallclock.engines.pipeline import load_stages
from wallclock.measure.fidelity import compare_loader_output, resized
from wallclock.spec import ModelSpec, Recipe
from wallclock.summary import PSNR_CEILING_DB

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


@pytest.mark.parametrize(("engine", "kind"), [("serial", np.ndarray), ("dataloader", Image.Image)])
def test_only_the_decomposition_passes_arrays(tmp_path: Path, engine: str, kind: type) -> None:
    manifest = manifest_in(tmp_path, 1)
    item = manifest.valid[0]
    stages = load_stages(replace(PILLOW, engine=engine), MODEL, manifest)
    pixels = stages.decode(item, stages.read(item))
    assert isinstance(pixels, kind)
    expected = resized(replace(PILLOW, engine="serial"), MODEL, manifest, {})[item.id]
    np.testing.assert_array_equal(stages.resize(item, pixels), expected)
