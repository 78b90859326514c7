"""Resizing, normalizing and augmenting: against Pillow, float64 arithmetic and torchvision."""

import math
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from experiments.train.measure import augment_on_device
from harness.engines import pipeline
from harness.engines.loaders import open_loader, to_pixels
from harness.engines.positions import CyclicPositions
from harness.measures import psnr_db
from harness.spec import Recipe
from tests import making
from tests.harness.engines.conftest import MODEL, manifest_in
from wallclock.check import Inspector
from wallclock.errors import ImageError, UserError
from wallclock.loader.loading import Loading
from wallclock.loader.prepare import DecodeImage
from wallclock.preprocess import Preprocess, denominator_for
from wallclock.recipe import IMAGENET, INTERPOLATIONS, Limits
from wallclock.stages import augment, decode, normalize, resize
from wallclock.stages.augment import Augmentation
from wallclock.stages.pixels import PixelArray

CHOICES = [(name, choice) for name, choices in INTERPOLATIONS.items() for choice in choices]
each_choice = pytest.mark.parametrize(("name", "interpolation"), CHOICES)


def noisy(width: int, height: int, amplitude: int) -> PixelArray:
    """A photo-like image with fine texture."""
    noise = np.random.default_rng(0).integers(-amplitude, amplitude, (height, width, 3))
    return np.clip(making.picture(width, height).astype(int) + noise, 0, 255).astype(np.uint8)


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
    with pytest.raises(UserError, match=message):
        resize.make(name, interpolation, 224)


class TestScaled:
    """Images that were decoded to 1/n."""

    def decode_twice(self, width: int, height: int, amplitude: int) -> tuple[Any, Any]:
        """In full and scaled for 224 px."""
        data = making.encode(noisy(width, height, amplitude), quality=92)
        scale = denominator_for(height, width, 280, 280)
        return decode.make("simplejpeg")(data), decode.make("simplejpeg", scales=True)(data, scale)

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


IMAGES = hnp.arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 12), st.just(3)))
to_float_chw = normalize.make(*IMAGENET)


def oracle(pixels: PixelArray) -> Any:
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return ((pixels.astype(np.float64) / 255 - mean) / std).transpose(2, 0, 1)


@given(IMAGES)
def test_against_float64(pixels: PixelArray) -> None:
    before = pixels.copy()
    floats = to_float_chw(pixels)
    assert floats.dtype == np.float32
    assert floats.flags.c_contiguous
    assert floats.shape == (3, *pixels.shape[:2])
    np.testing.assert_allclose(floats, oracle(pixels), rtol=0, atol=2e-6)
    np.testing.assert_array_equal(pixels, before)


def test_every_level_of_every_channel() -> None:
    levels = np.arange(256, dtype=np.uint8)[:, None, None].repeat(3, axis=2)
    np.testing.assert_allclose(to_float_chw(levels), oracle(levels), rtol=0, atol=2e-6)


@given(IMAGES, st.sampled_from([np.float32, np.float16, np.uint16]))
def test_looked_up_values_are_the_computed_ones(pixels: PixelArray, dtype: Any) -> None:
    computed = np.empty((3, *pixels.shape[:2]), dtype)
    normalize.store(to_float_chw(pixels), computed)
    looked_up = np.zeros_like(computed)
    normalize.make_lookup(*IMAGENET)(pixels, looked_up)
    np.testing.assert_array_equal(looked_up, computed)


def test_lookup_of_one_channel_and_of_a_view() -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)[::-1, ::2, :1]
    row = np.empty((1, 4, 2), np.float32)
    normalize.make_lookup((0.5,), (0.25,))(pixels, row)
    np.testing.assert_array_equal(row, normalize.make((0.5,), (0.25,))(pixels))


SIDES = st.integers(1, 4000)


def torchvision_box(width: int, height: int, rng: Random) -> tuple[int, int, int, int]:
    """`RandomResizedCrop.get_params` of torchvision, by its lines, as (left, top, w, h)."""
    area, log_ratio = height * width, (math.log(3 / 4), math.log(4 / 3))
    for _ in range(10):
        target_area = area * rng.uniform(0.08, 1.0)
        aspect_ratio = math.exp(rng.uniform(*log_ratio))
        w = round(math.sqrt(target_area * aspect_ratio))
        h = round(math.sqrt(target_area / aspect_ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    in_ratio = float(width) / float(height)
    if in_ratio < 3 / 4:
        w, h = width, round(width / (3 / 4))
    elif in_ratio > 4 / 3:
        w, h = round(height * (4 / 3)), height
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h


@given(width=SIDES, height=SIDES, seed=st.integers(0, 1000))
def test_crop_is_torchvisions(width: int, height: int, seed: int) -> None:
    box = augment.draw_box(width, height, Random(seed))
    assert box == torchvision_box(width, height, Random(seed))
    left, top, w, h = box
    assert 0 <= left <= width - w < width
    assert 0 <= top <= height - h < height


def test_distribution_over_images_and_epochs() -> None:
    drawn = [augment.draw(400, 400, 7, epoch, index) for epoch in range(40) for index in range(50)]
    assert len(set(drawn)) == 2000
    flips, *factors = np.array([augmentation[4:8] for augmentation in drawn]).T
    assert 0.45 < flips.mean() < 0.55
    for factor in factors:
        assert abs(factor.mean() - 1) < 0.02
        assert (factor.min() > 0.6) & (factor.max() < 1.4) & (factor.std() > 0.2)
    ratios = np.array([crop.width / crop.height for crop in drawn])
    assert abs(np.log(ratios).mean()) < 0.02
    areas = np.array([crop.width * crop.height for crop in drawn])
    # Uniform from 0.08 to 1, but for boxes of large area that do not fit and are drawn again.
    assert 0.08 * 0.95 < areas.min() < 0.1
    assert 0.45 < areas.mean() < 0.54


def test_worker_and_device_make_the_same_picture(photos: list[Path]) -> None:
    size, canvas = 224, augment.CANVAS_PX
    pixels = np.stack(
        [
            np.asarray(Image.open(path).convert("RGB").resize((canvas, canvas)))
            for path in photos[:8]
        ]
    )
    drawn = [augment.draw(canvas, canvas, 0, 0, index) for index in range(len(pixels))]
    assert {augmentation.flip for augmentation in drawn} == {True, False}
    device = augment_on_device(size, "cpu")(torch.from_numpy(pixels), drawn).numpy()
    # Without antialiasing, as the device; with it, where the crop is smaller than the result.
    resizer, antialiased = (
        resize.make(name, how, size) for name, how in (("opencv", "linear"), ("torch", "bilinear"))
    )
    for picture, augmentation, image in zip(pixels, drawn, device, strict=True):
        crop = augment.crop(picture, augmentation)
        worker = augment.finish(resizer.resize(crop), augmentation)
        difference = np.abs(worker - image)
        assert (difference.max(), difference.mean()) < (4, 0.6)
        smooth = augment.finish(antialiased.resize(crop), augmentation)
        assert np.abs(smooth - image).mean() < 3


def test_jitter_by_hand() -> None:
    """Brightness, contrast, then saturation, in floats."""
    pixels = making.picture(20, 10).astype(np.uint8)
    jitter = Augmentation(0, 0, 1, 1, flip=True, brightness=0.8, contrast=1.3, saturation=0.6)
    grey = np.array([0.299, 0.587, 0.114])
    values = pixels[:, ::-1].astype(float) * 0.8
    values = 1.3 * values - 0.3 * (values @ grey).mean()
    values = 0.6 * values + 0.4 * (values @ grey)[..., None]
    assert np.abs(augment.finish(pixels, jitter) - np.clip(values, 0, 255)).max() <= 1


def test_a_small_crop_is_decoded_at_a_larger_scale() -> None:
    data, limits = making.jpeg(1600, 1200), Limits()
    recipe = Recipe("x", "simplejpeg", dct_scale="auto", dct_margin=1.0)
    decode_image = DecodeImage(replace(Loading.of(recipe, 100), crops=True))
    uncropped = Inspector(limits, "simplejpeg")(0, "a", data)
    assert decode_image(uncropped, data).shape[:2] == (150, 200)
    crop = Augmentation(0, 0, 0.25, 0.25, flip=False, brightness=1, contrast=1, saturation=1)
    cropped = Inspector(limits, "simplejpeg", draw=lambda *image: crop)(0, "a", data)
    shape = decode_image(cropped, data).shape[:2]
    assert shape == (600, 800), "of 400 x 300 px, 200 x 150 suffice"


ENGINES = {
    "serial": Recipe("x", augment="cpu", normalize_on="device"),
    "dataloader": Recipe("x", engine="dataloader", workers=2, augment="cpu", normalize_on="device"),
    "threads": Recipe("x", engine="threads", workers=3, augment="cpu", normalize_on="device"),
}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_pictures_depend_on_neither_engine_nor_batches(tmp_path: Path) -> None:
    manifest, seen = manifest_in(tmp_path, 5), []
    for size, recipe in zip((3, 5, 2), ENGINES.values(), strict=True):
        images: list[np.ndarray] = []
        with open_loader(manifest, recipe, MODEL, CyclicPositions(100, size, 10)) as loader:
            for batch in loader:
                assert len(batch.extras.augmentations) == len(batch.ids)
                images += list(to_pixels(batch.images, MODEL.statistics).copy())
        seen.append(np.stack(images))
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0], seen[2])
    assert any((seen[0][i] != seen[0][i + 5]).any() for i in range(5)), "another epoch"


def test_for_the_device_images_arrive_whole(tmp_path: Path) -> None:
    manifest = manifest_in(tmp_path, 3)
    recipe = Recipe("x", engine="threads", augment="device", normalize_on="device")
    with open_loader(manifest, recipe, MODEL, [[3, 1]]) as loader:
        batch = next(loader)
    assert batch.images.shape == (2, augment.CANVAS_PX, augment.CANVAS_PX, 3)
    drawn = [augment.draw(16, 12, MODEL.seed, epoch, index) for epoch, index in ((1, 0), (0, 1))]
    assert list(batch.extras.augmentations) == drawn


def test_vectors_of_augmented_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="training augments"):
        pipeline.device_stages(ENGINES["serial"], MODEL, tmp_path)
