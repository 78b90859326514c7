"""Protocols `storage` and `forms`: what is evicted when, and what is read from where."""

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from harness.corpora import manifest as manifests
from harness.corpora import readers
from harness.corpora.manifest import Item
from harness.digests import sha256_bytes
from harness.protocols.protocol import no_progress
from harness.protocols.storage import LateReader, forms, storage
from harness.spec import Cell, Slice
from harness.testbed import serving
from wallclock.errors import ImageError
from wallclock.recipe import ModelSpec, Recipe

MODEL = ModelSpec("null", weights="none", input_px=32, dim=8)
WHERE = ["cold", "warm", "http-0"]


def cell_of(corpus: Slice, form: str, where: list[str]) -> Cell:
    params = {"form": form, "where": where, "in_flight": 4, "seconds": 0.001}
    recipe = Recipe("test", decoder="simplejpeg", resizer="pil", normalize_on="device")
    return Cell("storage", "forms", form, 0, recipe, corpus, MODEL, params)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A file system that drops what it is told to; how often it was told."""
    told = list[str]()
    monkeypatch.setattr(readers, "evict", lambda paths: told.append("evict"))
    monkeypatch.setattr(readers, "cached_share", lambda paths: 0.01)
    return told


@pytest.mark.parametrize("form", ["files", "pixels", "tar"])
def test_every_condition_has_a_time_or_a_reason(
    corpus: Slice, tmp_path: Path, cold: list[str], form: str
) -> None:
    where = WHERE if form in ("files", "tar") else WHERE[:2]
    result = forms(cell_of(corpus, form, where), tmp_path, no_progress)
    names = [f"{w}/{n}/{finish}" for w in where for n in (1, 4) for finish in ("bytes", "tensor")]
    assert [*result.samples] == [*result.values["passes"]] == names
    assert result.values["unavailable"] == {}
    for name, values in result.values["passes"].items():
        assert values["n"] >= (18 if name.startswith("cold") else 1)
        assert (values["from_disk_share"] is None) == name.startswith("http")
        assert values["cached_share"] == (0.01 if name.startswith("cold") else None)
        assert values["cpu_ms"] > 0
    assert len(cold) >= 4
    assert result.values["kb_on_disk"] >= result.values["mean_kb"]


def test_pages_that_stay_are_no_cold_pass(
    corpus: Slice, tmp_path: Path, cold: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "cached_share", lambda paths: 0.5)
    result = forms(cell_of(corpus, "files", ["cold"]), tmp_path, no_progress)
    assert result.samples == {}
    assert "mincore finds 50% of them" in result.values["unavailable"]["cold/4/bytes"]


def test_a_store_answers_late_with_a_file_or_a_range(corpus: Slice) -> None:
    manifest = manifests.load(Path(corpus.manifest))
    first, second, *_ = manifest.valid
    root = manifest.root
    with (
        serving.process("images", "--folder", str(root)) as (url, _),
        closing(LateReader(url, 0.05, 1)) as reader,
    ):
        began = time.monotonic()
        assert sha256_bytes(reader(first)) == first.sha256
        assert time.monotonic() - began >= 0.05
        inside = replace(second, path=f"{second.path}@0", bytes=9)
        assert reader(inside) == (root / second.path).read_bytes()[:9]
        with pytest.raises(ImageError, match="the pack was changed"):
            reader(replace(first, bytes=first.bytes + 1))
        with pytest.raises(ImageError, match="404"):
            reader(replace(first, path="none"))


def test_every_cold_pass_reads_all_images_after_an_eviction(
    corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, evict = readers.FileReader.__call__, readers.evict
    events: list[str] = []

    def evicting(files: list[Path]) -> None:
        events.append("evict")
        evict(files)

    def reading(reader: readers.FileReader, item: Item) -> bytes:
        events.append(item.id)
        return read(reader, item)

    monkeypatch.setattr(readers, "evict", evicting)
    monkeypatch.setattr(readers.FileReader, "__call__", reading)
    params = {"readers": [1, 4], "rounds": 2, "seconds": 0.001}
    cell = replace(cell_of(corpus, "files", []), protocol="storage", params=params)
    result = storage(cell, tmp_path, no_progress)
    counts = {name: len(passes) for name, passes in result.samples.items()}
    assert counts == {"cold-1": 2, "cold-4": 2, "warm": 1}
    passes = [ids.split() for ids in " ".join(events).split("evict ")[1:]]
    assert [len(set(ids)) for ids in passes] == [18] * 4
    assert [len(ids) for ids in passes[:3]] == [result.values["n_loaded"]] * 3
    assert result.values["n_warm"] == len(passes[3]) - 18
    assert result.values["mean_bytes"] > 100
    assert result.values["from_disk_share"] >= 0
