"""The plain loop's images: Pillow in full, of what the loader would decode."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests import making
from wallclock import embed
from wallclock.errors import ImageError
from wallclock.job.reference import Reference
from wallclock.job.verify import verify
from wallclock.recipe import Limits, ModelSpec

#: Segments of 64 KB: Pillow copies all that it has for each.
N_SEGMENTS = 750
UPRIGHT, STORED = "shortest:256,crop:224,rotate", "squash"
NULL = ModelSpec("null", "none", input_px=224)


def reference(preprocess: str, **limits: Any) -> Reference:
    return Reference(NULL, preprocess, Limits(**limits), is_auto=False)


def exif_bomb(orientation: int, seed: int = 0) -> bytes:
    """A JPEG whose EXIF goes on for 750 segments, the first of which says how it lies."""
    data = making.oriented(orientation, width=300, height=200, seed=seed, quality=95)
    at = data.index(b"\xff\xe1") + 2
    end = at + int.from_bytes(data[at : at + 2], "big")
    body = b"Exif\0\0" + bytes(65_000)
    segment = b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body
    return data[:end] + segment * N_SEGMENTS + data[end:]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each file that Pillow opens."""
    lengths, real = list[int](), Image.open

    def noting(file: io.BytesIO, *words: Any, **options: Any) -> Any:
        lengths.append(len(file.getvalue()))
        return real(file, *words, **options)

    monkeypatch.setattr(Image, "open", noting)
    return lengths


@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
def test_metadata_of_megabytes_is_cut_out(orientation: int, opened: list[int]) -> None:
    """Pillow's time would grow with the square of the segments. The picture is turned as before."""
    plain = making.oriented(orientation, width=300, height=200, seed=0, quality=95)
    for geometry in (UPRIGHT, STORED):
        image = reference(geometry).open(exif_bomb(orientation))
        np.testing.assert_array_equal(image, reference(geometry).open(plain))
    assert max(opened) < 100_000


def turned(kind: str) -> Callable[[int], bytes]:
    def make(orientation: int) -> bytes:
        exif = Image.Exif()
        exif[0x0112] = orientation
        return making.encode(making.picture(30, 20, seed=1), kind, exif=exif)

    return make


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", [1, 2, 6, 8])
def test_upright_where_the_geometry_says_so(kind: str, orientation: int) -> None:
    """Pillow itself turns a TIFF."""
    data, upright = turned(kind)(orientation), turned(kind)(1)
    stored = np.asarray(reference(STORED).open(data))
    np.testing.assert_array_equal(stored, reference(STORED).open(upright))
    plain = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    np.testing.assert_array_equal(reference(UPRIGHT).open(data), plain)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (making.claiming(making.jpeg(progressive=True), 20_000, 20_000), "over the limit of 100,0"),
        (making.arithmetic(16_383, 5_000, 10), "s of work, over the limit"),
        (making.jpeg()[:2] + b"\xff\xfe\0\2" * 10_001 + making.jpeg()[2:], "more JPEG segments"),
        (b"no image", "not a JPEG, PNG"),
    ],
)
def test_what_the_loader_refuses_is_not_opened(data: bytes, reason: str, opened: list[int]) -> None:
    with pytest.raises(ImageError, match=reason):
        reference(STORED).open(data)
    assert opened == []


def test_the_limits_are_those_of_the_job() -> None:
    assert reference(STORED, max_pixels=64 * 48).open(making.jpeg(64, 48)).size == (64, 48)
    with pytest.raises(ImageError, match="over the limit of 3,071"):
        reference(STORED, max_pixels=64 * 48 - 1).open(making.jpeg(64, 48))


def test_verify_of_files_that_hold_or_became_bombs(tmp_path: Path) -> None:
    """And of what embed takes as well: EXIF that cannot be written anew, an empty JFIF segment."""
    (tmp_path / "in").mkdir()
    plain = making.jpeg(64, 48)
    tags = struct.pack("<HHIHH", 0x112, 3, 1, 6, 0) + struct.pack("<HHI4s", 340, 1, 3, bytes(4))
    body = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + tags + bytes(4)
    odd = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + plain[2:]
    empty = plain[:2] + b"\xff\xe0\0\7JFIF\0" + plain[20:]
    for name, data in {"odd": odd, "empty": empty}.items():
        (tmp_path / "in" / f"{name}.jpg").write_bytes(data)
    for seed in range(3):
        data = making.oriented(6, width=300, height=200, seed=seed, quality=95)
        (tmp_path / "in" / f"{seed}.jpg").write_bytes(exif_bomb(6, seed) if seed == 2 else data)
    values: dict[str, Any] = {"model": "null", "preprocess": UPRIGHT}
    embed(tmp_path / "in", tmp_path / "out", recipe="pillow", device="cpu", **values)
    (tmp_path / "in" / "0.jpg").write_bytes(making.arithmetic(16_383, 5_000, 10))
    verdict = verify(tmp_path / "out")
    assert (verdict.compared, verdict.changed, verdict.faults) == (4, 1, ())
