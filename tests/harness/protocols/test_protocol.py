"""What the protocols share: page cache, memory, and what else the machine does."""

import multiprocessing
from pathlib import Path

import pytest

from harness.corpora import readers
from harness.processes import ProcessTree
from harness.protocols import protocol
from harness.spec import Cell, Slice
from tests.harness.engines.conftest import manifest_in
from wallclock.errors import Unavailable
from wallclock.recipe import ModelSpec, Recipe


@pytest.mark.parametrize(
    ("asked", "share", "state"),
    [("warm", 1.0, "warm"), ("warm", 0.6, "partly warm"), ("cold", 0.01, "cold")],
)
def test_page_cache_is_read_back(
    asked: str, share: float, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "cached_share", lambda paths: share)
    manifest = manifest_in(tmp_path, 2)
    cell = Cell("x", "x", "x", 0, Recipe("x"), None, ModelSpec("x"), {"page_cache": asked})
    values = protocol.set_page_cache(cell, manifest)
    assert (values["page_cache"], values["page_cache_share"]) == (state, share)
    monkeypatch.setattr(readers, "cached_share", lambda paths: 0.9)
    if asked == "cold":
        with pytest.raises(Unavailable, match=r"cold pages .* 90% of them"):
            protocol.set_page_cache(cell, manifest)


def test_share_of_the_page_cache(tmp_path: Path) -> None:
    for name, data in {"a": b"x" * 10_000, "empty": b""}.items():
        (tmp_path / name).write_bytes(data)
    files = [tmp_path / "a", tmp_path / "empty", tmp_path / "gone"]
    readers.warm(files)
    assert readers.cached_share(files) == 1.0
    assert readers.cached_share(files[1:]) is readers.cached_share([]) is None


def test_memory_is_of_the_whole_tree() -> None:
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()

    def hold() -> None:
        memory = bytearray(b"x" * (64 << 20))
        ready.set()
        done.wait()
        del memory

    alone, child = ProcessTree().pss_mib(), context.Process(target=hold)
    child.start()
    ready.wait()
    assert ProcessTree().pss_mib() > alone + 60
    assert protocol.peak_memory_mib() > alone + 60
    done.set()
    child.join()


def test_competing_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, clock = iter([10.0, 11.0, 11.0, 11.0 + 2e-11]), iter([0, 2, 0, 2])
    monkeypatch.setattr(protocol, "_busy_s", lambda: next(busy))
    monkeypatch.setattr(protocol, "perf_counter_ns", lambda: 1_000_000_000 * next(clock))
    values: list[dict[str, float]] = [{}, {}]
    for added in values:
        with protocol.competing(added):
            pass
    assert values == [{"other_cores": 0.5}, {"other_cores": 0.0}]


@pytest.mark.parametrize("asked", ["warm", "cold"])
def test_a_cold_cell_reads_every_image_from_the_storage(asked: str, corpus: Slice) -> None:
    params = {"page_cache": asked}
    cell = Cell("x", "x", "x", 0, Recipe("x"), corpus, ModelSpec("x"), params)
    assert protocol.open_corpus(cell).cold == (asked == "cold")
