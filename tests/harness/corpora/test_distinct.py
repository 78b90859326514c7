"""Files of distinct bytes: other hashes, the same pixels, and only where they fit."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from harness.corpora.distinct import EXTRA, lay_out, numbered
from harness.digests import sha256_bytes
from tests.making import jpeg
from wallclock.errors import UserError
from wallclock.stages.decode import make


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{at}.jpg" for at in range(3)]
    for at, path in enumerate(paths):
        path.write_bytes(jpeg(40 + at, 30, progressive=at == 2))
    return paths


def test_every_file_has_its_bytes_and_its_picture(pictures: list[Path], tmp_path: Path) -> None:
    decode = make("simplejpeg")
    paths = lay_out(pictures, tmp_path / "new", 8)
    assert len({sha256_bytes(path.read_bytes()) for path in paths}) == 8
    for at, path in enumerate(paths):
        data, original = path.read_bytes(), pictures[at % 3].read_bytes()
        assert len(data) == len(original) + EXTRA
        assert np.array_equal(decode(data), decode(original))
        with Image.open(path) as image, Image.open(pictures[at % 3]) as first:
            image.load()
            assert image.tobytes() == first.tobytes()
            assert image.info["comment"] == at.to_bytes(8, "big")


def test_a_thousand_to_a_folder(
    pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.corpora.distinct._FOLDER", 2)
    paths = lay_out(pictures, tmp_path / "new", 5)
    assert [path.parent.name for path in paths] == ["000000"] * 2 + ["000001"] * 2 + ["000002"]
    assert paths == sorted((tmp_path / "new").rglob("*.jpg"))


def test_what_does_not_fit_is_refused(
    pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block for each of three files, and a gigabyte that stays free."""
    disk = SimpleNamespace(free=(1 << 30) + 3 * 4096)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk)
    assert len(lay_out(pictures, tmp_path / "three", 3)) == 3
    with pytest.raises(UserError, match=r"4 distinct files: 1\.07 GB are needed in .*, 1\.07 GB"):
        lay_out(pictures, tmp_path / "four", 4)
    assert not list((tmp_path / "four").iterdir())


def test_only_a_jpeg_has_comments() -> None:
    with pytest.raises(ValueError, match="no JPEG"):
        numbered(b"\x89PNG", 0)
