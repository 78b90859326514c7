"""Large pictures are validated one at a time: two that are decoded at once are twice the memory."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from PIL import Image

from tests import making
from wallclock import check
from wallclock.recipe import Limits
from wallclock.stages.decode import pil


class Decodes:
    """Pillow's decoder, with what it does at the same time."""

    def __init__(self, at_once: int) -> None:
        self.most = 0
        self._inside, self._lock = 0, threading.Lock()
        self._barrier = threading.Barrier(at_once)

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        time.sleep(0.02)
        with self._lock:
            self._inside -= 1

    def in_threads(self, data: bytes, **options: Any) -> None:
        def validate(_: int) -> None:
            self._barrier.wait(30)
            check.read_header(data, Limits(), **options)
            check.check_body(data, check.read_header(data, Limits()))

        with ThreadPoolExecutor(self._barrier.parties) as pool:
            list(pool.map(validate, range(self._barrier.parties)))


@pytest.mark.parametrize(("large", "at_once"), [(0, 1), (10**9, 3)])
def test_the_body_of_a_large_picture(
    large: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of small ones several are decoded at once."""
    monkeypatch.setattr(check, "LARGE_PIXELS", large)
    decodes, load = Decodes(3), pil.load_stored

    def load_slowly(image: Any) -> Any:
        decodes.enter()
        return load(image)

    monkeypatch.setattr(check, "load_stored", load_slowly)
    decodes.in_threads(making.encode(making.picture(), "PNG"))
    assert decodes.most == at_once


@pytest.mark.parametrize(("large", "at_once"), [(0, 1), (10**9, 3)])
def test_the_orientation_of_a_large_png(
    large: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its EXIF may lie behind the pixels, which are decoded for it."""
    monkeypatch.setattr(check, "LARGE_PIXELS", large)
    exif = Image.Exif()
    exif[0x0112] = 6
    data = making.encode(making.picture(), "PNG", exif=exif)
    at = data.index(b"eXIf") - 4
    size = 12 + int.from_bytes(data[at : at + 4], "big")
    rest = data[:at] + data[at + size :]
    behind = rest[:-12] + data[at : at + size] + rest[-12:]
    decodes, open_image = Decodes(3), pil.open_image

    def open_slow(data: bytes, format: str) -> Any:
        image = open_image(data, format)
        load = image.load

        def load_slowly() -> Any:
            decodes.enter()
            return load()

        image.load = load_slowly
        return image

    monkeypatch.setattr(check, "open_image", open_slow)
    monkeypatch.setattr(check, "check_body", lambda *_: None)
    decodes.in_threads(behind, rotate=True)
    assert decodes.most == at_once
