"""`output=cuda`: copied in a stream of its own, ready where it is used, no buffer reused too soon.

The fake device's streams run their work as late as they may (`tests/fake_cuda.py`), so that
whatever is not waited for has not happened. The last tests run on a GPU, too, where one is.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests import devices, fake_cuda, making
from tests.devices import Device
from tests.fake_cuda import NOT_YET, Stream
from wallclock.errors import Unavailable, UserError
from wallclock.loader.images import open_images
from wallclock.loader.output import Output, Workers
from wallclock.stages.augment import Augment

FILES = [making.jpeg(30 + seed, 24, seed) for seed in range(24)]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> fake_cuda.Device:
    """A fake GPU."""
    opened = devices.open_device("fake", monkeypatch).fake
    assert opened is not None
    # The fake runs whatever the second stream has at once: that is none of the loader's.
    Stream()
    Stream()
    return opened


def read_later(images: Any) -> Any:
    """What the consumer's stream reads, once the host waits for that."""
    seen: list[Any] = []
    Stream.current.put(lambda: seen.append(images.clone()))
    Stream.device.synchronize()
    return seen[0]


def expected_of(size: int, **options: Any) -> list[Any]:
    """The same on the host."""
    with open_images(FILES, size, 2, **options) as batches:
        return [batch.images.clone() for batch in batches]


def test_a_batch_is_ready_for_the_stream_that_takes_it(fake: fake_cuda.Device) -> None:
    """Read without a wait of the host's; all of them are held."""
    expected = expected_of(8, output="torch")
    with open_images(FILES, 8, 2, output="cuda", workers=2) as batches:
        kept = [batch.images for batch in batches]
    assert [tuple(images.shape) for images in kept] == [(2, 8, 8, 3)] * 12
    for images, host in zip(kept, expected, strict=True):
        assert torch.equal(read_later(images), host)
    assert fake.waits == 12, "the consumer's stream waits for each batch"


def test_a_buffer_is_filled_again_once_it_was_copied(fake: fake_cuda.Device) -> None:
    """Nothing is read before the last batch is there: what was not copied then is lost."""
    expected = expected_of(8, output="torch")
    with open_images(FILES, 8, 2, output="cuda", workers=1, epochs=3) as batches:
        kept = [batch.images for batch in batches]
    assert len(kept) == 36, "of some seven buffers"
    for number, images in enumerate(kept):
        assert torch.equal(read_later(images), expected[number % 12])


def test_taking_a_batch_waits_for_nothing(fake: fake_cuda.Device) -> None:
    """Only the next request waits, for the copy alone."""
    with open_images(FILES, 8, 2, output="cuda") as batches:
        images = next(batches).images
        assert int(images.max()) == int(images.min()) == NOT_YET, "the copy has not run yet"
        Stream.current.put(lambda: pytest.fail("the consumer's own work was waited for"))
        next(batches)
        assert int(images.min()) != NOT_YET
        Stream.current.work.clear()


def test_floats_are_made_on_the_device(fake: fake_cuda.Device) -> None:
    """A quarter of the bytes is copied; the values are the host's."""
    expected = expected_of(8, output="torch,float32")
    with open_images(FILES, 8, 2, output="cuda,float32") as batches:
        loader: Any = batches
        for batch, host in zip(loader, expected, strict=True):
            assert batches._loader._ring.buffers[0].dtype == np.uint8  # type: ignore[union-attr]
            assert torch.allclose(read_later(batch.images), host, rtol=1e-5, atol=1e-5)


def test_floats_of_a_transform_are_copied(fake: fake_cuda.Device) -> None:
    """As bfloat16, which they are on the host already."""
    augment = Augment(transform=lambda p: p.transpose(2, 0, 1) / np.float32(3), random=False)
    options: dict[str, Any] = {"augment": augment}
    expected = expected_of(8, output="torch,bfloat16", **options)
    with open_images(FILES, 8, 2, output="cuda,bfloat16", **options) as batches:
        for batch, host in zip(batches, expected, strict=True):
            assert torch.equal(read_later(batch.images), host)


def test_a_batch_that_is_left_is_copied_first(fake: fake_cuda.Device) -> None:
    """The memory ends with the loader."""
    expected = expected_of(8, output="torch")
    with open_images(FILES, 8, 2, output="cuda") as batches:
        images = next(batches).images
    assert torch.equal(images, expected[0])


def test_what_a_device_cannot_have(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Output(device="cuda").framework == "torch"
    assert Output.parse("cuda,float16") == Output("float16", "torch", device="cuda")
    assert Output.parse("torch,cpu") == Output(framework="torch")
    monkeypatch.setattr("wallclock.machine.require_cuda", lambda what: None)
    with pytest.raises(UserError, match="processes=2: output=cuda needs processes=1"):
        open_images(FILES, output="cuda", workers=Workers(2, processes=2))
    with pytest.raises(UserError, match="output=cuda needs one size: add crop"):
        open_images(FILES, output="cuda", preprocess="original")
    with pytest.raises(UserError, match="no output is called 'gpu'"):
        open_images(FILES, output="gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_no_gpu_is_one_line() -> None:
    with pytest.raises(Unavailable, match=r"^output=cuda needs a CUDA GPU"):
        open_images(FILES, output="cuda")


def compared(device: Device, kept: list[Any], expected: list[Any], tolerance: float) -> None:
    """What was read on the device is what the host has."""
    device.synchronize()
    assert len(kept) == len(expected)
    for images, host in zip(kept, expected, strict=True):
        torch.testing.assert_close(images.cpu(), host, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("uint8", 0.0), ("float32", 1e-5), ("bfloat16", 1e-2)]
)
def test_batches_are_the_hosts(device: Device, dtype: str, tolerance: float) -> None:
    """Normalized on the device, and read behind other work of the consumer's stream."""
    expected = expected_of(64, output=f"torch,{dtype}")
    kept: list[Any] = []

    def keep(images: Any) -> None:
        kept.append(images.clone())

    with open_images(FILES, 64, 2, output=f"cuda,{dtype}") as batches:
        for batch in batches:
            images: Any = batch.images
            assert images.is_cuda or device.fake
            device.keep_busy(5)
            device.then(partial(keep, images))
    compared(device, kept, expected, tolerance)


def test_memory_is_reused_after_the_consumers_work(device: Device) -> None:
    """A batch that is dropped while its stream is behind keeps its memory until it was read."""
    expected = expected_of(64, output="torch")
    sums: list[Any] = []

    def add_up(images: Any) -> None:
        sums.append(images.long().sum())

    with open_images(FILES, 64, 2, output="cuda", epochs=20) as batches:
        for batch in batches:
            device.keep_busy(2)
            device.then(partial(add_up, batch.images))
    compared(device, sums, [host.long().sum() for host in expected] * 20, 0.0)
