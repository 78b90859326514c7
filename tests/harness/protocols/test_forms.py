"""Protocol `forms`: every form from everywhere, evicted and read back; and `stage_fix`."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.corpora import readers
from harness.protocols import stage_fix as fixes
from harness.protocols.forms import forms
from harness.protocols.protocol import no_progress
from harness.spec import Cell, Slice
from tests.harness.protocols.conftest import FORKS
from wallclock.errors import Unavailable
from wallclock.recipe import ModelSpec, Recipe

MODEL = ModelSpec("null", weights="none", input_px=32, dim=8)
WHERE = ["cold", "warm", "http-0"]


def cell_of(corpus: Slice, form: str, where: list[str]) -> Cell:
    params = {"form": form, "where": where, "in_flight": 4, "seconds": 0.001}
    recipe = Recipe("test", decoder="simplejpeg", resizer="pil", normalize_on="device")
    return Cell("storage", "forms", form, 0, recipe, corpus, MODEL, params)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A file system that drops what it is told to; how often it was told."""
    told = list[str]()
    monkeypatch.setattr(readers, "evict", lambda root, paths: told.append("evict"))
    monkeypatch.setattr(readers, "cached_share", lambda paths: 0.01)
    return told


@FORKS
@pytest.mark.parametrize("form", ["files", "files_s3", "parquet", "pixels_map", "lmdb", "tar"])
def test_every_condition_has_a_time_or_a_reason(
    corpus: Slice, tmp_path: Path, cold: list[str], form: str
) -> None:
    local = form in ("pixels_map", "lmdb")
    result = forms(cell_of(corpus, form, WHERE[2 * (form == "files_s3") :]), tmp_path, no_progress)
    timed = WHERE[2:] if form == "files_s3" else WHERE[: 2 if local else 3]
    names = [f"{w}/{n}/{finish}" for w in timed for n in (1, 4) for finish in ("bytes", "tensor")]
    assert [*result.samples] == [*result.values["passes"]] == names
    assert [*result.values["unavailable"]] == (["http-0"] if local else [])
    for name, found in result.values["passes"].items():
        assert found["n"] >= (18 if name.startswith("cold") else 1)
        assert (found["from_disk_share"] is None) == name.startswith("http")
        assert found["cached_share"] == (0.01 if name.startswith("cold") else None)
        assert found["cpu_ms"] > 0
    assert len(cold) >= 4 * ("cold" in timed)
    assert result.values["kb_on_disk"] >= (result.values["mean_kb"] if form != "parquet" else 1)


@FORKS
def test_pages_that_stay_are_no_cold_pass(
    corpus: Slice, tmp_path: Path, cold: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "cached_share", lambda paths: 0.5)
    result = forms(cell_of(corpus, "files", ["cold"]), tmp_path, no_progress)
    assert result.samples == {}
    assert "mincore finds 50% of them" in result.values["unavailable"]["cold/4/bytes"]


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
