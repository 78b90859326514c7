"""The protocols that measure costs apart: contention, batch transfer, the step by batch size."""

from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.protocols import costs
from harness.protocols.costs import batch_transfer, contention, process_counts, step
from harness.protocols.protocol import no_progress, open_corpus
from harness.spec import Cell, Slice
from tests.harness.protocols.conftest import FORKS
from wallclock.errors import UserError
from wallclock.recipe import ModelSpec, Recipe

pytestmark = FORKS

MODEL = ModelSpec("null", weights="none", input_px=32, service_ms=2.0, service_ms_per_image=1.0)
RECIPE = Recipe("test", engine="dataloader", batch_size=4)
STAGES = ("h2d", "forward", "d2h", "serialize")


def cell_of(protocol: str, corpus: Slice | None = None, **params: Any) -> Cell:
    return Cell("predict", protocol, "test", 0, RECIPE, corpus, MODEL, params)


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


def test_every_process_loads_the_same_images(corpus: Slice) -> None:
    """As many as one alone loaded, from another one on."""
    cell = cell_of("contention", corpus, seconds=1e-9)
    manifest = open_corpus(cell)
    whole = ceil(corpus.n / 4)
    assert costs._loading(cell, manifest, 0.0, 0)()[0] == 4, "a part where images are costly"
    for offset in (0.0, 0.5):
        images, wall, cpu, samples = costs._loading(cell, manifest, offset, 2 * whole)()
        assert (images, len(samples["assemble"])) == (2 * corpus.n, 2 * whole)
        assert wall > 0
        assert cpu > 0


def test_process_counts_end_at_twice_the_cores() -> None:
    counts = {1: [1, 2], 2: [1, 2, 4], 6: [1, 2, 4, 6, 12], 16: [1, 2, 4, 8, 16, 32]}
    assert {cores: process_counts(cores) for cores in counts} == counts


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
    cell = replace(cell, model=replace(MODEL, input_px=224))
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


def test_a_step_stops_when_its_time_is_up(tmp_path: Path) -> None:
    cell = cell_of("step", batch_sizes=[1], batches=1000, seconds=0.02)
    assert 1 <= len(step(cell, tmp_path, no_progress).samples["forward-1"]) < 10
