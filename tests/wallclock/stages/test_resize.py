"""Three resizers: shapes, names, who antialiases, and what a DCT-scaled image covers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.measures import psnr_db
from tests import making
from wallclock import native
from wallclock.errors import ImageError, UserError
from wallclock.preprocess import Preprocess, denominator_for
from wallclock.recipe import INTERPOLATIONS
from wallclock.stages import decode, resize
from wallclock.stages.pixels import PixelArray

CHOICES = [(name, choice) for name, choices in INTERPOLATIONS.items() for choice in choices]
each_choice = pytest.mark.parametrize(("name", "interpolation"), CHOICES)


def noisy(width: int, height: int, amplitude: int) -> PixelArray:
    """A photo-like image with fine texture."""
    noise = np.random.default_rng(0).integers(-amplitude, amplitude, (height, width, 3))
    return np.clip(making.picture(width, height).astype(int) + noise, 0, 255).astype(np.uint8)


@each_choice
def test_flat_colour_stays(name: str, interpolation: str) -> None:
    """Read-only, as Pillow's arrays are."""
    flat = np.broadcast_to(np.array([200, 30, 90], np.uint8), (300, 500, 3)).copy()
    flat.flags.writeable = False
    resized = resize.make(name, interpolation, 224).resize(flat)
    assert np.abs(resized.astype(int) - (200, 30, 90)).max() <= 1


@each_choice
def test_resize_into_a_row(name: str, interpolation: str) -> None:
    pixels, resizer = making.picture(300, 200), resize.make(name, interpolation, 50)
    batch = np.full((3, 50, 50, 3), 7, np.uint8)
    resizer.resize_into(resizer.as_destination(batch[1]), pixels)
    np.testing.assert_array_equal(batch[1], resizer.resize(pixels))
    assert (batch[[0, 2]] == 7).all()


@each_choice
def test_pixels_lie_as_their_decoder_left_them(name: str, interpolation: str) -> None:
    """Four bytes apart, or a grey image's; in the last one there is nothing behind them."""
    padded = np.random.default_rng(3).integers(0, 256, (61, 47, 4), np.uint8)
    grey = np.broadcast_to(padded[..., :1].copy(), (61, 47, 3))
    for pixels in (padded[..., :3], padded[7:, 5:, :3], grey, grey[:, 9:40]):
        pixels.flags.writeable = False
        size = pixels.shape[:2]
        resizer, exact = resize.make(name, interpolation, 20), np.array(pixels, order="C")
        for row in (resizer.resize(pixels), resizer.resize(pixels, size)):
            np.testing.assert_array_equal(row, resizer.resize(exact))
        place = Preprocess("shortest", (30, 30), (20, 20), interpolation)
        if name != "opencv":
            window = resizer.resize_window(pixels, place.place(*size), size).copy()
            wanted = resizer.resize_window(exact, place.place(*size), size)
            np.testing.assert_array_equal(window, wanted)


def test_labels_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, interpolation in CHOICES:
        resizer = resize.make(name, interpolation, 8)
        has = name != "native" or (native.find() and interpolation in resize.NATIVE)
        made = name if has else "torch"
        assert (resizer.name, resizer.interpolation) == (made, interpolation)
    monkeypatch.setitem(resize.RESIZERS, "pil", resize.RESIZERS["torch"])
    assert resize.make("pil", "bilinear", 8).name == "torch"


def test_who_antialiases() -> None:
    """The paper does not mention it: OpenCV's linear resize samples, it does not average."""
    noise = np.random.default_rng(0).integers(0, 256, (1000, 1000, 3), dtype=np.uint8)
    spread = {choice: float(resize.make(*choice, 100).resize(noise).std()) for choice in CHOICES}
    averaging = [("pil", "box"), ("pil", "bilinear"), ("opencv", "area")]
    sampling = [("opencv", name) for name in ("nearest", "linear", "cubic", "lanczos")]
    assert 2 * max(spread[name] for name in averaging) < min(spread[name] for name in sampling)


@settings(max_examples=25)
@given(width=st.integers(1, 900), height=st.integers(1, 900), size=st.integers(1, 256))
def test_torch_is_pillow_but_for_rounding(width: int, height: int, size: int) -> None:
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    ours, theirs = (resize.make(name, "bilinear", size).resize(pixels) for name in ("torch", "pil"))
    assert np.abs(ours.astype(int) - theirs).max() <= 2


@pytest.mark.parametrize(
    ("name", "interpolation", "message"),
    [
        ("pill", "bilinear", "no resizer is called 'pill'; did you mean pil"),
        ("opencv", "liner", "interpolation of resizer=opencv is called 'liner'; did you mean line"),
        ("pil", "billinear", "did you mean bilinear"),
        ("opencv", "bilinear", "all|valid"),
    ],
)
def test_unknown_names(name: str, interpolation: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        resize.make(name, interpolation, 224)
    assert "\n" not in str(caught.value)


class TestScaled:
    """Images that were decoded to 1/n."""

    def decode_twice(self, width: int, height: int, amplitude: int) -> tuple[Any, Any]:
        """In full and scaled for 224 px."""
        data = making.encode(noisy(width, height, amplitude), quality=92)
        scale = denominator_for(height, width, 280, 280)
        return decode.make("simplejpeg")(data), decode.make("simplejpeg", scales=True)(data, scale)

    def test_closer_to_pillow_than_area_of_the_full_image(self) -> None:
        full, scaled = self.decode_twice(2000, 1600, 30)
        assert scaled.shape == (400, 500, 3)
        reference = resize.make("pil", "bilinear", 224).resize(full)
        area = psnr_db(resize.make("opencv", "area", 224).resize(full), reference)
        ours = psnr_db(resize.make("torch", "bilinear", 224).resize(scaled), reference)
        assert ours >= area - 1.0

    @pytest.mark.parametrize("name", ["torch", "pil"])
    def test_size_that_eight_does_not_divide(self, name: str) -> None:
        """1873 px at 1/4 are 468.25 px in an array of 469; taking all squeezes the image."""
        full, scaled = self.decode_twice(1873, 1873, 60)
        assert scaled.shape == (469, 469, 3)
        reference = resize.make("pil", "bilinear", 224).resize(full)
        resizer = resize.make(name, "bilinear", 224)
        exact, squeezed = resizer.resize(scaled, (1873, 1873)), resizer.resize(scaled)
        assert psnr_db(exact, reference) > psnr_db(squeezed, reference) + 3

    def test_another_size_than_listed_is_refused(self) -> None:
        with pytest.raises(ImageError, match="listed with 640 × 480"):
            resize.make("torch", "bilinear", 224).resize(making.picture(300, 300), (480, 640))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_what_is_of_the_right_size_is_sliced(interpolation: str) -> None:
    """The pixels are those of a resize, which would change nothing."""
    preprocess = Preprocess("shortest", (40, 40), (32, 24), interpolation)
    pixels = making.picture(50, 40, seed=1)
    resizer = resize.make("torch", interpolation, preprocess.canvas)
    window = resizer.resize_window(pixels, preprocess.place(40, 50), (40, 50))
    assert np.shares_memory(window, pixels)
    whole = resize.make("torch", interpolation, (40, 50)).resize(pixels)
    np.testing.assert_array_equal(window, whole[4:36, 13:37])
    other = resizer.resize_window(pixels, preprocess.place(79, 99), (79, 99))  # 39.5 of 40 rows
    assert not np.shares_memory(other, pixels)
