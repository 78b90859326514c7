"""From files to vectors on a device: ring, three streams and writer against serial vectors."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from harness.corpora.manifest import Manifest
from harness.engines.inference import OnGpu, OnHost, TimedInference, open_inference
from harness.engines.loaders import open_loader
from harness.engines.writer import open_writer
from harness.protocols.loop import PassResult, run_pass
from harness.protocols.protocol import no_progress
from harness.protocols.throughput import GpuMemory
from harness.spec import Recipe
from tests.devices import Device
from tests.harness.engines.conftest import manifest_in
from wallclock.infer.network import open_embedder
from wallclock.loader.batch import Batch
from wallclock.recipe import ModelSpec
from wallclock.stages.forward import networks
from wallclock.summary import cosine

MODEL = ModelSpec("tiny", dim=48, input_px=28)
ON_HOST = Recipe("serial", "simplejpeg", "torch", batch_size=1)
ON_DEVICE = Recipe("x", "simplejpeg", "torch", engine="threads", workers=2, batch_size=8)
ON_DEVICE = replace(ON_DEVICE, device="cuda", normalize_on="device")
N, GONE, DAMAGED = 20, (16, 17), 9
#: Each image three times: the last batch is half full, one has no image that loads.
BATCHES = [list(range(at, min(at + 8, 60))) for at in range(0, 60, 8)]
BATCHES.insert(4, [16, 17])


class Embedded(NamedTuple):
    """What a pass wrote, batch by batch, and what it was."""

    written: list[tuple[list[str], Any]]
    result: PassResult
    inference: TimedInference


@pytest.fixture(autouse=True)
def _few_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "_LAYERS", 2)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Twenty images; since they were listed, two are gone and one is no JPEG any more."""
    made = manifest_in(tmp_path_factory.mktemp("images"), N)
    for number in GONE:
        (made.root / made.items[number].path).unlink()
    (made.root / made.items[DAMAGED].path).write_bytes(b"\xff\xd8" + bytes(100))
    return made


@pytest.fixture(scope="module")
def serial(manifest: Manifest) -> dict[str, Any]:
    """The vector of each image alone, on the host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "_LAYERS", 2)
        made = embed(manifest, ON_HOST, [[at] for at in range(N)])
    assert isinstance(made.inference, OnHost)
    return {ids[0]: vectors[0] for ids, vectors in made.written}


def embed(manifest: Manifest, recipe: Recipe, batches: list[list[int]]) -> Embedded:
    embedder = open_embedder(recipe, MODEL)
    written: list[tuple[list[str], Any]] = []

    def write(ids: Any, vectors: Any) -> None:
        written.append(([*ids], np.array(vectors)))

    with (
        open_loader(manifest, recipe, MODEL, batches) as loader,
        open_writer(write, lambda: None, in_thread=recipe.engine == "threads") as writer,
    ):
        inference = open_inference(embedder, recipe, writer)
        result = run_pass(
            loader, None, no_progress, inference=inference, max_failures=99, span_batches=99
        )
    return Embedded(written, result, inference)


@pytest.mark.parametrize("engine", ["threads", "serial"])
def test_vectors_are_those_of_a_serial_pass(
    device: Device, manifest: Manifest, serial: dict[str, Any], engine: str
) -> None:
    workers = 2 if engine == "threads" else 0
    made = embed(manifest, replace(ON_DEVICE, engine=engine, workers=workers), BATCHES)
    assert isinstance(made.inference, OnGpu)
    failed = {manifest.items[at].id for at in (*GONE, DAMAGED)}
    expected = [[manifest.items[at % N].id for at in batch] for batch in BATCHES]
    kept = [[name for name in ids if name not in failed] for ids in expected]
    assert [ids for ids, _ in made.written] == [ids for ids in kept if ids]
    assert {len(ids) for ids, _ in made.written} == {8, 7, 6, 2}
    assert len(made.result.failures) == sum(name in failed for ids in expected for name in ids)
    for ids, vectors in made.written:
        right = np.stack([serial[name] for name in ids])
        assert cosine(vectors, right).min() > 0.99999
        assert np.isfinite(vectors).all()


def batches(n: int) -> Iterator[Batch]:
    """Batches of the same image."""
    pixels = np.full((8, 28, 28, 3), 100, np.uint8)
    for number in range(n):
        yield Batch([f"{number}-{row}" for row in range(8)], range(8), pixels)


def test_a_second_pass_allocates_no_segment(device: Device) -> None:
    """With the same object; another one has streams, and so memory, of its own."""
    embedder = open_embedder(ON_DEVICE, MODEL)
    assert embedder.device == "cuda"

    def run(inference: TimedInference) -> dict[str, Any]:
        memory = GpuMemory(embedder.device)
        memory.begin()
        for batch in batches(6):
            inference.submit(batch, 0)
        inference.finish()
        return memory.values()

    with open_writer(lambda ids, vectors: None, lambda: None, in_thread=False) as writer:
        inference = open_inference(embedder, ON_DEVICE, writer)
        assert run(inference)["gpu_segments_allocated"] > 0
        inference.restart(writer)
        again = run(inference)
        other = run(open_inference(embedder, ON_DEVICE, writer))
    assert again["gpu_segments_allocated"] == 0
    assert 0 < again["peak_gpu_allocated_gib"] <= again["peak_gpu_reserved_gib"]
    assert other["gpu_segments_allocated"] > 0
