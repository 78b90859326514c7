"""Grey, RGBA, and images of their own sizes: Pillow's pixels, and who keeps their memory."""

import gc
import io
import random
import weakref
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

import wallclock
from harness.measures import psnr_db
from tests import making
from tests.test_fuzz import mutate
from wallclock.errors import UserError
from wallclock.loader.images import open_images
from wallclock.loader.output import Output, Workers
from wallclock.recipe import Limits, Recipe
from wallclock.stages import decode
from wallclock.stages.augment import Augment

#: What a decode at reduced scale, and torch's resize in place of Pillow's, may cost.
LEAST_DB = 40.0
PILLOW = Recipe("pil", decoder="pil", resizer="pil", dct_scale="full")
#: Of each kind of pixels one file.
KINDS = {
    "RGB": making.jpeg(160, 120, 1, quality=95),
    "grey JPEG": making.jpeg(160, 120, 2, "L", quality=95),
    "CMYK JPEG": making.jpeg(160, 120, 3, "CMYK"),
    "PNG": making.encode(making.picture(150, 130, 4), "PNG"),
    "palette": making.encode(making.picture(150, 130, 5), "PNG", "P"),
    "1 bit": making.encode(making.picture(150, 130, 6), "PNG", "1"),
    "16 bit": making.png_16_bit(160, 90),
}


def transparent(width: int = 60, height: int = 50, kind: str = "PNG", **options: Any) -> bytes:
    """Red that is visible beside green that is not."""
    pixels = np.zeros((height, width, 4), np.uint8)
    pixels[:, : width // 2] = 255, 0, 0, 255
    pixels[:, width // 2 :] = 0, 255, 0, 0
    return making.encode(pixels, kind, **options)


def load(items: Any, size: Any = None, **options: Any) -> Any:
    """The images of the only batch."""
    with open_images(items, size, 64, **options) as batches:
        (batch,) = batches
    assert not batch.failures
    return batch.images


def by_pillow(data: bytes, mode: str, size: tuple[int, int]) -> Any:
    """As everyone has it: converted, then resized. 16 bits clip in Pillow: see the policy."""
    image: Image.Image = Image.open(io.BytesIO(data))
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    resized = image.convert(mode).resize(size[::-1], Image.Resampling.BILINEAR)
    return np.asarray(resized).reshape(*size, -1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_pixels_are_pillows(mode: str, kind: str) -> None:
    data, size = KINDS[kind], (30, 40)
    (image,) = load([data], size, output=mode)
    expected = by_pillow(data, mode, size)
    assert (image.shape, image.dtype) == (expected.shape, np.uint8)
    assert psnr_db(image, expected) >= LEAST_DB
    with patch("wallclock.loader.loading.FAST", PILLOW):
        (exact,) = load([data], size, output=mode, workers=1)
    np.testing.assert_array_equal(exact, expected)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
@pytest.mark.parametrize("preprocess", ["squash", "shortest:20,crop:12x16,bicubic"])
def test_hidden_colours_do_not_show(kind: str, preprocess: str) -> None:
    """At an edge of alpha a plain average would be half green; Pillow's is red."""
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    data = transparent(kind=kind, **options)
    (image,) = load(
        [data], (13, 15) if preprocess == "squash" else None, output="RGBA", preprocess=preprocess
    )
    assert len(np.unique(image[..., 3])) > 2
    visible = image[image[..., 3] > 0]
    assert visible[:, 1].max() == 0
    assert visible[:, 0].min() >= 250
    (flat,) = load([data], (13, 15), output="RGB")
    assert flat[..., 1].max() == 255, "without alpha, stored colours are shown"


def test_a_border_is_transparent() -> None:
    (image,) = load([making.jpeg(100, 50)], output="RGBA", preprocess="longest:40,crop:40")
    assert image[:10].max() == 0
    assert (image[10:30, :, 3] == 255).all()


@settings(max_examples=25)
@given(
    width=st.integers(8, 400),
    height=st.integers(8, 400),
    side=st.integers(8, 40),
    subsampling=st.sampled_from([0, 1, 2]),
    progressive=st.booleans(),
)
def test_grey_is_the_luma_at_every_scale(
    width: int, height: int, side: int, subsampling: int, progressive: bool
) -> None:
    options: dict[str, Any] = {
        "subsampling": subsampling,
        "progressive": progressive,
        "quality": 95,
    }
    data = making.encode(making.picture(width, height, width), "JPEG", **options)
    (image,) = load([data], side, output="L", workers=1)
    # Of so few pixels, a rounded one weighs more than in an image of 224 px.
    assert psnr_db(image, by_pillow(data, "L", (side, side))) >= LEAST_DB - 4


def test_grey_of_a_jpeg_without_luma() -> None:
    """Stored as RGB: the library weights the colours as Pillow does."""
    data = making.encode(making.picture(80, 60, 7), "JPEG", keep_rgb=True, quality=95)
    (image,) = load([data], (60, 80), output="L")
    np.testing.assert_array_equal(image, by_pillow(data, "L", (60, 80)))


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_floats_of_each_channel(mode: str) -> None:
    n = decode.MODES[mode]
    mean, std = tuple(0.1 * at for at in range(n)), tuple(1 + at for at in range(n))
    output = Output("float32", channels=mode, mean=mean, std=std)
    data = [KINDS["RGB"], transparent()]
    pixels = load(data, 16, output=mode).astype(np.float32)
    expected = (pixels / 255 - np.array(mean, np.float32)) / np.array(std, np.float32)
    floats = load(data, 16, output=output)
    assert floats.shape == (2, n, 16, 16)
    np.testing.assert_allclose(floats, expected.transpose(0, 3, 1, 2), atol=1e-6)


@pytest.mark.parametrize("mode", ["L", "RGBA"])
@pytest.mark.parametrize("crew", [Workers(2), Workers(2, processes=2)])
def test_crops_and_flips_of_each_channel(mode: str, crew: Workers) -> None:
    """The same as of RGB, where that is opaque."""
    files = [making.jpeg(200, 150, seed, quality=95) for seed in range(8)]
    augment = Augment(jitter=0)
    images = load(files, 32, output=mode, augment=augment, workers=crew)
    colours = load(files, 32, augment=augment)
    for image, pixels in zip(images, colours, strict=True):
        expected = np.asarray(Image.fromarray(pixels).convert(mode)).reshape(image.shape)
        assert psnr_db(image, expected) >= LEAST_DB


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"output": "LA"}, "no output is called 'LA'"),
        ({"output": "L", "augment": True}, "jitter is of RGB; set augment=Augment.jitter=0"),
        ({"output": "L,float32"}, r"give mean and std with 1 each, as in .*mean=\(0.5,\)"),
        ({"output": "RGBA,float16"}, r"with 4 each, as in .*mean=\(0.5, 0.5, 0.5, 0.5\)"),
        ({"output": "float32", "preprocess": "original"}, "=float32 needs one size: add crop"),
        ({"preprocess": "original", "size": 8}, "makes each image's own size; leave out size"),
        ({"preprocess": "original", "augment": True}, "goes without augmentation"),
        ({"preprocess": "original", "workers": Workers(2, processes=2)}, "needs processes=1"),
    ],
)
def test_mistakes_are_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        open_images([KINDS["RGB"]], **options)


def test_other_geometries_are_of_one_image() -> None:
    for call in (wallclock.decode, lambda data, **options: wallclock.loader_for(**options)):
        with pytest.raises(UserError, match="add crop:HEIGHTxWIDTH"):
            call(KINDS["RGB"], preprocess="original")


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's, of damaged metadata
def test_damage_is_noticed_in_every_mode() -> None:
    """Where colour is not computed, what codes it is read all the same."""
    rng = random.Random(5)
    files = [making.jpeg(160, 120, 1, progressive=progressive) for progressive in (False, True)]
    cut = [data[: len(data) * at // 12] for data in files for at in range(6, 12)]
    damaged = cut + [mutate(rng.choice(files), rng, files) for _ in range(60)]
    failures = []
    for mode in decode.MODES:
        with open_images(damaged, 16, 100, output=mode) as batches:
            (batch,) = batches
        failures.append(batch.failures)
    assert {str(at) for at in range(len(cut))} <= {row["id"] for row in failures[0]}
    assert len(failures[0]) < len(damaged)
    assert failures[0] == failures[1] == failures[2]


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("rotate", [False, True])
def test_originals_are_pillows_to_the_bit(mode: str, rotate: bool) -> None:
    """But for the luma of a JPEG, which Pillow rounds by way of RGB."""
    files = [
        *(making.oriented(at, width=40 + at, height=30, quality=95) for at in range(1, 9)),
        *KINDS.values(),
        transparent(),
    ]
    words = "original,rotate" if rotate else "original"
    images = load(files, output=mode, preprocess=words)
    assert isinstance(images, list)
    for image, data in zip(images, files, strict=True):
        stored = Image.open(io.BytesIO(data))
        upright = ImageOps.exif_transpose(stored) if rotate else stored
        height, width = upright.height, upright.width
        assert image.shape == (height, width, decode.MODES[mode])
        assert image.flags.c_contiguous
        assert image.flags.writeable
        if stored.mode.startswith("I"):
            continue
        expected = np.asarray(upright.convert(mode)).reshape(image.shape)
        if mode == "L" and stored.format == "JPEG":
            assert psnr_db(image, expected) >= 45
        else:
            np.testing.assert_array_equal(image, expected)


@pytest.mark.parametrize("words", ["shortest:20", "longest:20,bicubic,rotate"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_in_proportion(words: str, orientation: int) -> None:
    """A resize without a crop: as the same with Pillow."""
    data = making.oriented(orientation, width=200, height=120, quality=95)
    (image,) = load([data], preprocess=words)
    preprocess = wallclock.Preprocess.parse(words, sizes_differ=True)
    stored = Image.open(io.BytesIO(data)).convert("RGB")
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data))) if preprocess.rotate else stored
    rows, columns = preprocess.resized(upright.height, upright.width)
    resample = Image.Resampling[preprocess.interpolation.upper()]
    expected = np.asarray(upright.convert("RGB").resize((columns, rows), resample))
    assert image.shape == expected.shape
    assert psnr_db(image, expected) >= LEAST_DB


def test_what_would_become_too_large_has_failed() -> None:
    strip = making.encode(making.picture(2000, 2), "PNG")
    limits = Limits(max_pixels=1_000_000)
    options: dict[str, Any] = {"preprocess": "shortest:100", "workers": Workers(1, limits=limits)}
    with open_images([strip, KINDS["PNG"]], batch=2, **options) as batches:
        (batch,) = batches
    assert [image.shape for image in batch.images] == [(100, 115, 3)]
    assert batch.failures == [
        {
            "id": "0",
            "stage": "resize",
            "reason": "it would become 100000 × 100, over the limit of 1,000,000 pixels",
        }
    ]


def test_lists_are_the_consumers_and_few_are_made_ahead() -> None:
    """The loader itself keeps no image that was delivered; of others, some batches' worth."""
    files = [making.jpeg(30 + seed, 20, seed) for seed in range(60)]
    with open_images(files, batch=4, preprocess="original", workers=2) as batches:
        batch = next(batches)
        gone = [weakref.ref(image) for image in batch.images]
        kept = batch.images[0]
        del batch
        gc.collect()
        assert [reference() is not None for reference in gone] == [True, False, False, False]
        loader: Any = batches._loader
        assert len(loader._ring.buffers) == 6, "two threads with 8 images each, and two batches"
        kept_images = [kept, *(image for batch in batches for image in batch.images)]
    assert [image.shape[1] for image in kept_images] == [30, *range(34, 90)]
    np.testing.assert_array_equal(kept_images[0], load(files[:1], preprocess="original")[0])


def test_lists_of_tensors_with_failures_between() -> None:
    files = [making.jpeg(30 + seed, 20, seed) for seed in range(20)]
    files[3] = files[3][:100]
    with open_images(files, batch=20, preprocess="original", output="torch") as batches:
        (batch,) = batches
    assert [row["id"] for row in batch.failures] == ["3"]
    assert [tuple(image.shape) for image in batch.images] == [
        (20, 30 + int(name), 3) for name in batch.ids
    ]
    assert {image.dtype for image in batch.images} == {torch.uint8}
