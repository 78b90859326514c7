"""The C side of `benchmarks.ceiling`: the same pixels, and damage is named."""

import platform
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import ceiling
from benchmarks._common import PX
from harness.measures import psnr_db
from tests import making
from wallclock import open_images

#: Scales 1 to 1/8, sides that no scale divides, enlarged, extreme ratios, one pixel.
SIZES = ((256, 256), (257, 300), (1873, 1249), (2300, 2500), (40, 30), (1200, 9), (9, 1201), (1, 1))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ceiling.Ceiling:
    try:
        return ceiling.compile_ceiling(tmp_path_factory.mktemp("ceiling"))
    except ceiling.NoCeilingError as error:
        pytest.skip(str(error))


def test_it_does_the_same_arithmetic(compiled: ceiling.Ceiling, tmp_path: Path) -> None:
    paths = [tmp_path / f"{width}x{height}.jpg" for width, height in SIZES]
    for seed, (path, size) in enumerate(zip(paths, SIZES, strict=True)):
        path.write_bytes(making.jpeg(*size, seed, quality=95))
    with open_images(paths, PX, workers=1) as batches:
        (batch,) = batches
    pixels = compiled.pixels(paths, tmp_path / "pixels")
    assert pixels.shape == batch.images.shape
    for path, theirs, ours in zip(paths, pixels, batch.images, strict=True):
        assert psnr_db(theirs, ours) >= 50, path
    for threads in (1, 2):
        assert compiled.cpu_us(paths, threads, 3) > 0


def test_an_image_that_it_cannot_take_is_named(compiled: ceiling.Ceiling, tmp_path: Path) -> None:
    path = tmp_path / "cut.jpg"
    path.write_bytes(making.jpeg(300, 200)[:-500])
    for gone in (path, tmp_path / "none.jpg"):
        with pytest.raises(ceiling.NoCeilingError, match=gone.name):
            compiled.cpu_us([gone], 1, 1)
    with pytest.raises(ceiling.NoCeilingError, match="standard input is empty"):
        compiled.cpu_us([], 1, 1)


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    with pytest.raises(ceiling.NoCeilingError, match="no C compiler"):
        ceiling.compile_ceiling(tmp_path)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(ceiling.NoCeilingError, match="this is aarch64"):
        ceiling.compile_ceiling(tmp_path)


def test_a_row_compares_both_sides(compiled: ceiling.Ceiling, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jpg" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(making.jpeg(300, 260, number))
    choices = Namespace(rounds=2, seconds=0.01)
    rows = list(ceiling.rows("folder", paths, choices, tmp_path))
    assert [row["threads"] for row in rows] == [1, 2]
    for row in rows:
        assert row["status"] == "ok"
        least, share, most = (float(str(row[f"share{end}"])) for end in ("_min", "", "_max"))
        assert 0 < least <= share <= most
    single, double = rows
    assert float(str(single["calls_us"])) > 0
    assert double["calls_us"] is None, "of two threads, they wait for the GIL"
