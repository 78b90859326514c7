"""Files that once stopped a run: each is one image's failure, or is decoded by all."""

import errno
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

from harness.corpora import folder, image_stats
from harness.corpora import manifest as manifests
from harness.corpora.manifest import Item, Manifest
from harness.engines import pipeline
from harness.engines.loaders import open_loader
from harness.engines.positions import CyclicPositions
from harness.spec import CorpusSpec, Recipe
from tests import making
from wallclock.check import validate
from wallclock.errors import ImageError, image_errors
from wallclock.recipe import Limits, ModelSpec

MODEL = ModelSpec("null", "none", input_px=32)
JPEG = making.jpeg(96, 64)


def odd_sampling() -> bytes:
    """A 4:4:1 JPEG: 4:1:1 with its sides exchanged, which has as many blocks an MCU."""
    data = bytearray(simplejpeg.encode_jpeg(making.picture(96, 64), colorsubsampling="411"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", 96, 64)
    assert data[at + 6] == 0x41
    data[at + 6] = 0x14
    return bytes(data)


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    parts = [b"\x89PNG\r\n\x1a\n"]
    for kind, body in chunks:
        parts.append(struct.pack(">I", len(body)) + kind + body)
        parts.append(struct.pack(">I", zlib.crc32(kind + body)))
    return b"".join(parts)


def ihdr(width: int, height: int) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)


PIXELS = (b"IDAT", zlib.compress(b"\0" + bytes(6)))
#: Pillow reads behind the end of the profile's name: IndexError.
BAD_ICCP = png(ihdr(2, 1), PIXELS, (b"iCCP", b"name\0"), (b"IEND", b""))
COMMENT = b"\xff\xfe\x00\x02"

REFUSED = {
    "icc": (BAD_ICCP, "IndexError"),
    "wide": (png(ihdr(99_999_999, 1), PIXELS, (b"IEND", b"")), "over the limit of 65,535 a side"),
    "tall": (png(ihdr(1, 99_999_999), PIXELS, (b"IEND", b"")), "over the limit of 65,535 a side"),
    "comments": (JPEG[:2] + COMMENT * 20_000 + JPEG[2:], "more JPEG segments"),
    "comments behind the scan": (JPEG[:-2] + COMMENT * 20_000 + JPEG[-2:], "more JPEG segments"),
    "fill bytes": (JPEG[:2] + b"\xff" * 200_000 + JPEG[2:], "junk between"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(name: str) -> None:
    data, reason = REFUSED[name]
    with pytest.raises(ImageError, match=f"^decode: .*{reason}") as caught:
        validate(data, Limits())
    assert " at 0x" not in caught.value.reason


def test_scans_are_limited_by_the_pixels_of_each() -> None:
    limits = Limits(max_work=3_000_000)
    with pytest.raises(ImageError, match=r"in \d\d scans: .* of work, over the limit of 0.003"):
        validate(making.scan_bomb(20, width=400, height=400), limits)
    validate(making.scan_bomb(1, width=400, height=400), limits)


RECIPES = [
    Recipe("serial", "turbojpeg", "opencv", "area", engine="serial"),
    Recipe("dataloader", "simplejpeg", "pil", engine="dataloader", workers=1),
    Recipe("threads", "simplejpeg", "torch", engine="threads", workers=2, dct_scale="auto"),
]


@pytest.fixture
def images(tmp_path: Path) -> Manifest:
    """A folder of two good files, a 4:4:1 JPEG, and all that is refused."""
    root = tmp_path / "images"
    root.mkdir()
    files = {"good.jpg": JPEG, "other.jpg": making.jpeg(64, 64, seed=3), "441.jpg": odd_sampling()}
    files |= {f"refused {name}.jpg": data for name, (data, _) in REFUSED.items()}
    for name, data in files.items():
        (root / name).write_bytes(data)
    spec = CorpusSpec("folder", path=str(root))
    prepared = folder.prepare(spec, None, tmp_path, lambda done, total, what: None)
    return manifests.load(Path(prepared.manifest))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_loader_embeds_the_same_images(images: Manifest, recipe: Recipe) -> None:
    assert [item.id for item in images.valid] == ["441.jpg", "good.jpg", "other.jpg"]
    assert not images.valid[0].plain_jpeg
    with open_loader(images, recipe, MODEL, CyclicPositions(3, 3, 3)) as loader:
        (batch,) = loader
    assert batch.ids == ["441.jpg", "good.jpg", "other.jpg"]
    assert not batch.failures


def test_statistics_of_a_changed_file_list_it(images: Manifest) -> None:
    item = images.valid[1]
    (images.root / item.path).write_bytes(BAD_ICCP.ljust(item.bytes, b"\0"))
    stats = image_stats.measure(images)
    assert [failure["id"] for failure in stats.failures] == ["good.jpg"]
    assert len(stats.values["kb"]) == 2


def test_path_longer_than_the_system_allows(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(JPEG)
    base = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=base)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=base)
        os.close(base)
        base = deeper
    file = os.open("deep.jpg", os.O_CREAT | os.O_WRONLY, dir_fd=base)
    os.write(file, JPEG)
    os.close(file)
    os.close(base)
    spec = CorpusSpec("folder", path=str(tmp_path))
    prepared = folder.prepare(spec, None, tmp_path / "cache", lambda done, total, what: None)
    items = manifests.load(Path(prepared.manifest)).items
    assert [item.id for item in items if item.valid] == ["a.jpg"]
    assert all(item.failed_stage == "read" for item in items if not item.valid)


@pytest.mark.parametrize("error", [KeyError(6), MemoryError(), IndexError("x"), OSError("damaged")])
def test_whatever_a_library_raises_is_the_images(error: Exception) -> None:
    def library(data: bytes) -> None:
        raise error

    with pytest.raises(ImageError, match=r"^decode: lib: ") as caught:
        image_errors("decode", "lib", library)(b"")
    assert caught.value.__cause__ is error


def test_what_concerns_the_machine_ends_the_run() -> None:
    def library(data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        image_errors("decode", "lib", library)(b"")


def test_pillow_passes_its_own_image_to_its_own_resize(images: Manifest) -> None:
    item = Item("a", "a", len(JPEG), 96, 64, format="jpeg", components=3)
    arrays, fused = (
        pipeline.load_stages(Recipe("r", engine=engine), MODEL, images)
        for engine in ("serial", "dataloader")
    )
    assert isinstance(arrays.decode(item, JPEG), np.ndarray)
    image = fused.decode(item, JPEG)
    assert not isinstance(image, np.ndarray)
    expected = arrays.resize(item, arrays.decode(item, JPEG))
    np.testing.assert_array_equal(fused.resize(item, image), expected)
