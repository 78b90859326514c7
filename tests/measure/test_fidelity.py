"""Protocol `fidelity`: every image against the reference and against two baselines."""

from __future__ import annotations

from pathlib import Path

from wallclock.measure.fidelity import fidelity
from wallclock.measure.protocol import no_progress
from wallclock.spec import Cell, ModelSpec, Recipe, Slice

MODEL = ModelSpec("null", weights="none", input_px=32)


def test_fidelity_is_judged_image_by_image(corpus: Slice, tmp_path: Path) -> None:
    recipes = [
        {"name": "fast", "decoder": "simplejpeg", "resizer": "torch", "dct_scale": "auto"},
        {"name": "area", "decoder": "pil", "resizer": "opencv", "interpolation": "area"},
        {"name": "paper", "decoder": "pil", "resizer": "opencv", "interpolation": "linear"},
    ]
    reference, params = Recipe("reference"), {"recipes": recipes}
    cell = Cell("fast", "fidelity", "fidelity", 0, reference, corpus, MODEL, params)
    result = fidelity(cell, tmp_path, no_progress).values["fidelity"]
    assert result["area"]["psnr_loss_vs_area_db"] == 0.0
    assert result["paper"]["psnr_gain_vs_paper_db"] == 0.0
    assert result["fast"]["psnr_loss_vs_area_db"] < 0 < result["fast"]["psnr_gain_vs_paper_db"]
    assert 0 < result["fast"]["max_abs_diff"] < result["paper"]["max_abs_diff"]
