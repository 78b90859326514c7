"""Protocol `job`: a whole job in its own process, sampled every second."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.protocols.job import job
from harness.protocols.protocol import open_corpus
from harness.spec import Cell, Slice
from wallclock.errors import UserError
from wallclock.recipe import ModelSpec, Recipe

MODEL = ModelSpec("null", weights="none", input_px=32, service_ms_per_image=1.0)
OURS = Recipe("fast", "simplejpeg", "torch", engine="threads", batch_size=4, dct_scale="auto")
OURS = replace(OURS, normalize_on="device")


@pytest.mark.slow
@pytest.mark.parametrize("files", ["", "repeated", "distinct"])
def test_the_job_is_run_and_sampled(files: str, corpus: Slice, tmp_path: Path) -> None:
    """Without a word, as older cells are, files are repeated."""
    cell = Cell("scaling", "job", "x", 0, OURS, corpus, MODEL, {"n": 50, "files": files})
    cell.params["settings"] = {"shard": 20, "device": "cpu"}  # type: ignore[index]
    n_pictures = len(open_corpus(cell, "jpeg").valid)
    seen: list[int] = []
    result = job(cell, tmp_path, seen.append)
    assert 0 < result.values["startup_s"] < result.samples["wall"][0] / 1e9
    assert result.values["sampled"]["n_done"][-1] == 60 == max(seen), "three parts"
    assert result.values["peak_memory_mib"] > 100
    is_distinct = files == "distinct"
    assert result.values["n_unique"] == n_pictures < 50
    assert result.values["n_files"] == (50 if is_distinct else n_pictures)
    assert result.values["deduplicate"] is is_distinct
    assert result.values["page_cache"] == "warm"
    cpu_s = result.values["main_cpu_s"], result.values["commit_cpu_s"]
    assert 0 < min(cpu_s) < max(cpu_s) < result.samples["wall"][0] / 1e9
    assert len(list((tmp_path / "vectors").glob("part-*.parquet"))) == 3
    cell.params["settings"]["sink"] = "tape"
    with pytest.raises(UserError, match="ended with status 1"):
        job(cell, tmp_path / "vectors", seen.append)
