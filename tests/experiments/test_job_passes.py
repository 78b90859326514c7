"""Protocols that time whole jobs."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from experiments.cluster import measure as cluster
from experiments.cluster import systems
from experiments.train import measure as training
from experiments.train.measure import PARTS, Trainer, train, train_step
from harness.protocols.job import job
from harness.protocols.protocol import no_progress, open_corpus
from harness.spec import Cell, Recipe, Slice
from tests.conftest import FORKS
from tests.experiments import made
from tests.harness.protocols.test_loading import MODEL, OURS
from wallclock.errors import Unavailable, UserError
from wallclock.loader.batch import Batch, Extras
from wallclock.recipe import ModelSpec
from wallclock.stages import augment

# --- job ------------------------------------------------------------------------------------------


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


# --- cluster --------------------------------------------------------------------------------------


FEW = {"n": 24, "damaged": 0, "object_store_mib": 100, "page_cache": "warm", "fidelity": {}}
NULL = ModelSpec("null", weights="none")


def cell(folder: Path, name: str, **params: Any) -> Cell:
    corpus = next(iter(made.plan(folder, "experiment=[cluster]").slices({"original": 3}).values()))
    (folder / "work").mkdir()
    values = FEW | {"system": name} | params
    return Cell("cluster", "cluster", name, 0, Recipe(name, batch_size=4), corpus, NULL, values)


def run(folder: Path, name: str, **params: Any) -> dict[str, Any]:
    made_cell = cell(folder, name, **params)
    if "no " in systems.SYSTEMS[name].installed():
        pytest.skip("make setup-cluster")
    measured = cluster.cluster(made_cell, folder / "work", no_progress)
    return measured.values | dict(measured.samples)


def test_rate_is_between_first_and_last_batch() -> None:
    stamps = [(13.0, 8), (10.0, 8), (11.0, 8), (12.0, 4)]
    assert cluster.between(stamps) == (20, 3.0, 10.0)
    for few in ([], stamps[:3], [(1.0, 8)] * 5):
        with pytest.raises(RuntimeError, match="no rate"):
            cluster.between(few)


@pytest.mark.parametrize(
    ("most", "passes"), [(1_000_000, [24, 6000, 12_000]), (5000, [24, 5000]), (24, [24])]
)
def test_a_pass_that_is_too_short_is_repeated_with_more_images(
    most: int, passes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds: the first pass runs at 500 images a second, the others at 1,000."""
    ran: list[int] = []

    def run_pass(system: Any, cell: Any, manifest: Any, n: int, *others: Any) -> cluster.Pass:
        ran.append(n)
        job = SimpleNamespace(wall_ns=10**9, began=4.0)
        outcome: Any = SimpleNamespace(run=job, peak_mib=1.0, report={"library": ""}, error="")
        return cluster.Pass(outcome, n, n / (500 if n == 24 else 1000), 5.0)

    monkeypatch.setattr(cluster, "_pass", run_pass)
    short = cell(tmp_path, "ours", least_s=10.0, most_images=most)
    measured = cluster.cluster(short, tmp_path / "work", no_progress)
    assert ran == pytest.approx(passes, rel=1e-3)
    assert measured.values["n_images"] == measured.values["n_loaded"] == ran[-1]
    assert measured.values["startup_s"] == 1
    assert measured.samples["wall"][0] / 1e9 == pytest.approx(ran[-1] / 1000, rel=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_a_job(name: str, tmp_path: Path) -> None:
    values = run(tmp_path, name, n=64, fidelity={"images": 3})
    assert 0 < values["n_loaded"] < 64
    assert values["psnr_db_p5"] if "psnr_db_p5" in values else values["fidelity"]["psnr_db"] > 25
    assert 0 < values["startup_s"] < values["job_s"]
    assert values["peak_memory_mib"] > 50
    assert (values.get("stored_bytes", 0) > 0) == ("ray" in name)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["ours", "daft", "ray-images"])
def test_a_damaged_file(name: str, tmp_path: Path) -> None:
    values = run(tmp_path, name, n=40, damaged=20)
    assert values["damaged"] == 2
    if name == "ray-images":
        assert "Error" in values["aborted"]
        assert values["errored"]["lost"] >= 0
    else:
        assert (values["aborted"], values["lost"]) == ("", 0)


# --- train ----------------------------------------------------------------------------------------


pytestmark = FORKS

TRAIN_MODEL = ModelSpec("resnet-50", "random", input_px=32)
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
    return Cell("train", protocol, "test", 0, recipe, corpus, TRAIN_MODEL, PARAMS)


def weights_after(networks: list[Tiny], images: Any, **choices: Any) -> torch.Tensor:
    trainer = Trainer(TRAIN_MODEL, replace(RECIPE, **choices))
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
    floats = Trainer(TRAIN_MODEL, RECIPE)._normalize(torch.from_numpy(images)).numpy()
    same = weights_after(networks, floats, normalize_on="host")
    torch.testing.assert_close(same, once)


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
    for measure in (train, train_step):
        cell = replace(cell_of("train", corpus), model=ModelSpec("null", "none"))
        with pytest.raises(Unavailable, match="nothing to run"):
            measure(cell, tmp_path, no_progress)


@pytest.mark.cuda
def test_mixed_precision_on_a_gpu(tmp_path: Path) -> None:
    cell = cell_of("train_step", device="cuda", dtype="fp16", augment="device")
    assert set(train_step(cell, tmp_path, no_progress).samples) >= {"augment-4", "optimizer-4"}
