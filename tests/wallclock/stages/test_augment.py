"""Augmentation: torchvision's crop, one picture from both places, and seeds of the images' own."""

import math
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from experiments.train.measure import augment_on_device
from harness.engines import pipeline
from harness.engines.loaders import open_loader, to_pixels
from harness.engines.positions import CyclicPositions
from harness.spec import Recipe
from tests import making
from tests.harness.engines.conftest import MODEL, manifest_in
from wallclock.check import Inspector
from wallclock.errors import UserError
from wallclock.loader.loading import Loading
from wallclock.loader.prepare import DecodeImage
from wallclock.recipe import Limits
from wallclock.stages import augment, resize
from wallclock.stages.augment import Augmentation

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


def test_narrow_image_gets_the_central_crop() -> None:
    assert augment.draw_box(4000, 30, Random(0)) == (1980, 0, 40, 30)
    assert augment.draw_box(30, 4000, Random(0)) == (0, 1980, 30, 40)


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


def test_seeds_are_of_run_epoch_and_image() -> None:
    first = augment.draw(640, 480, 1, 2, 3)
    assert first == augment.draw(640, 480, 1, 2, 3)
    others = [augment.draw(640, 480, *seeds) for seeds in ((0, 2, 3), (1, 3, 3), (1, 2, 4))]
    assert first not in others


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
