"""The finish line of a GPU box: a normalized batch on the device, that batch's own work done."""

from contextlib import nullcontext
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harness.corpora.manifest import Manifest
from harness.engines import pipeline, third_party
from harness.engines.loaders import OnDevice, open_loader
from harness.engines.third_party import dali, spdl
from harness.engines.third_party._interface import LoaderSpec
from tests import fake_cuda
from tests.devices import Device
from tests.fake_cuda import MS
from tests.harness.engines.conftest import MODEL
from wallclock.errors import Unavailable
from wallclock.recipe import Recipe
from wallclock.stages import normalize
from wallclock.stages.transfer import Transfer


@pytest.mark.parametrize("place", ["device", "host"])
@pytest.mark.parametrize("engine", ["threads", "serial"])
def test_batches_arrive_normalized(device: Device, tiny: Manifest, place: str, engine: str) -> None:
    """The host or the device normalizes: the same numbers, ids as they were."""
    recipe = Recipe("x", engine=engine, batch_size=4, normalize_on=place, device="cuda")
    on_host = normalize.make(*MODEL.statistics)
    positions = [[0, 1, 2, 3], [4, 5], [6, 7, 8, 9]]
    with open_loader(tiny, recipe, MODEL, positions) as loader:
        expected = [(batch.ids, np.asarray(batch.images).copy()) for batch in loader]
    with open_loader(tiny, recipe, MODEL, positions) as loader:
        for batch, (ids, images) in zip(
            OnDevice(loader, MODEL.statistics, "cuda"), expected, strict=True
        ):
            floats = images if place == "host" else np.stack([on_host(image) for image in images])
            assert batch.ids == ids
            assert batch.images.is_cuda or device.fake
            np.testing.assert_allclose(batch.images.cpu().numpy(), floats, atol=1e-5)


@pytest.mark.slow
@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("name", third_party.LOADERS)
def test_a_peer_ends_on_the_gpu(name: str, tiny: Manifest) -> None:
    """With the same pictures as on the host; DALI's decoder on the GPU is another one."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA GPU here")
    recipe = Recipe(name, engine=name, workers=2, batch_size=4, device="cuda")
    try:
        with open_loader(tiny, recipe, MODEL, []) as loader:
            batches = [*islice(OnDevice(loader, MODEL.statistics, "cuda"), 9)]
            images = {
                position: image
                for batch in batches
                for position, image in zip(batch.positions, batch.images.clone(), strict=True)
            }
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert {image.device.type for image in images.values()} == {"cuda"}
    assert images.keys() == set(range(len(tiny.valid)))
    load = pipeline.load_stages(Recipe("x"), MODEL, tiny)
    right = [load.normalize(load.load_pixels(item)) for item in tiny.valid]
    for position, image in images.items():
        errors = [float(np.abs(image.cpu().numpy() - other).mean()) for other in right]
        assert errors[position] == min(errors), "another picture"
        assert errors[position] < 0.5


def test_a_batch_is_waited_for_and_no_other_work_is(
    tiny: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy and the normalization take 30 ms behind the host; a decoder's stream, a second."""
    cuda = fake_cuda.install(monkeypatch)

    def h2d(images: Any) -> torch.Tensor:
        cuda.work(30 * MS)
        return torch.as_tensor(images)

    move = Transfer(h2d, np.asarray, lambda: cuda.work(1000 * MS))
    monkeypatch.setattr("wallclock.stages.transfer.make", lambda device: move)
    to_floats = "wallclock.stages.normalize.on_device"
    monkeypatch.setattr(to_floats, lambda *_: lambda pixels: pixels.float())
    with open_loader(tiny, Recipe("x", engine="threads"), MODEL, [[0]] * 3) as loader:
        arrived = [cuda.clock.now for _ in OnDevice(loader, MODEL.statistics, "cuda")]
    assert np.diff(arrived).tolist() == [30 * MS] * 2
    assert cuda.device_ns == cuda.clock.now
    assert cuda.blocking, "a core for the loaders"


def test_dali_leaves_on_the_gpu_what_it_decoded_there() -> None:
    images = torch.arange(12, dtype=torch.uint8).reshape(2, 1, 2, 3)
    labels = SimpleNamespace(as_cpu=lambda: SimpleNamespace(as_tensor=lambda: np.array([[3], [4]])))
    # A GPU's list has no array interface; from `as_cpu` the images would come by the bus.
    outputs = SimpleNamespace(as_tensor=lambda: images)
    pipeline = SimpleNamespace(run=lambda: (outputs, labels))
    ((positions, batch),) = islice(dali._batches(pipeline, on_gpu=True), 1)
    assert positions == [3, 4]
    assert batch.data_ptr() == images.data_ptr()
    ((_, batch),) = islice(dali._batches(pipeline, on_gpu=False), 1)
    assert isinstance(batch, np.ndarray)


def test_spdl_copies_to_the_gpu_in_its_own_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """`transfer_tensor_h2d`, which pins, gets each batch, in a thread of its own."""
    executors = []

    class Builder:
        def pipe(self, op: Any, executor: Any = None, **_: Any) -> Any:
            if executor is not None:
                executors.append(executor)
            self.last = op
            return self

        def add_source(self, source: Any) -> Any:
            return self

        def add_sink(self, size: int) -> Any:
            return self

        def build(self, num_threads: int) -> Any:
            batches = iter([self.last(([3], np.ones((1, 2, 2, 3), np.uint8)))])
            return SimpleNamespace(auto_stop=nullcontext, get_iterator=lambda: batches)

    media = SimpleNamespace(
        demux_config=lambda: None,
        get_video_filter_desc=lambda **_: "",
        transfer_tensor_h2d=lambda tensor: tensor.to("meta"),
    )
    modules = {"spdl.io": media, "spdl.pipeline": SimpleNamespace(PipelineBuilder=Builder)}
    monkeypatch.setattr(spdl, "import_or_unavailable", lambda name, **_: modules[name])
    monkeypatch.setattr("harness.engines.third_party._interface.version", lambda name: name)
    task = LoaderSpec(["a.jpg"], 2, 1, workers=1, variant="batch", on_gpu=True)
    with spdl.LOADER.open(task) as stream:
        ((positions, images),) = stream.batches
    assert (positions, images.device.type, images.dtype) == ([3], "meta", torch.uint8)
    assert [executor._max_workers for executor in executors] == [1]
    assert stream.settings.endswith("uint8, transfer_tensor_h2d")
