"""One image's way to its row: what its decoder, its resizer and the lock are asked for."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from tests import making
from wallclock.check import LARGE_PIXELS, ImageInfo
from wallclock.fetch.sources import SourceReader
from wallclock.loader.loading import Loading
from wallclock.loader.prepare import DecodeImage, InPlaceStages, in_place_stages, one_large
from wallclock.recipe import FAST, Limits
from wallclock.stages import decode, resize
from wallclock.stages.augment import Augmentation

#: A quarter of the width, half of the height.
CROP = Augmentation(0.5, 0.25, 0.25, 0.5, False, 1.0, 1.0, 1.0)


def info(width: int, height: int, **more: Any) -> ImageInfo:
    """Of a plain JPEG."""
    plain = {"format": "jpeg", "process": "baseline", "components": 3, "sampling": "4:2:0"}
    return ImageInfo("x", 1, width, height, **{**plain, **more})


class Recorder:
    """A resizer, and a decoder, that note what they are asked for."""

    name = "recorder"
    labels: ClassVar = {"resizer": name}

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def as_destination(self, row: Any) -> Any:
        return row

    def resize_into(self, row: Any, pixels: Any, stored: Any) -> None:
        self.asked.append(stored)

    def decode(self, data: bytes, scale: int = 1, size: Any = None) -> Any:
        self.asked.append((data, scale, size))
        return making.picture()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(resize, "make", lambda *_: recorder)
    monkeypatch.setattr(decode, "make", lambda *_, **__: recorder.decode)
    return recorder


@pytest.mark.parametrize(("crops", "stored"), [(False, (300, 400)), (True, None)])
def test_the_resizer_gets_the_size_in_the_file(
    crops: bool, stored: Any, recorder: Recorder
) -> None:
    """Height first; of a crop, which the file's size does not bound, none."""
    loading = replace(Loading.of(FAST, 32), crops=crops)
    stages = in_place_stages(loading, SourceReader(Limits(), fetches_ahead=False))
    image = info(400, 300, augmentation=CROP if crops else None)
    row = np.zeros((32, 32, 3), np.uint8)
    stages.resize_into(image, making.picture(400, 300), stages.as_destination(row))
    assert recorder.asked == [stored]


@pytest.mark.parametrize(("drawn", "scale"), [(None, 8), (CROP, 2)])
def test_the_scale_is_of_what_is_used(drawn: Any, scale: int, recorder: Recorder) -> None:
    """400 × 400 leaves 50 px of 40 at 1/8; its crop has 100 px of width, which leave 50 at 1/2."""
    decode_image = DecodeImage(replace(Loading.of(FAST, 32), crops=True))
    decode_image(info(400, 400, augmentation=drawn), b"data")
    assert recorder.asked == [(b"data", scale, (400, 400))]


@pytest.mark.parametrize(("pixels", "is_held"), [(LARGE_PIXELS, False), (LARGE_PIXELS + 1, True)])
def test_large_pictures_are_decoded_under_the_lock(pixels: int, is_held: bool) -> None:
    events: list[tuple[str, bool]] = []

    def stage(name: str) -> Any:
        return lambda *_: events.append((name, one_large.locked()))

    stages = InPlaceStages(stage("read"), stage("decode"), stage("to"), stage("resize"))
    stages.fill(info(pixels, 1), b"", None)
    assert events == [("decode", is_held), ("resize", is_held)]
