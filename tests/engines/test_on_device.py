"""The finish line of a GPU box: a normalized batch on the device, that batch's own work done."""

from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.engines.conftest import MODEL
from tests.engines.test_inference import FakeCuda
from tests.test_clock import FakeClock
from wallclock.corpus.manifest import Manifest
from wallclock.engines.loaders import open_loader
from wallclock.engines.on_device import OnDevice
from wallclock.engines.third_party import dali
from wallclock.spec import Recipe
from wallclock.stages import normalize
from wallclock.stages.transfer import Transfer

MS = 1_000_000


@pytest.mark.parametrize("place", ["device", "host"])
def test_batches_arrive_normalized(tiny: Manifest, place: str) -> None:
    """The host or the device normalizes: the same numbers, ids as they were."""
    recipe = Recipe("x", engine="threads", batch_size=4, normalize_on=place)
    on_host = normalize.make(*MODEL.statistics)
    with open_loader(tiny, recipe, MODEL, [[0, 1, 2], [3]]) as loader:
        expected = [(batch.ids, np.array(batch.images)) for batch in loader]
    with open_loader(tiny, recipe, MODEL, [[0, 1, 2], [3]]) as loader:
        for batch, (ids, images) in zip(
            OnDevice(loader, MODEL.statistics, "cpu"), expected, strict=True
        ):
            floats = images if place == "host" else np.stack([on_host(image) for image in images])
            assert batch.ids == ids
            np.testing.assert_allclose(batch.images.numpy(), floats, atol=1e-5)


def test_a_batch_is_waited_for_and_no_other_work_is(
    tiny: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy and the normalization take 30 ms behind the host; a decoder's stream, a second."""
    cuda = FakeCuda(FakeClock())

    def h2d(images: Any) -> torch.Tensor:
        cuda.work(30 * MS)
        return torch.as_tensor(images)

    move = Transfer(h2d, np.asarray, lambda: cuda.work(1000 * MS))
    monkeypatch.setattr("wallclock.stages.transfer.make", lambda device: move)
    to_floats = "wallclock.stages.normalize.on_device"
    monkeypatch.setattr(to_floats, lambda *_: lambda pixels: pixels.float())
    monkeypatch.setattr(torch.cuda, "Event", lambda blocking: cuda.Event(False, blocking))
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
    ((positions, batch),) = islice(dali._batches(pipeline, "mixed"), 1)
    assert positions == [3, 4]
    assert batch.data_ptr() == images.data_ptr()
    ((_, batch),) = islice(dali._batches(pipeline, "cpu"), 1)
    assert isinstance(batch, np.ndarray)
