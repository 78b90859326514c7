"""`output=cuda`: copied in a stream of its own, ready where it is used, no buffer reused too soon.

The device is faked: its streams run their work as late as they may (`tests/fake_cuda.py`), so that
whatever is not waited for has not happened. Those marked `cuda` need a real one.
"""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from tests import fake_cuda, making
from tests.fake_cuda import Device, Stream
from wallclock.errors import Unavailable, UserError
from wallclock.loader.images import open_images
from wallclock.loader.output import Output, Workers
from wallclock.stages import normalize, transfer
from wallclock.stages.augment import Augment

FILES = [making.jpeg(30 + seed, 24, seed) for seed in range(24)]
#: What a tensor of the fake device holds before its copy has run.
NOT_YET = 77


def copy_late(rows: Any) -> Any:
    """Queue a copy on the current stream: it takes what the memory holds once it runs."""
    source = torch.as_tensor(rows)
    copy = torch.full_like(source, NOT_YET)
    Stream.current.put(lambda: copy.copy_(source))
    return copy


def convert_late(floats: Any, dtype: Any) -> Any:
    """A conversion on the device, that runs when its stream does."""

    def convert(images: Any) -> Any:
        n, height, width, c = images.shape
        made = torch.full((n, c, height, width), NOT_YET, dtype=dtype)
        Stream.current.put(lambda: made.copy_(floats(images).to(dtype)))
        return made

    return convert


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A fake GPU, with page-locked memory that is not."""
    fake = fake_cuda.install(monkeypatch)
    zeros = torch.zeros

    def unpinned(*shape: Any, pin_memory: bool = False, **more: Any) -> Any:
        return zeros(*shape, **more)

    monkeypatch.setattr(torch, "zeros", unpinned)
    monkeypatch.setattr("wallclock.machine.require_cuda", lambda what="": None)
    made = transfer.Transfer(copy_late, np.asarray, None)
    monkeypatch.setattr(transfer, "make", lambda device: made)
    on_device = normalize.on_device

    def normalized(mean: Any, std: Any, device: str) -> Any:
        return convert_late(on_device(mean, std, "cpu"), torch.float32)

    monkeypatch.setattr(normalize, "on_device", normalized)
    # The fake runs whatever the second stream has at once: that is none of the loader's.
    Stream()
    Stream()
    return fake


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


def test_a_batch_is_ready_for_the_stream_that_takes_it(device: Device) -> None:
    """Read without a wait of the host's; all of them are held."""
    expected = expected_of(8, output="torch")
    with open_images(FILES, 8, 2, output="cuda", workers=2) as batches:
        held = [batch.images for batch in batches]
    assert [tuple(images.shape) for images in held] == [(2, 8, 8, 3)] * 12
    for images, host in zip(held, expected, strict=True):
        assert torch.equal(read_later(images), host)
    assert device.waits == 12, "the consumer's stream waits for each batch"


def test_a_buffer_is_filled_again_once_it_was_copied(device: Device) -> None:
    """Nothing is read before the last batch is there: what was not copied then is lost."""
    expected = expected_of(8, output="torch")
    with open_images(FILES, 8, 2, output="cuda", workers=1, epochs=3) as batches:
        held = [batch.images for batch in batches]
    assert len(held) == 36, "of some seven buffers"
    for number, images in enumerate(held):
        assert torch.equal(read_later(images), expected[number % 12])


def test_taking_a_batch_waits_for_nothing(device: Device) -> None:
    """Only the next request waits, for the copy alone."""
    with open_images(FILES, 8, 2, output="cuda") as batches:
        images = next(batches).images
        assert int(images.max()) == int(images.min()) == NOT_YET, "the copy has not run yet"
        Stream.current.put(lambda: pytest.fail("the consumer's own work was waited for"))
        next(batches)
        assert int(images.min()) != NOT_YET
        Stream.current.work.clear()


def test_floats_are_made_on_the_device(device: Device) -> None:
    """A quarter of the bytes is copied; the values are the host's."""
    expected = expected_of(8, output="torch,float32")
    with open_images(FILES, 8, 2, output="cuda,float32") as batches:
        loader: Any = batches
        for batch, host in zip(loader, expected, strict=True):
            assert batches._loader._ring.buffers[0].dtype == np.uint8  # type: ignore[union-attr]
            assert torch.allclose(read_later(batch.images), host, rtol=1e-5, atol=1e-5)


def test_floats_of_a_transform_are_copied(device: Device) -> None:
    """As bfloat16, which they are on the host already."""
    augment = Augment(transform=lambda p: p.transpose(2, 0, 1) / np.float32(3), random=False)
    options: dict[str, Any] = {"augment": augment}
    expected = expected_of(8, output="torch,bfloat16", **options)
    with open_images(FILES, 8, 2, output="cuda,bfloat16", **options) as batches:
        for batch, host in zip(batches, expected, strict=True):
            assert torch.equal(read_later(batch.images), host)


def test_a_batch_that_is_left_is_copied_first(device: Device) -> None:
    """The memory ends with the loader."""
    expected = expected_of(8, output="torch")
    with open_images(FILES, 8, 2, output="cuda") as batches:
        images = next(batches).images
    assert torch.equal(images, expected[0])


def test_an_asynchronous_loop_has_its_own_stream(device: Device) -> None:
    """The batch is taken by another thread, and ready for the stream of this one."""
    streams: list[Stream] = []
    mine = Stream()
    enter = torch.cuda.stream

    def note(stream: Any) -> Any:
        streams.append(stream)
        return enter(stream)

    async def take() -> list[Any]:
        with open_images(FILES, 8, 2, output="cuda") as batches:
            return [read_later(batch.images) async for batch in batches]

    with pytest.MonkeyPatch.context() as patch, enter(mine):  # type: ignore[arg-type]
        patch.setattr(torch.cuda, "stream", note)
        patch.setattr(torch.cuda, "current_stream", lambda: Stream.current)
        taken = asyncio.run(take())
    assert mine in streams
    for images, host in zip(taken, expected_of(8, output="torch"), strict=True):
        assert torch.equal(images, host)


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


# --- on a real device ---------------------------------------------------------------------------


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
def test_on_a_gpu_batches_are_the_hosts(dtype: str) -> None:
    """Held, and while the device is busy."""
    expected = expected_of(64, output=f"torch,{dtype}")
    busy = torch.randn(4096, 4096, device="cuda")
    held = []
    with open_images(FILES, 64, 2, output=f"cuda,{dtype}") as batches:
        for batch in batches:
            assert batch.images.is_cuda
            for _ in range(5):
                busy = (busy @ busy).clamp(-1, 1)
            held.append(batch.images.clone())
    for images, host in zip(held, expected, strict=True):
        tolerance = 0.0 if dtype == "uint8" else 1e-2 if dtype == "bfloat16" else 1e-5
        torch.testing.assert_close(images.cpu(), host, rtol=tolerance, atol=tolerance)


@pytest.mark.cuda
def test_on_a_gpu_memory_is_reused_after_the_consumers_work() -> None:
    """A batch that is dropped while its stream is behind keeps its memory until it was read."""
    expected = expected_of(64, output="torch")
    sums = []
    busy = torch.randn(4096, 4096, device="cuda")
    with open_images(FILES, 64, 2, output="cuda", epochs=20) as batches:
        for batch in batches:
            for _ in range(5):
                busy = (busy @ busy).clamp(-1, 1)
            sums.append(batch.images.long().sum())
    assert [int(total) for total in sums] == [int(host.long().sum()) for host in expected] * 20
