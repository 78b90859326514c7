"""Protocol `forms`: every form from everywhere, evicted and read back."""

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from harness.corpora import manifest as manifests
from harness.corpora import readers
from harness.protocols.forms import LateReader, forms
from harness.protocols.protocol import no_progress
from harness.spec import Cell, Slice
from harness.testbed import serving
from wallclock.errors import ImageError
from wallclock.files import sha256_bytes
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
        closing(LateReader(url, 0.05)) as reader,
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
