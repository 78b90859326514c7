"""Protocol `loading` on real files and processes."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.engines import loaders
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, no_progress
from harness.protocols.throughput import loading
from harness.spec import Cell, Slice
from tests.harness.protocols.conftest import FORKS
from wallclock.errors import UserError
from wallclock.recipe import ModelSpec, Recipe

pytestmark = FORKS

MODEL = ModelSpec("null", weights="none", input_px=32, service_ms_per_image=1.0)
OURS = Recipe("fast", "simplejpeg", "torch", engine="threads", batch_size=4, dct_scale="auto")
OURS = replace(OURS, normalize_on="device")
PAPER = Recipe("paper", "simplejpeg", "opencv", "linear", "dataloader", workers=1, batch_size=4)
FIDELITY = {"vectors": 0}


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
    assert mine["n_compared"] == theirs["n_compared"] == 18, "every one of them"
    assert mine["psnr_db"] > 40 > theirs["psnr_db"], "one antialiases, the other does not"
    assert mine["psnr_gain_vs_paper_db"] > 0
    assert theirs["psnr_gain_vs_paper_db"] == pytest.approx(0, abs=0.5), "float32 and back"


def test_images_are_compared_as_they_cross_the_finish_line(corpus: Slice) -> None:
    host, device = (
        run(loading, corpus, OURS, seconds=0.01, fidelity=FIDELITY, finish=finish)
        for finish in ("host", "device")
    )
    assert device.values["fidelity"] == host.values["fidelity"], "normalized and back"


def test_a_crop_is_compared_with_pillows(corpus: Slice) -> None:
    """Its geometry is read back from what made the pictures."""
    text = "shortest:36,crop:32x32,bicubic"
    crop = run(loading, corpus, replace(OURS, preprocess=text), seconds=0.01, fidelity=FIDELITY)
    assert crop.values["ran"] == {"preprocess": text}
    assert f"torch {text}, uint8" in crop.values["settings"]
    fidelity = crop.values["fidelity"]
    assert fidelity["psnr_db_bicubic"] == fidelity["psnr_db"] > 40
    assert fidelity["psnr_gain_vs_paper_db"] > 0
    squash = run(loading, corpus, OURS, seconds=0.01)
    assert squash.values["ran"] == {"preprocess": "squash"}
    assert "torch bilinear, uint8" in squash.values["settings"]


def test_later_repeats_skip_the_images(corpus: Slice) -> None:
    result = run(loading, corpus, OURS, 1, seconds=0.01, fidelity=FIDELITY, subset="progressive")
    assert "fidelity" not in result.values
    assert 0 < result.values["n_unique"] < 18
    assert result.values["progressive_share"] == 1.0


def test_an_empty_subset_is_an_error(corpus: Slice) -> None:
    with pytest.raises(UserError, match="no arithmetic JPEG"):
        run(loading, corpus, OURS, seconds=0.01, subset="arithmetic")


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


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes:UserWarning")
def test_a_short_pass_takes_eight_bursts(corpus: Slice) -> None:
    result = run(loading, corpus, replace(PAPER, workers=4), 1, seconds=0.0)
    assert len(result.samples["batch"]) == 8 * 4


def test_a_pass_beside_other_programs_is_taken_again(
    corpus: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = iter([0.98, 0.05])

    @contextmanager
    def competing(readings: dict[str, Any]) -> Iterator[None]:
        yield
        readings["other_cores"] = next(busy)

    monkeypatch.setattr(protocol, "competing", competing)
    result = run(loading, corpus, OURS, 1, seconds=0.0)
    assert result.values["other_cores"] == 0.05
    assert result.values["discarded_other_cores"] == [0.98]
    assert result.values["n_loaded"] == 4 * len(result.samples["batch"]), "of one pass"


def test_a_pass_takes_as_many_images_as_asked(corpus: Slice) -> None:
    result = run(loading, corpus, OURS, 1, seconds=0.0, min_images=90)
    assert 90 <= result.values["n_loaded"] < 90 + 2 * OURS.batch_size
