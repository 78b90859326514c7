"""Protocols of loading: images as they are delivered, and what costs apart from each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.protocols import costs, protocol
from harness.protocols.costs import batch_transfer, contention, step
from harness.protocols.protocol import Measurement, no_progress
from harness.protocols.throughput import loading
from harness.spec import Cell, Recipe, Slice
from tests.conftest import FORKS
from wallclock.errors import UserError
from wallclock.recipe import ModelSpec

# --- loading --------------------------------------------------------------------------------------


pytestmark = FORKS

MODEL = ModelSpec("null", weights="none", input_px=32, service_ms_per_image=1.0)
OURS = Recipe("fast", "simplejpeg", "torch", engine="threads", batch_size=4, dct_scale="auto")
OURS = replace(OURS, normalize_on="device")
PAPER = Recipe(
    "paper", "simplejpeg", "opencv", "linear", engine="dataloader", workers=1, batch_size=4
)
FIDELITY = {"vectors": 0}


def run(measure: Any, corpus: Slice, recipe: Recipe, repeat: int = 0, **params: Any) -> Measurement:
    cell = Cell("frontier", "loading", "x", repeat, recipe, corpus, MODEL, params)
    result: Measurement = measure(cell, Path(), no_progress)
    return result


def test_a_loaders_rate_and_its_own_images(corpus: Slice) -> None:
    options: dict[str, Any] = {"seconds": 0.3, "fidelity": FIDELITY}
    ours, paper = (run(loading, corpus, recipe, **options) for recipe in (OURS, PAPER))
    assert ours.samples["wall"][0] >= 300_000_000
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


def test_an_empty_subset_is_an_error(corpus: Slice) -> None:
    with pytest.raises(UserError, match="no arithmetic JPEG"):
        run(loading, corpus, OURS, seconds=0.01, subset="arithmetic")


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


# --- costs ----------------------------------------------------------------------------------------


COSTS_MODEL = ModelSpec(
    "null", weights="none", input_px=32, service_ms=2.0, service_ms_per_image=1.0
)
RECIPE = Recipe("test", engine="dataloader", batch_size=4)
STAGES = ("h2d", "forward", "d2h", "serialize")


def cell_of(protocol: str, corpus: Slice | None = None, **params: Any) -> Cell:
    return Cell("predict", protocol, "test", 0, RECIPE, corpus, COSTS_MODEL, params)


def test_contention_rates(corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "process_counts", lambda cores: [1, 2])
    result = contention(cell_of("contention", corpus, seconds=0.2), tmp_path, no_progress)
    n, values = result.values["n_embedded"], result.values
    assert n % corpus.n == 0, "whole passes over the images"
    per_image = dict.fromkeys(("read", "decode", "resize", "normalize"), n)
    calls = {name: len(samples) for name, samples in result.samples.items()}
    assert calls == per_image | {"assemble": n / corpus.n * ceil(corpus.n / 4)}
    assert set(values["rates"]) == set(values["cpu_s"]) == {"1", "2"}
    assert values["cpu_s"]["1"] > 0
    assert values["mean_bytes"] > 100
    assert values["other_cores"] >= 0


def test_a_loading_process_dies(
    corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    cell = cell_of("contention", corpus, seconds=0.1)
    cell = replace(cell, recipe=replace(RECIPE, decoder="none"))
    monkeypatch.setattr(costs, "process_counts", lambda cores: [1])
    with pytest.raises(RuntimeError, match="ended with status"):
        contention(cell, tmp_path, no_progress)
    assert "none" in capfd.readouterr().err
    with pytest.raises(UserError, match="needs a corpus"):
        contention(replace(cell, corpus=None), tmp_path, no_progress)


def test_batch_transfer_grows_with_the_batch(tmp_path: Path) -> None:
    cell = cell_of("batch_transfer", batch_sizes=[1, 64], batches=20)
    cell = replace(cell, model=replace(COSTS_MODEL, input_px=224))
    samples = batch_transfer(cell, tmp_path, no_progress).samples
    ends = ("assemble", "worker", "main")
    assert set(samples) == {f"{end}-{size}" for end in ends for size in (1, 64)}
    assert 0 < samples["assemble-1"][0] < samples["assemble-64"][0], "38 MB are copied"
    assert samples["worker-64"][0] < samples["assemble-64"][0], "and not a second time"
    assert samples["main-1"][0] > 0


def test_the_step_is_the_mock_models_time(tmp_path: Path) -> None:
    cell = cell_of("step", batch_sizes=[1, 8], batches=3, seconds=5)
    samples = step(cell, tmp_path, no_progress).samples
    assert {len(samples[f"{name}-8"]) for name in STAGES} == {3}
    assert min(samples["forward-1"]) >= 3_000_000
    assert min(samples["forward-8"]) >= 10_000_000


@pytest.mark.parametrize(
    ("choices", "dtype", "pinned"),
    [
        ({"device": "cpu"}, np.float32, False),
        ({"device": "cuda"}, torch.float32, True),
        ({"device": "cuda", "engine": "threads", "normalize_on": "device"}, torch.uint8, True),
        ({"device": "cuda", "engine": "serial"}, np.float32, False),
    ],
)
def test_a_step_begins_as_its_loader_delivers(
    choices: dict[str, Any], dtype: Any, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinning: list[Any] = []

    def pin(images: torch.Tensor) -> torch.Tensor:
        pinning.append(images)
        return images

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    cell = replace(cell_of("step"), recipe=replace(RECIPE, **choices), model=ModelSpec("vit"))
    batch = costs._noise(cell, 2)
    assert (batch.dtype, bool(pinning)) == (dtype, pinned)
    shape = (2, 224, 224, 3) if dtype == torch.uint8 else (2, 3, 224, 224)
    assert batch.shape == shape
