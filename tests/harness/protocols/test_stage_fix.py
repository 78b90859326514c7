"""Protocol `stage_fix`: a stage does the same with and without its fix."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.protocols import stage_fix as fixes
from harness.protocols.protocol import no_progress
from harness.spec import Cell
from wallclock.errors import Unavailable
from wallclock.recipe import ModelSpec, Recipe

MODEL = ModelSpec("null", weights="none", input_px=32, dim=8)


@pytest.mark.parametrize("stage", fixes.STAGES)
def test_with_and_without_its_fix_a_stage_does_the_same(stage: str, tmp_path: Path) -> None:
    recipe, params = Recipe("stage", batch_size=4), {"stage": stage, "seconds": 0.001}
    cell = Cell("stage_fixes", "stage_fix", stage, 0, recipe, None, MODEL, params)
    if stage != "h2d":  # the host pins nothing
        plain, fixed = (run() for run in fixes.variants(cell, stage).values())
        if stage == "normalize":
            plain = np.stack(plain)
        assert np.asarray(plain).shape == np.asarray(fixed).shape
        assert np.allclose(np.asarray(plain), np.asarray(fixed), atol=1e-5)
    if stage == "assemble":
        assert (plain.is_shared(), fixed.is_shared()) == (True, True)
        result = fixes.stage_fix(cell, tmp_path, no_progress)
        assert [len(rounds) for rounds in result.samples.values()] == [5, 5]
        assert result.values["n_fixed"] % 4 == 0
    else:
        with pytest.raises(Unavailable, match="needs a GPU"):
            fixes.stage_fix(replace(cell), tmp_path, no_progress)
