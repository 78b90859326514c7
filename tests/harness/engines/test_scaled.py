"""Peers with this suite's own libraries: what they resize is what they say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.engines.third_party import LOADERS, dataloader_scaled, thread_pool_crop
from harness.engines.third_party._interface import LoaderSpec
from harness.measures import psnr_db
from harness.protocols.fidelity import resize_whole
from tests import making
from wallclock.stages.decode import PixelArray

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

PX = 64


def texture(width: int, height: int) -> PixelArray:
    """Waves of some pixels: what is stretched by a part of a pixel differs all over."""
    x, y = np.arange(width)[None, :, None], np.arange(height)[:, None, None]
    waves = np.sin(x / 9) + np.sin(y / 11) + np.zeros(3)
    return (127 + 60 * waves).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JPEG that is 116.25 px wide and 88.25 px high at 1/4."""
    path = tmp_path_factory.mktemp("scaled") / "0.jpg"
    path.write_bytes(making.encode(texture(465, 353), quality=95, subsampling=0))
    return path


def distance_db(picture: Path, variant: str) -> float:
    """PSNR of a variant's picture, against Pillow's."""
    row = np.empty((PX, PX, 3), np.uint8)
    dataloader_scaled.load_function(PX, variant)(picture.read_bytes(), row)
    with Image.open(picture) as image:
        truth = np.asarray(image.resize((PX, PX), Image.Resampling.BILINEAR))
    return psnr_db(row, truth)


def test_the_exact_extent_is_what_keeps_a_picture_faithful(picture: Path) -> None:
    exact, stretched = distance_db(picture, "exact"), distance_db(picture, "interpolate")
    assert exact > 40
    assert exact > stretched + 3
    assert distance_db(picture, "exact 1") == pytest.approx(exact, abs=0.01), "1/4 for both"


def test_a_buffer_is_used_again_for_images_of_all_sizes(picture: Path) -> None:
    load = dataloader_scaled.load_function(PX, "exact")
    small = making.jpeg(80, 70, seed=1)
    rows = np.empty((3, PX, PX, 3), np.uint8)
    for row, data in zip(rows, (picture.read_bytes(), small, picture.read_bytes()), strict=True):
        load(data, row)
    np.testing.assert_array_equal(rows[0], rows[2])
    assert psnr_db(rows[0], rows[1]) < 30


@pytest.mark.parametrize("variant", dataloader_scaled.VARIANTS)
def test_processes_and_threads_make_the_same_pictures(picture: Path, variant: str) -> None:
    batches: dict[str, Any] = {}
    for name in ("dataloader-scaled", "thread-pool"):
        with LOADERS[name].open(LoaderSpec([str(picture)], PX, 2, 2, variant)) as stream:
            positions, images = next(stream.batches)
            batches[name] = np.array(images)
            assert list(positions) == [0, 0]
            assert stream.version.startswith("simplejpeg 1")
            assert ("exact extent" in stream.settings) == variant.startswith("exact")
    np.testing.assert_array_equal(*batches.values())


@pytest.mark.parametrize("variant", LOADERS["thread-pool-crop"].variants)
def test_a_pool_slices_what_needs_no_resize(tmp_path: Path, variant: str) -> None:
    sizes = {"right": (90, thread_pool_crop.geometry(PX).size[0]), "larger": (200, 146)}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(making.encode(texture(*size), quality=95, subsampling=0))
    spec = LoaderSpec([str(tmp_path / name) for name in sizes], PX, 2, 2, variant)
    with LOADERS["thread-pool-crop"].open(spec) as stream:
        right, larger = next(stream.batches)[1]
    for name, made, least in (("right", right, 60), ("larger", larger, 40)):
        with Image.open(tmp_path / name) as image:
            whole = np.asarray(image.convert("RGB"))
        geometry = thread_pool_crop.geometry(PX)
        truth = resize_whole(whole, geometry, "pil", geometry.interpolation)
        assert psnr_db(made, truth) > least


def test_an_error_in_the_pool_reaches_the_loop(tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(b"no JPEG")
    with (
        LOADERS["thread-pool"].open(
            LoaderSpec([str(tmp_path / "0.jpg")], PX, 2, 2, "exact")
        ) as stream,
        pytest.raises(ValueError, match="JPEG"),
    ):
        next(stream.batches)
