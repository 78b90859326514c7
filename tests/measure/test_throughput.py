"""The throughput protocol end to end: real workers, real files, the mock model model."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from wallclock.clock import STAGES
from wallclock.corpus import manifest as manifests
from wallclock.corpus import synthetic
from wallclock.errors import UserError
from wallclock.measure.throughput import plan_batches, throughput
from wallclock.spec import Cell, CorpusSpec, ModelSpec, Recipe, Slice
from wallclock.stages import sinks

# Python 3.12 warns at every fork of a process that has threads; the start method is a setting here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

MODEL = ModelSpec("null", weights="none", input_px=32, service_ms=5.0)
RECIPE = Recipe("test", engine="dataloader", workers=2, batch_size=4)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Slice:
    folder = tmp_path_factory.mktemp("corpus")
    return synthetic.prepare(
        CorpusSpec("synthetic"), "small_256", 18, folder, lambda done, total, what: None
    )


@pytest.mark.parametrize(("workers", "start_method"), [(0, "fork"), (2, "fork"), (2, "spawn")])
def test_every_image_once_in_order(
    corpus: Slice, tmp_path: Path, workers: int, start_method: str
) -> None:
    recipe = replace(RECIPE, workers=workers, start_method=start_method)
    cell = Cell("t4", "throughput", "test", 0, recipe, corpus, MODEL, {"max_failures": 100})
    found = throughput(cell, tmp_path, lambda done: None)

    expected = [item.id for item in manifests.load(Path(corpus.manifest)).items]
    ids, vectors = sinks.read_parquet(tmp_path / "vectors.parquet")
    burst = max(workers, 1)
    n, n_batches = len(ids), -(-(workers * 2 + 1 + 12) // burst) * burst
    assert n == 4 * n_batches, "too few images for a steady state: they repeat, in whole bursts"
    assert ids == (expected * n)[:n]
    assert len({vector.tobytes() for vector in vectors}) > len(expected) // 2, (
        "vectors do not tell images apart"
    )
    assert (found.values["n_embedded"], found.values["n_unique"], found.values["steady"]) == (
        n,
        18,
        True,
    )
    for name in ("read", "decode", "resize", "normalize"):
        assert len(found.samples[name]) == n
    for name in ("assemble", "h2d", "forward", "d2h", "serialize", "wait", "batch"):
        assert len(found.samples[name]) == n_batches
    assert min(found.samples["forward"]) >= 5_000_000, "the mock model waits 5 ms a batch"


def test_the_clock_starts_after_warm_up_and_start_up(corpus: Slice, tmp_path: Path) -> None:
    slow_start = replace(RECIPE, workers=2, start_method="spawn")
    cell = Cell("t4", "throughput", "test", 0, slow_start, corpus, MODEL, {})
    found = throughput(cell, tmp_path, lambda done: None)
    wall = found.samples["wall"][0]
    assert found.values["startup_s"] * 1e9 > wall, (
        "starting two interpreters takes longer than 17 batches of 5 ms"
    )
    assert sum(found.samples["batch"]) <= wall
    assert found.values["warmup_batches"] == 5, "all that two workers may have ready"


def test_spans_lie_in_order_and_in_their_lanes(corpus: Slice, tmp_path: Path) -> None:
    cell = Cell("t4", "throughput", "test", 0, RECIPE, corpus, MODEL, {})
    found = throughput(cell, tmp_path, lambda done: None)
    assert {span[1] for span in found.spans} == {*STAGES, "wait"}
    lanes = {span[0] for span in found.spans}
    assert lanes == {"worker 0", "worker 1", "main"}
    for lane in lanes:
        times = sorted(
            (start, start + took) for where, _, _, start, took in found.spans if where == lane
        )
        for (_, end), (following, _) in pairwise(times):
            assert following >= end, f"spans overlap in {lane}"


def test_failures_in_workers_are_listed_and_limited(corpus: Slice, tmp_path: Path) -> None:
    broken = _with_vanished_files(corpus, tmp_path / "copy", every=3)
    cell = Cell("t4", "throughput", "test", 0, RECIPE, broken, MODEL, {"max_failures": 100})
    work = tmp_path / "work"
    work.mkdir()
    found = throughput(cell, work, lambda done: None)
    ids, _ = sinks.read_parquet(work / "vectors.parquet")
    failed = {failure["id"] for failure in found.failures}
    assert len(failed) == 6
    assert len(set(ids)) == 12
    assert not failed & set(ids)
    assert {failure["stage"] for failure in found.failures} == {"read"}

    strict = Cell("t4", "throughput", "test", 1, RECIPE, broken, MODEL, {"max_failures": 2})
    with pytest.raises(UserError, match="max_failures=2"):
        throughput(strict, tmp_path, lambda done: None)


def test_warm_up_drains_the_prefetch_where_it_can() -> None:
    four = replace(RECIPE, workers=4, batch_size=10)
    warm, count, positions = plan_batches(1000, four, at_least=1)
    assert (warm, count, len(positions)) == (9, 100, 9 + 100 + 9)
    warm, count, positions = plan_batches(40, four, at_least=1)
    assert (warm, count, len(positions)) == (2, 4, 2 + 4 + 9)
    warm, count, positions = plan_batches(13, replace(RECIPE, workers=0, batch_size=10), at_least=1)
    assert (warm, count, positions[1:]) == (1, 2, [list(range(10)), [10, 11, 12], list(range(10))])


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes:UserWarning")
def test_a_pass_takes_eight_bursts_of_its_workers(corpus: Slice, tmp_path: Path) -> None:
    cell = Cell(
        "t4",
        "throughput",
        "test",
        0,
        replace(RECIPE, workers=4),
        corpus,
        MODEL,
        {"max_failures": 0},
    )
    assert throughput(cell, tmp_path, lambda done: None).values["n_batches"] == 8 * 4


def test_images_that_come_round_again_are_measured_in_whole_bursts() -> None:
    """Four workers that began together bring four batches at once: 21 would end inside a burst."""
    four = replace(RECIPE, workers=4, batch_size=10)
    warm, count, positions = plan_batches(40, four, at_least=21)
    assert (warm, count, len(positions)) == (9, 24, 9 + 24 + 9)
    assert positions[warm + count - 1][-1] == 239


def _with_vanished_files(corpus: Slice, folder: Path, every: int) -> Slice:
    """A copy of the corpus, listed whole, from which every n-th file then went away."""
    made = synthetic.prepare(
        CorpusSpec("synthetic"), "small_256", corpus.n, folder, lambda done, total, what: None
    )
    for path in sorted(Path(made.manifest).with_suffix("").rglob("*.jpg"))[::every]:
        path.unlink()
    return made
