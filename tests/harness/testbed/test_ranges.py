"""The late store: the same bytes."""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from harness.corpora import manifest as manifests
from harness.corpora import synthetic
from harness.corpora.manifest import Manifest
from harness.spec import CorpusSpec
from harness.testbed import ranges
from harness.testbed.ranges import RangeReader
from wallclock.errors import ImageError
from wallclock.files import sha256_bytes


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("corpus")
    prepared = synthetic.prepare(CorpusSpec("synthetic"), "original", 2, folder, lambda *_: None)
    return manifests.load(Path(prepared.manifest))


@pytest.fixture
def store(files: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The store's port; it waits by a line in the file `waits`."""
    (tmp_path / "secret").write_text("x")
    waits = tmp_path / "waits"
    monkeypatch.setattr(time, "sleep", lambda s: waits.open("a").write(f"{s:g} ") and None)
    with ranges.serving(files.root) as port:
        yield port


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
