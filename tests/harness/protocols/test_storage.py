"""The protocol `storage`: what is evicted when, and what is read."""

from pathlib import Path

import pytest

from harness.corpora import readers
from harness.corpora.manifest import Item
from harness.protocols.protocol import no_progress
from harness.protocols.storage import storage
from harness.spec import Cell, Slice
from wallclock.recipe import ModelSpec, Recipe

PARAMS = {"readers": [1, 4], "rounds": 2, "seconds": 0.001}


def cell_of(corpus: Slice) -> Cell:
    model = ModelSpec("null", weights="none")
    return Cell("analytic", "storage", "test", 0, Recipe("test"), corpus, model, PARAMS)


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
    result = storage(cell_of(corpus), tmp_path, no_progress)
    counts = {name: len(passes) for name, passes in result.samples.items()}
    assert counts == {"cold-1": 2, "cold-4": 2, "warm": 1}
    passes = [ids.split() for ids in " ".join(events).split("evict ")[1:]]
    assert [len(set(ids)) for ids in passes] == [18] * 4
    assert [len(ids) for ids in passes[:3]] == [result.values["n_loaded"]] * 3
    assert result.values["n_warm"] == len(passes[3]) - 18
    assert result.values["mean_bytes"] > 100
    assert result.values["from_disk_share"] >= 0
