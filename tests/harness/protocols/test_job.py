"""Protocol `job`: a whole job in its own process, sampled every second."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.protocols.job import job
from harness.spec import Cell, Slice
from wallclock.errors import UserError
from wallclock.recipe import ModelSpec, Recipe

MODEL = ModelSpec("null", weights="none", input_px=32, service_ms_per_image=1.0)
OURS = Recipe("fast", "simplejpeg", "torch", engine="threads", batch_size=4, dct_scale="auto")
OURS = replace(OURS, normalize_on="device")


@pytest.mark.slow
def test_the_job_is_run_and_sampled(corpus: Slice, tmp_path: Path) -> None:
    cell = Cell("scaling", "job", "x", 0, OURS, corpus, MODEL, {"n": 50})
    cell.params["settings"] = {"shard": 20, "device": "cpu"}  # type: ignore[index]
    seen: list[int] = []
    result = job(cell, tmp_path, seen.append)
    assert 0 < result.values["startup_s"] < result.samples["wall"][0] / 1e9
    assert result.values["sampled"]["n_done"][-1] == 60 == max(seen), "three parts"
    assert min(result.values["sampled"]["open_files"]) > 3
    assert result.values["peak_memory_mib"] > 100
    assert len(list((tmp_path / "vectors").glob("part-*.parquet"))) == 3
    cell.params["settings"]["sink"] = "tape"
    with pytest.raises(UserError, match="ended with status 1"):
        job(cell, tmp_path / "vectors", seen.append)
