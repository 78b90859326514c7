"""The model bound to a recipe: vectors of length 1, images that are not square."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.families import FAMILIES
from wallclock.infer.network import _of_length_1, open_embedder
from wallclock.job.settings import JobSettings
from wallclock.recipe import ModelSpec, Recipe

RECIPE = Recipe("tiny", batch_size=2, normalize_on="device")


def pixels(n: int, height: int, width: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, (n, height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("runtime", ["numpy", "torch"])
@pytest.mark.parametrize(("dtype", "scale"), [("f2", 1), ("f4", 8e35), ("f4", 1e-30)])
def test_length_1(runtime: str, dtype: str, scale: float) -> None:
    """Also where the sum of squares is over the range of the type; zeros stay zeros."""
    rows = np.array([[300.0, 400.0], [0.0, 0.0], [-1e-3, 0.0]], dtype)
    rows[0] *= scale
    batch = torch.from_numpy(rows) if runtime == "torch" else rows
    vectors = np.asarray(_of_length_1(lambda batch: batch)(batch))
    np.testing.assert_allclose(vectors, [[0.6, 0.8], [0.0, 0.0], [-1.0, 0.0]], rtol=1e-6)
    assert vectors.dtype == np.float32


def test_mock_of_length_1() -> None:
    mock = ModelSpec("null", "none", input_px=8, dim=12)
    plain, scaled = (
        open_embedder(RECIPE, replace(mock, normalize=normalize)).embed(pixels(3, 8, 8))
        for normalize in (False, True)
    )
    assert np.linalg.norm(plain.astype(np.float32), axis=1).min() > 1
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1, rtol=1e-5)


def test_network_of_length_1(tmp_path: Path) -> None:
    """The direction is that of the vectors as they are; images are 32 px high and 48 wide."""
    FAMILIES["dinov2"](tmp_path)
    recipe = replace(RECIPE, preprocess="squash:32x48,bilinear")
    model = JobSettings(model=str(tmp_path)).resolved_model()
    images = pixels(3, 32, 48)
    plain = open_embedder(recipe, model).embed(images)
    scaled = open_embedder(recipe, replace(model, normalize=True)).embed(images)
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    np.testing.assert_allclose(scaled, plain / lengths, rtol=1e-4, atol=1e-6)
    assert np.abs(lengths - 1).min() > 0.1
