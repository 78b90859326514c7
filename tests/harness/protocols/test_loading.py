"""Protocols `loading`, `load_n`, `ceiling` and `fidelity` on real files and processes."""

import gc
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engines import loaders
from harness.protocols import ceilings
from harness.protocols.ceilings import ceiling
from harness.protocols.fidelity import fidelity
from harness.protocols.job import job
from harness.protocols.protocol import Measurement, no_progress
from harness.protocols.throughput import load_n, loading
from harness.spec import Cell, Slice
from tests.harness.protocols.conftest import FORKS
from wallclock.errors import Unavailable, UserError
from wallclock.recipe import ModelSpec, Recipe

pytestmark = FORKS

MODEL = ModelSpec("null", weights="none", input_px=32, service_ms_per_image=1.0)
OURS = Recipe("fast", "simplejpeg", "torch", engine="threads", batch_size=4, dct_scale="auto")
OURS = replace(OURS, normalize_on="device")
PAPER = Recipe("paper", "simplejpeg", "opencv", "linear", "dataloader", workers=1, batch_size=4)
FIDELITY = {"images": 6, "vectors": 0}


def run(measure: Any, corpus: Slice, recipe: Recipe, repeat: int = 0, **params: Any) -> Measurement:
    cell = Cell("frontier", "loading", "x", repeat, recipe, corpus, MODEL, params)
    result: Measurement = measure(cell, Path(), no_progress)
    return result


def test_a_loaders_rate_and_its_own_images(corpus: Slice) -> None:
    options: dict[str, Any] = {"seconds": 0.05, "fidelity": FIDELITY}
    ours, paper = (run(loading, corpus, recipe, **options) for recipe in (OURS, PAPER))
    assert ours.samples["wall"][0] >= 50_000_000
    assert sum(ours.samples["batch"]) <= ours.samples["wall"][0]
    assert ours.values["n_loaded"] == 4 * len(ours.samples["batch"])
    assert ours.values["n_loaded"] > ours.values["n_unique"] == 18
    mine, theirs = ours.values["fidelity"], paper.values["fidelity"]
    assert mine["psnr_db"] > 40 > theirs["psnr_db"], "one antialiases, the other does not"
    assert mine["psnr_gain_vs_paper_db"] > 0
    assert theirs["psnr_gain_vs_paper_db"] == pytest.approx(0, abs=0.5), "float32 and back"


def test_images_are_compared_as_they_cross_the_finish_line(corpus: Slice) -> None:
    host, device = (
        run(loading, corpus, OURS, seconds=0.01, fidelity=FIDELITY, finish=finish)
        for finish in ("host", "device")
    )
    assert device.values["fidelity"] == host.values["fidelity"], "normalized and back"


def test_later_repeats_skip_the_images(corpus: Slice) -> None:
    result = run(loading, corpus, OURS, 1, seconds=0.01, fidelity=FIDELITY, subset="progressive")
    assert "fidelity" not in result.values
    assert 0 < result.values["n_unique"] < 18
    assert result.values["progressive_share"] == 1.0


def test_an_empty_subset_is_an_error(corpus: Slice) -> None:
    with pytest.raises(UserError, match="no arithmetic JPEG"):
        run(loading, corpus, OURS, seconds=0.01, subset="arithmetic")


def test_load_n_counts_its_start(corpus: Slice) -> None:
    result = run(load_n, corpus, OURS, n=31)
    assert (result.values["n_loaded"], result.values["n_unique"]) == (31, 18)
    assert len(result.samples["wall"]) == 1


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


@pytest.mark.parametrize("recipe", [OURS, PAPER], ids=["threads", "dataloader"])
@pytest.mark.parametrize("kind", ["decode_files", "decode_memory", "forward", "synthetic"])
def test_ceilings(
    corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.sched_getaffinity(0)
    result = run(ceiling, corpus, recipe, kind=kind, seconds=0.02)
    assert result.values["n_loaded"] > 0
    assert os.sched_getaffinity(0) == before
    if kind.startswith("decode"):
        rates = result.values["core_img_per_s"]
        assert len(rates) == len(before)
        assert sum(rates) == pytest.approx(result.values["img_per_s"])
    else:
        assert result.values["img_per_s"] <= 1000, "the mock model takes a millisecond an image"


@pytest.mark.slow
def test_the_engines_own_ceiling(corpus: Slice) -> None:
    result = run(ceiling, corpus, OURS, kind="engine", seconds=0.02)
    assert result.values["n_loaded"] % OURS.batch_size == 0
    assert result.values["img_per_s"] > 0


@pytest.mark.parametrize("recipe", [OURS, PAPER], ids=["threads", "dataloader"])
def test_the_collector_ran_before_the_loader_starts(
    corpus: Slice, monkeypatch: pytest.MonkeyPatch, recipe: Recipe
) -> None:
    """Later, the loader would fill its queues meanwhile; and its processes inherit the state."""
    real, enabled = loaders.open_loader, list[bool]()

    def opened(*arguments: Any) -> Any:
        enabled.append(gc.isenabled())
        return real(*arguments)

    monkeypatch.setattr(loaders, "open_loader", opened)
    result = run(loading, corpus, recipe, 1, seconds=0.01)
    assert enabled == [False]
    assert gc.isenabled()
    assert result.values["other_cores"] >= 0


def test_nothing_is_copied_on_the_host(corpus: Slice) -> None:
    with pytest.raises(Unavailable, match="the device is the host"):
        run(ceiling, corpus, OURS, kind="h2d", seconds=0.02)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes:UserWarning")
def test_a_short_pass_takes_eight_bursts(corpus: Slice) -> None:
    result = run(loading, corpus, replace(PAPER, workers=4), 1, seconds=0.0)
    assert len(result.samples["batch"]) == 8 * 4


def test_a_process_that_dies_stops_all(corpus: Slice, monkeypatch: pytest.MonkeyPatch) -> None:
    real, first = ceilings._decoding, min(os.sched_getaffinity(0))

    def dies(*arguments: Any, **named: Any) -> Any:
        if os.sched_getaffinity(0) == {first}:
            raise RuntimeError("fails in one process")
        return real(*arguments, **named)

    monkeypatch.setattr(ceilings, "_decoding", dies)
    with pytest.raises(RuntimeError, match="a process ended with status"):
        run(ceiling, corpus, OURS, kind="decode_files", seconds=0.01)


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
