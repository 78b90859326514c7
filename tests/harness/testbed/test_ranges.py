"""Packs for comparison, and the late store: the same bytes by every reader."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.corpora import manifest as manifests
from harness.corpora import readers, synthetic
from harness.corpora.abo import pack
from harness.corpora.manifest import Manifest
from harness.spec import CorpusSpec
from harness.testbed import ranges
from harness.testbed.ranges import RangeReader
from wallclock.errors import ImageError
from wallclock.files import sha256_bytes


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Ten originals: two row groups of Parquet."""
    folder = tmp_path_factory.mktemp("corpus")
    prepared = synthetic.prepare(CorpusSpec("synthetic"), "original", 10, folder, lambda *_: None)
    return replace(manifests.load(Path(prepared.manifest)), kind="packed")


@pytest.fixture
def store(files: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The store's port; it waits by a line in the file `waits`."""
    (tmp_path / "secret").write_text("x")
    waits = tmp_path / "waits"
    monkeypatch.setattr(time, "sleep", lambda s: waits.open("a").write(f"{s:g} ") and None)
    with ranges.serving(files.root) as port:
        yield port


def packed(files: Manifest, layout: str, folder: Path) -> Manifest:
    return pack.ensure(files, layout, folder / f"x.{layout}.csv", False, lambda *_: None)


def test_parquet_holds_the_files(files: Manifest, tmp_path: Path) -> None:
    table = packed(files, "parquet", tmp_path)
    reader = readers.make(table)
    assert [sha256_bytes(reader(item)) for item in table.items] == [i.sha256 for i in files.items]
    assert (reader.layout, table.items[9].path) == ("parquet", "1@1")
    assert [path.name for path in readers.stored_files(table)] == ["images.parquet"]
    assert packed(files, "parquet", tmp_path) == table
    with pytest.raises(ImageError, match="the pack was changed"):
        reader(replace(table.items[0], bytes=7))
    size = readers.stored_files(table)[0].stat().st_size
    assert size < 1.01 * sum(item.bytes for item in files.items) + 4096


@pytest.mark.slow
def test_pixels_are_those_of_pillow(files: Manifest, tmp_path: Path) -> None:
    for layout in ("pixels", "pixels_256"):
        table = packed(files, layout, tmp_path)
        for read in (readers.make(table), readers.MapReader(table.root)):
            for item, file in zip(table.items, files.items, strict=True):
                image = Image.open(files.root / file.path).convert("RGB")
                if layout == "pixels_256":
                    image.thumbnail((256, 256), Image.Resampling.BILINEAR, reducing_gap=None)
                    assert max(item.width, item.height) == 256
                pixels = np.frombuffer(read(item), np.uint8).reshape(item.height, item.width, 3)
                assert np.array_equal(pixels, np.asarray(image))
        assert readers.storage_of(table) == item.format == "pixels"


def test_store_answers_late(files: Manifest, store: int, tmp_path: Path) -> None:
    with closing(RangeReader(store, "http-50")) as reader:
        for item in files.items[:2]:
            assert sha256_bytes(reader(item)) == item.sha256
        assert (tmp_path / "waits").read_text() == "0.05 0.05 "
        with pytest.raises(ImageError, match="the pack was changed"):
            reader(replace(files.items[0], bytes=files.items[0].bytes + 1))
        for name in ("none", "../secret", "%2e%2e/secret"):
            with pytest.raises(ImageError, match="404"):
                reader(replace(files.items[0], path=name))


def test_store_ends_with_what_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(os, "getpid", lambda: 77)
    server = ranges.RangeServer(tmp_path)
    monkeypatch.setattr(os, "getppid", lambda: 77)
    server.service_actions()
    assert not ended
    monkeypatch.setattr(os, "getppid", lambda: 1)
    server.service_actions()
    server.server_close()
    assert ended == [1]
