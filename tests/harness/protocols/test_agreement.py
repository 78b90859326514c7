"""Protocol `agreement`: a decoder that cannot run says so, and says nothing of the others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import decoders
from harness.protocols import fidelity
from harness.spec import Cell, Slice
from tests.harness.engines.conftest import MODEL, manifest_in
from wallclock.errors import ImageError, Unavailable, UserError
from wallclock.recipe import Recipe
from wallclock.stages import decode
from wallclock.stages.decode import Decode, Decoder, PixelArray

CELL = Cell(
    "decoders",
    "agreement",
    "agreement-original",
    0,
    Recipe("reference"),
    Slice("folder", "original", 3, "digest", ""),
    MODEL,
    {"images": 3},
)


def lacks_library(reuse: bool) -> Decode:
    """As a decoder does that imports a library which is not installed."""
    import missing_library  # type: ignore[import-not-found]

    loaded: Decode = missing_library.decode
    return loaded


def says_unavailable(reuse: bool) -> Decode:
    """As a decoder does that looks for its library first."""
    raise Unavailable("missing_library is not installed")


def fails_when_called(reuse: bool) -> Decode:
    """As a decoder does that imports its library at the first image."""

    def decode_image(
        data: bytes, scale: int = 1, size: tuple[int, int] | None = None
    ) -> PixelArray:
        return lacks_library(reuse)(data)

    return decode_image


def refuses_large(reuse: bool) -> Decode:
    """Pillow's decoder, but for one of the images."""
    pillow = decode.make("pil")
    images: list[bytes] = []

    def decode_image(
        data: bytes, scale: int = 1, size: tuple[int, int] | None = None
    ) -> PixelArray:
        images.append(data)
        if len(images) == 2:
            raise ImageError("decode", "toy: too large")
        return pillow(data)

    return decode_image


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Measure the agreement of some decoders, one of which may be a toy."""
    manifest = manifest_in(tmp_path, 3)
    monkeypatch.setattr(fidelity, "open_corpus", lambda cell: manifest)

    def run(*names: str, toy: Callable[[bool], Decode] = refuses_large) -> Any:
        monkeypatch.setitem(decode.DECODERS, "toy", Decoder("toy", "Toy", ("toy",), toy))
        monkeypatch.setattr(decoders, "NAMES", names)
        return fidelity.agreement(CELL, tmp_path, lambda done: None)

    return run


@pytest.mark.parametrize("toy", [lacks_library, says_unavailable, fails_when_called])
def test_a_missing_library_ungates_its_own_decoder_only(
    measure: Callable[..., Any], toy: Callable[[bool], Decode]
) -> None:
    measurement = measure("pil", "toy", "simplejpeg", toy=toy)
    compared = measurement.values["agreement"]
    assert "missing_library" in compared["toy"]["unavailable"]
    assert compared["pil"] == {"max_abs_diff": 0}
    assert compared["simplejpeg"]["max_abs_diff"] <= 2
    assert measurement.values["n_compared"] == 3
    assert not measurement.failures, "the images are sound"


def test_an_image_that_one_decoder_refuses_is_listed(measure: Callable[..., Any]) -> None:
    measurement = measure("pil", "toy")
    assert measurement.values["agreement"]["toy"] == {"max_abs_diff": 0}
    assert measurement.values["n_compared"] == 2
    (failure,) = measurement.failures
    assert (failure["id"], failure["stage"]) == ("image 1", "decode")


def test_without_the_reference_nothing_is_compared(
    measure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pillow = Decoder("pil", "PIL", ("pillow",), fails_when_called)
    monkeypatch.setitem(decode.DECODERS, "pil", pillow)
    with pytest.raises(UserError, match="every image failed"):
        measure("pil", "simplejpeg")
