"""Code that a loader's worker runs while it decodes an image, in this process or a forked one."""

from collections.abc import Callable
from typing import Any

import pytest

from wallclock.check import Image
from wallclock.loader.prepare import DecodeImage

Call = Callable[[Image], object]


def while_decoding(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    """Have workers call it with each image; none is loaded at once."""
    monkeypatch.setattr("wallclock.loader.at_once.LARGE_PIXELS", 0)
    decode = DecodeImage.__call__

    def decode_and_call(stage: DecodeImage, image: Image, data: Any) -> Any:
        call(image)
        return decode(stage, image, data)

    monkeypatch.setattr(DecodeImage, "__call__", decode_and_call)
