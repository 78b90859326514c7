"""Protocol `forms`: every form from everywhere, evicted and read back."""

from pathlib import Path

import pytest

from harness.corpora import readers
from harness.protocols.forms import forms
from harness.protocols.protocol import no_progress
from harness.spec import Cell, Slice
from tests.harness.protocols.conftest import FORKS
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


@FORKS
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


@FORKS
def test_pages_that_stay_are_no_cold_pass(
    corpus: Slice, tmp_path: Path, cold: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "cached_share", lambda paths: 0.5)
    result = forms(cell_of(corpus, "files", ["cold"]), tmp_path, no_progress)
    assert result.samples == {}
    assert "mincore finds 50% of them" in result.values["unavailable"]["cold/4/bytes"]
