"""The device that a test runs on: a GPU where there is one, and everywhere the fake one.

The fixture `device` (tests/conftest.py) runs a test on both. On the fake one `device=cuda` is
accepted, networks and copies are the host's, and a result is there once its stream came to it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, Dinov2Model  # noqa: F401 - they ask torch.cuda, not the fake

from harness.protocols import fidelity
from tests import fake_cuda
from tests.fake_cuda import MS, Stream, compute_late, copy_late
from wallclock.loader import opener
from wallclock.loader.output import Output
from wallclock.stages import normalize, transfer
from wallclock.stages.forward import Network, pytorch

GPU = {"name": "a fake GPU", "memory_gib": 16, "driver": "580.0"}
#: Clock cycles of a GPU in a millisecond, at most: what it is kept busy for is a little less.
_CYCLES_PER_MS = 1_900_000


@dataclass(frozen=True)
class Device:
    """A device under test. `fake`: what stands for it; None on a GPU."""

    fake: fake_cuda.Device | None

    def keep_busy(self, ms: float) -> None:
        """Queue about so much work on the current stream."""
        if self.fake:
            self.fake.work(round(ms * MS))
        else:
            cuda: Any = torch.cuda
            cuda._sleep(round(ms * _CYCLES_PER_MS))

    def then(self, call: Callable[[], object]) -> None:
        """Let the current stream do something once it comes to it."""
        if self.fake:
            Stream.current.put(call)
        else:
            call()

    def synchronize(self) -> None:
        """Wait for all of the device's work."""
        torch.cuda.synchronize()

    def tensor(self) -> Any:
        """What a model's `forward` gets: something on the device."""
        return _OnFake() if self.fake else torch.zeros(1, device="cuda")


class _OnFake:
    """A tensor of the fake device, for who asks where it is."""

    is_cuda = True
    device = "cuda:0"


def open_device(name: str, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device of that name, fake or cuda. Skips the test where there is no GPU."""
    fidelity._network.cache_clear()  # networks of the other device
    if name == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("torch sees no CUDA GPU here")
        return Device(None)
    fake = fake_cuda.install(monkeypatch, fake_cuda.HostClock())
    monkeypatch.setattr("wallclock.machine.gpus", lambda: [GPU])
    monkeypatch.setattr("wallclock.machine.require_cuda", lambda what="": None)
    monkeypatch.setattr(transfer, "make", _transfers(transfer.make, fake))
    monkeypatch.setattr(normalize, "on_device", _normalizers(normalize.on_device))
    monkeypatch.setattr(opener, "_normalized_there", _converters(opener._normalized_there))
    monkeypatch.setattr(pytorch, "build", _builder(pytorch.build))
    return Device(fake)


def _transfers(make: Callable[[str], Any], fake: fake_cuda.Device) -> Callable[[str], Any]:
    def d2h(vectors: Any) -> Any:
        fake.synchronize()
        return np.asarray(vectors, np.float32)

    late = transfer.Transfer(copy_late, d2h, fake.synchronize_all)
    return lambda device: late if device == "cuda" else make(device)


def _late(to_floats: Callable[[Any], Any], dtype: Any) -> Callable[[Any], Any]:
    """A conversion of uint8 (n, h, w, c) into (n, c, h, w) that runs when its stream does."""

    def convert(images: Any) -> Any:
        n, height, width, channels = images.shape
        return compute_late(lambda: to_floats(images), (n, channels, height, width), dtype)

    return convert


def _normalizers(on_device: Callable[..., Any]) -> Callable[..., Any]:
    def make(mean: Any, std: Any, device: str) -> Any:
        to_floats = on_device(mean, std, "cpu")
        return _late(to_floats, torch.float32) if device == "cuda" else to_floats

    return make


def _converters(make: Callable[[Output], Any]) -> Callable[[Output], Any]:
    def make_late(output: Output) -> Any:
        return _late(make(replace(output, device="cpu")), getattr(torch, output.dtype))

    return make_late


def _builder(build: Callable[..., Network]) -> Callable[..., Network]:
    def build_on_host(network: Any, digest: str, dtype: str, device: str, *how: Any) -> Network:
        built = build(network, digest, dtype, "cpu", *how)
        if device != "cuda":
            return built
        dim = network.config.hidden_size

        def run(batch: Any) -> Any:
            return compute_late(lambda: built.run(batch), (len(batch), dim), torch.float32)

        return replace(built, run=run)

    return build_on_host
