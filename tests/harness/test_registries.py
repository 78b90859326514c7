"""Registries of decoders and loaders: complete, and clear about the module at fault."""

import pkgutil
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from harness import decoders
from harness.engines import third_party
from harness.engines.third_party._interface import Stream
from wallclock.stages import decode


def modules(path: Sequence[str]) -> set[str]:
    """The public modules of a package."""
    names = {module.name for module in pkgutil.iter_modules(path)}
    return {name for name in names if not name.startswith("_")}


def test_every_module_is_a_decoder() -> None:
    here = modules(decoders.__path__)
    assert here <= set(decoders.NAMES), "add its name to NAMES"
    assert set(decoders.NAMES) - here <= modules(decode.__path__), "the product's own"


def test_every_module_is_a_loader() -> None:
    assert modules(third_party.__path__) == set(third_party.MODULES), "add its name to MODULES"


def test_a_decoder_of_another_name_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.decoders.opencv.DECODER", decode.DECODERS["pil"])
    with pytest.raises(TypeError, match=r"decoders\.opencv: its decoder must be called opencv, no"):
        decoders._register("opencv")


def test_two_loaders_of_one_name_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(third_party, "MODULES", ("pil", "pil"))
    with pytest.raises(TypeError, match=r"third_party\.pil: another loader is called pil, too"):
        third_party._loaders()


def batches_of(*sizes: int) -> Iterator[Any]:
    for size in sizes:
        yield range(size), np.zeros((size, 8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((2,), "^loader toy: its stream ended; it must go over the files endlessly$"),
        ((2, 1), "^loader toy: a batch of 1 positions and 1 images; each must have 2$"),
    ],
)
def test_a_stream_that_is_not_endless_full_batches_is_named(
    sizes: tuple[int, ...], reason: str
) -> None:
    stream = Stream("toy 1.0", "none", prefetched=0, batches=batches_of(*sizes))
    loader = third_party.StreamLoader("toy", 1, 2, stream, ["a", "b"])
    assert next(loader).ids == ["a", "b"]
    with pytest.raises(RuntimeError, match=reason):
        next(loader)
