"""Geometry in the loader: every pixel where Pillow, asked for the same, has it."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

import wallclock
from harness.measures import psnr_db
from tests import making
from wallclock.errors import UserError
from wallclock.preprocess import Preprocess
from wallclock.recipe import FAST

PHOTOS = Path(__file__).parents[4] / "shared" / "images" / "photos"
#: What a decode at reduced scale, and torch's resize in place of Pillow's, may cost.
LEAST_DB = 40.0
GEOMETRIES = (
    "shortest:256,crop:224,bicubic,rotate",  # DINOv2
    "shortest:224,crop:224,bicubic,rotate",  # CLIP
    "shortest:256,crop:224,bilinear,rotate",
    "shortest:230,crop:224,lanczos",
    "squash:224x224,bicubic,rotate",
    "squash:160x320,bilinear",
    "longest:224,crop:224,bicubic,rotate",
    "none,crop:96x128",
)


def by_pillow(data: bytes, preprocess: Preprocess) -> Any:
    """The same in Pillow's own words: no decode at reduced scale, whole picture, then the crop."""
    stored = Image.open(io.BytesIO(data))
    image = (ImageOps.exif_transpose(stored) if preprocess.rotate else stored).convert("RGB")
    rows, columns = preprocess.resized(image.height, image.width)
    resample = Image.Resampling[preprocess.interpolation.upper()]
    if (columns, rows) != image.size:
        image = image.resize((columns, rows), resample)
    height, width = preprocess.canvas
    top, left = (rows - height) // 2, (columns - width) // 2
    # Outside of the picture, `crop` is black.
    return np.asarray(image.crop((left, top, left + width, top + height)))


def load(items: Any, preprocess: str, **options: Any) -> tuple[Any, list[Any]]:
    """All images, and the failures."""
    arrays, failures = [], []
    with wallclock.open_images(items, batch=8, preprocess=preprocess, **options) as batches:
        for batch in batches:
            arrays += list(batch.images.copy())
            failures += batch.failures
    return arrays, failures


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("orientation", [1, 6])
def test_pixels_are_pillows(geometry: str, orientation: int) -> None:
    preprocess = Preprocess.parse(geometry)
    # Of 256 × 227 the crop is made of as many columns as there are.
    sizes = [(640, 480), (480, 640), (333, 1000), (200, 200), (97, 61), (1601, 1203), (256, 227)]
    files = [
        making.oriented(orientation, width=width, height=height, seed=seed, quality=95)
        for seed, (width, height) in enumerate(sizes)
    ]
    arrays, failures = load(files, geometry)
    assert not failures
    for array, data in zip(arrays, files, strict=True):
        expected = by_pillow(data, preprocess)
        assert array.shape == (*preprocess.canvas, 3)
        assert psnr_db(array, expected) >= LEAST_DB


@settings(max_examples=40)
@given(
    width=st.integers(1, 300),
    height=st.integers(1, 300),
    crop=st.tuples(st.integers(1, 80), st.integers(1, 80)),
    edge=st.integers(1, 90),
    resize=st.sampled_from(["shortest", "longest", "none", "squash"]),
    orientation=st.integers(1, 8),
)
def test_pngs_are_exact_in_pillow(
    width: int, height: int, crop: tuple[int, int], edge: int, resize: str, orientation: int
) -> None:
    """With Pillow's resize nothing is left but rounding: no scale, no other library.

    Pillow rounds after each of two passes, one level at most: it chooses their order by the sides,
    which differ in a box, and takes the box in float32. An image on its side has its own order.
    """
    size = (224, 224) if resize == "none" else (edge, edge)
    preprocess = Preprocess(resize, size, crop, "bilinear", rotate=True)
    if max(preprocess.resized(height, width)) > 2000:
        return
    picture = making.picture(width, height, seed=width)
    data = making.encode(picture, "PNG", exif=making.exif(orientation))
    recipe = replace(FAST, decoder="pil", resizer="pil", dct_scale="full")
    with patch("wallclock.loader.loading.FAST", recipe):
        (array,), _ = load([data], str(preprocess), workers=1)
    assert np.abs(array.astype(int) - by_pillow(data, preprocess)).max() <= 2


@settings(max_examples=60)
@given(
    width=st.integers(20, 300),
    height=st.integers(20, 300),
    edge=st.integers(20, 90),
    crop=st.integers(10, 20),
)
def test_torch_is_near_pillow_at_any_size(width: int, height: int, edge: int, crop: int) -> None:
    preprocess = Preprocess("shortest", (edge, edge), (crop, crop), "bicubic")
    data = making.encode(making.picture(width, height, seed=width), "PNG")
    (array,), _ = load([data], str(preprocess), workers=1)
    assert psnr_db(array, by_pillow(data, preprocess)) >= LEAST_DB


@pytest.mark.parametrize("width", range(40, 60, 5))
def test_torch_leaves_no_axis_as_it_is(width: int) -> None:
    """Where it is asked for as many columns as there are, it would not resize them."""
    height = width - 8
    data = making.encode(making.picture(width, height, seed=1), "PNG")
    for edge in range(height + 1, height + 12):
        resized = width * edge // height
        crop = max(1, 2 * width - resized)
        preprocess = Preprocess("shortest", (edge, edge), (crop, crop), "bicubic")
        (array,), _ = load([data], str(preprocess), workers=1)
        assert psnr_db(array, by_pillow(data, preprocess)) >= LEAST_DB


def test_a_border_is_black_in_a_buffer_that_was_used() -> None:
    wide, tall = making.jpeg(300, 100, 1), making.jpeg(100, 300, 2)
    # Of three, so that a row of the batches of eight has now the one kind, now the other.
    arrays, _ = load([wide, tall, wide] * 30, "longest:64,crop:64,bilinear", workers=1)
    for at, array in enumerate(arrays):
        assert (array[:, :20] if at % 3 == 1 else array[:20]).max() == 0


@pytest.mark.skipif(not PHOTOS.is_dir(), reason=f"no folder {PHOTOS.name} of real photos")
def test_photos_pass_the_gate() -> None:
    geometry = "shortest:224,crop:224,bicubic"
    paths = sorted(PHOTOS.glob("*.jp*g"))[::18]
    arrays, failures = load(paths, geometry)
    assert not failures
    for array, path in zip(arrays, paths, strict=True):
        expected = by_pillow(path.read_bytes(), Preprocess.parse(geometry))
        assert psnr_db(array, expected) >= LEAST_DB, path.name


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"preprocess": "shortest:256,crop:224", "size": 256}, "leave out size"),
        ({"preprocess": "shortest:256,crop:224", "augment": True}, "augmentation"),
        ({"preprocess": "shortest", "output": "float32"}, "add crop"),
    ],
)
def test_mistakes_are_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        wallclock.open_images([making.jpeg()], **options)
