"""Synthetic photos: pinned bytes, pure functions, and sizes like those of the real ones."""

import io
from hashlib import sha256

import numpy as np
import pytest
from PIL import Image

from harness.corpora import render
from tests import making

ENCODER = "Pillow 13.0.0 (its wheel's libjpeg-turbo 3.2.0) and numpy 2.4.6"
#: sha256 of `render(0, image_set, index)`
GOLDEN = {
    ("small_256", 0): "f3b9075420e526cc55c8370544e0b8dad1056b1e6e7345a6e0da4d9ccff10844",
    ("small_256", 1): "b88a3c05c26676a49c8877e955d95ef8b473f3c10cac2aa0fd30aa9af1af68c4",
    ("small_256", 2): "5fb9fed4121ea1eb1f731c86693b54736f4a0eb368355b4ed33595a0a485353d",
    ("original", 1): "9e0aec86c37ebf45cc0e80d249dc9bbe1e4653cda6f5abe5a26191580c318652",
}


def decode(data: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """RGB pixels (height, width, 3) of a JPEG file."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def frame_header(data: bytes) -> bytes:
    """The file from its start-of-frame segment (baseline FFC0, progressive FFC2)."""
    return data[making.frame_at(data) :]


@pytest.fixture(scope="module")
def thumbnails() -> list[bytes]:
    return [render.render(0, "small_256", index) for index in range(96)]


@pytest.mark.parametrize(("image_set", "index"), GOLDEN)
def test_bytes_are_pinned(image_set: str, index: int) -> None:
    digest = sha256(render.render(0, image_set, index)).hexdigest()
    assert digest == GOLDEN[image_set, index], (
        f"image {index} of {image_set} differs from that of {ENCODER}. If the generator changed, "
        "or a newer Pillow encodes differently, raise render.GENERATOR and pin the new digests "
        "here. If neither, an operation is not exact"
    )


def test_an_image_depends_on_seed_set_and_index_only(thumbnails: list[bytes]) -> None:
    for index in (40, 7, 40, 0):
        assert render.render(0, "small_256", index) == thumbnails[index]
    assert len({sha256(data).digest() for data in thumbnails}) == len(thumbnails)
    assert render.render(1, "small_256", 0) != thumbnails[0]
    assert render.image_id(1, "small_256", 0) != render.image_id(0, "small_256", 0)
    assert render.image_id(0, "original", 0) != render.image_id(0, "small_256", 0)


def test_ids_are_unique_and_spread_evenly() -> None:
    indices = [*range(10_000), *range(999_000, 1_000_000), *range(2**32 - 1_000, 2**32)]
    ids = [render.image_id(0, "original", index) for index in indices]
    assert len(set(ids)) == len(ids)
    assert all(len(name) == 8 and int(name, 16) < 2**32 for name in ids)
    counts = np.bincount([int(name[:2], 16) for name in ids[:10_000]], minlength=256)
    assert 10 < counts.min() <= counts.max() < 80


def test_originals_have_the_sizes_of_abo() -> None:
    sizes = np.array([render.size(0, "original", index) for index in range(2_000)])
    longest, shortest = sizes.max(axis=1), sizes.min(axis=1)
    p5, p25, median = np.percentile(longest, [5, 25, 50])
    assert 900 <= p5 <= 1100
    assert 1940 <= p25 <= 2060
    assert median == longest.max() == 2560
    assert longest.min() >= 500
    assert 0.5 < np.mean(longest == shortest) < 0.6
    slivers = shortest / longest < 0.495
    assert 0 < np.mean(slivers) < 0.03
    assert 0.4 < np.mean(sizes[longest != shortest, 0] < sizes[longest != shortest, 1]) < 0.6


def test_size_and_420_sampling(thumbnails: list[bytes]) -> None:
    sliver = next(i for i in range(5_000) if min(render.size(0, "small_256", i)) < 60)
    files = dict(enumerate(thumbnails))
    files[sliver] = render.render(0, "small_256", sliver)
    for index, data in files.items():
        header = frame_header(data)
        assert (header[11], header[14], header[17]) == (0x22, 0x11, 0x11)
        wide, high = render.size(0, "small_256", index)
        assert decode(data).shape == (high, wide, 3)


def test_progressive_share_changes_no_pixel(thumbnails: list[bytes]) -> None:
    for index in range(8):
        progressive = render.render(0, "small_256", index, progressive_share=1.0)
        assert frame_header(thumbnails[index])[1] == 0xC0
        assert frame_header(progressive)[1] == 0xC2
        np.testing.assert_array_equal(decode(progressive), decode(thumbnails[index]))
    half = [frame_header(render.render(0, "small_256", i, 0.5))[1] for i in range(96)]
    assert 30 < half.count(0xC2) < 66
