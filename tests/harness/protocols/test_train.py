"""Training: one step's parts, the protocols `train_step` and `train`; with a tiny network."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness.protocols import train as training
from harness.protocols.protocol import no_progress
from harness.protocols.train import PARTS, Trainer, train, train_step
from harness.spec import Cell, Slice
from tests.harness.protocols.conftest import FORKS
from wallclock.errors import Unavailable, UserError
from wallclock.loader.batch import Batch, Extras
from wallclock.recipe import ModelSpec, Recipe
from wallclock.stages import augment

pytestmark = FORKS

MODEL = ModelSpec("resnet-50", "random", input_px=32)
RECIPE = Recipe("test", engine="dataloader", workers=1, batch_size=4, normalize_on="device")
PARAMS = {"max_failures": 0, "seconds": 0.01, "batches": 3, "batch_sizes": [2, 4]}


class Tiny(nn.Module):
    """A network of one layer with ResNet's interface."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1000)

    def forward(self, pixel_values: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.layer(pixel_values.mean(dim=(2, 3))))


@pytest.fixture(autouse=True)
def networks(monkeypatch: pytest.MonkeyPatch) -> list[Tiny]:
    """The networks made so far."""
    made: list[Tiny] = []

    def seeded(seed: int) -> Tiny:
        torch.manual_seed(seed)
        made.append(Tiny())
        return made[-1]

    monkeypatch.setattr(training, "resnet50", seeded)
    return made


def cell_of(protocol: str, corpus: Slice | None = None, **choices: Any) -> Cell:
    recipe = replace(RECIPE, **choices)
    return Cell("train", protocol, "test", 0, recipe, corpus, MODEL, PARAMS)


def weights_after(networks: list[Tiny], images: Any, **choices: Any) -> torch.Tensor:
    trainer = Trainer(MODEL, replace(RECIPE, **choices))
    drawn = [augment.draw(64, 64, 0, 0, index) for index in range(len(images))]
    for _ in range(2):
        trainer.step(Batch([], range(len(images)), images, extras=Extras(augmentations=drawn)))
    return networks[-1].layer.weight.detach().clone()


def test_a_step_learns_alike_from_alike(networks: list[Tiny]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
    once, again = (weights_after(networks, images) for _ in range(2))
    torch.manual_seed(0)
    assert torch.equal(once, again)
    assert not torch.equal(once, Tiny().layer.weight), "the optimizer has not stepped"
    mixed = weights_after(networks, images, dtype="bf16")
    assert 0 < (mixed - once).abs().max() < 0.01
    assert not torch.equal(once, weights_after(networks, images, augment="device"))
    floats = Trainer(MODEL, RECIPE)._normalize(torch.from_numpy(images)).numpy()
    same = weights_after(networks, floats, normalize_on="host")
    torch.testing.assert_close(same, once)


def test_floats_are_not_augmented_on_the_device() -> None:
    with pytest.raises(UserError, match="normalize_on=device"):
        Trainer(MODEL, replace(RECIPE, augment="device", normalize_on="host"))


@pytest.mark.parametrize("place", ["none", "device"])
def test_parts_of_a_step_by_batch_size(place: str, tmp_path: Path) -> None:
    samples = train_step(cell_of("train_step", augment=place), tmp_path, no_progress).samples
    parts = [part for part in PARTS if part != "augment" or place == "device"]
    assert set(samples) == {f"{part}-{size}" for part in parts for size in (2, 4)}
    assert all(1 <= len(taken) <= 3 for taken in samples.values())
    assert min(samples["backward-2"]) > 0


@pytest.mark.parametrize(("engine", "place"), [("dataloader", "cpu"), ("threads", "device")])
def test_together(corpus: Slice, tmp_path: Path, engine: str, place: str) -> None:
    cell = cell_of("train", corpus, engine=engine, augment=place)
    result = train(cell, tmp_path, no_progress)
    (wall,), n = result.samples["wall"], len(result.samples["forward"])
    assert n == result.values["n_batches"] >= 3
    assert result.values["n_loaded"] == 4 * n
    assert 0 < sum(result.samples["wait"]) + sum(result.samples["forward"]) <= wall
    assert len(result.samples["decode"]) == 4 * n
    assert result.values["ran"]["engine"] == engine


def test_a_mock_model_has_nothing_to_train(corpus: Slice, tmp_path: Path) -> None:
    for protocol in (train, train_step):
        cell = replace(cell_of("train", corpus), model=ModelSpec("null", "none"))
        with pytest.raises(Unavailable, match="nothing to run"):
            protocol(cell, tmp_path, no_progress)


@pytest.mark.slow
def test_resnet50_has_its_25_million_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    network = training.resnet50(0)
    assert network.training
    assert sum(value.numel() for value in network.parameters()) == 25_557_032


@pytest.mark.cuda
def test_mixed_precision_on_a_gpu(tmp_path: Path) -> None:
    cell = cell_of("train_step", device="cuda", dtype="fp16", augment="device")
    assert set(train_step(cell, tmp_path, no_progress).samples) >= {"augment-4", "optimizer-4"}
