"""The serial engine: ids, failures and counts of its stages."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import sinks
from harness.corpora.manifest import Item, Manifest
from harness.engines import pipeline
from harness.engines import serial as engine
from harness.engines.pipeline import LoadStages
from harness.profiler import StageProfiler
from harness.protocols.protocol import no_progress
from harness.spec import Recipe
from tests.harness.engines.conftest import MODEL, loaded_one_by_one, manifest_in
from wallclock.errors import ImageError, UserError

STAGES = ("read", "decode", "resize", "normalize")
RECIPE = Recipe("test", device="cpu")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return manifest_in(tmp_path_factory.mktemp("images"), 12)


def failing(stages: LoadStages, failures: dict[str, str]) -> LoadStages:
    """The stages, but the images named fail at the stage given."""
    current: list[str] = []

    def at(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stage(*arguments: Any) -> Any:
            if name == "read":
                current[:] = [arguments[0].id]
            if failures.get(current[0]) == name:
                raise ImageError(name, "made to fail")
            return function(*arguments)

        return stage

    changes: dict[str, Any] = {name: at(name, getattr(stages, name)) for name in STAGES}
    return replace(stages, **changes)


def run(
    manifest: Manifest, sink: str, batch: int, failures: dict[str, str], limit: int = 99
) -> tuple[engine.Outcome, StageProfiler, list[str], npt.NDArray[np.float32], list[int]]:
    profiler, done = StageProfiler(), list[int]()
    with tempfile.TemporaryDirectory() as folder:
        load = failing(pipeline.load_stages(RECIPE, MODEL, manifest), failures)
        device = pipeline.device_stages(replace(RECIPE, sink=sink), MODEL, Path(folder))
        items = manifest.items
        outcome = engine.run(items, load, device, profiler, batch, limit, done.append)
        assert device.output is not None
        ids, vectors = sinks.read(device.output)
    return outcome, profiler, ids, vectors, done


@settings(max_examples=40)
@given(
    pattern=st.lists(st.sampled_from(["", "", *STAGES]), min_size=12, max_size=12),
    batch=st.integers(1, 14),
    sink=st.sampled_from(list(sinks.SINKS)),
)
def test_vectors_keep_ids(corpus: Manifest, pattern: list[str], batch: int, sink: str) -> None:
    items = corpus.items
    failures = {item.id: stage for item, stage in zip(items, pattern, strict=True) if stage}
    outcome, profiler, ids, vectors, done = run(corpus, sink, batch, failures)
    sound = [item for item in items if item.id not in failures]
    assert ids == [item.id for item in sound]
    truth = loaded_one_by_one(corpus, RECIPE)
    for identity, vector in zip(ids, vectors, strict=True):
        np.testing.assert_array_equal(vector, truth[identity].reshape(-1)[88:104])
    assert outcome.n_embedded == len(sound)
    listed = [(failure["id"], failure["stage"]) for failure in outcome.failures]
    assert listed == list(failures.items())
    assert {failure["reason"] for failure in outcome.failures} <= {"made to fail"}
    counts = profiler.counts
    for at, stage in enumerate(STAGES):
        failed_before = sum(pattern.count(name) for name in STAGES[:at])
        assert counts.get(stage, 0) == len(items) - failed_before
    batches = [items[start : start + batch] for start in range(0, len(items), batch)]
    full = sum(any(item in sound for item in some) for some in batches)
    assert [counts.get(stage, 0) for stage in ("assemble", "h2d", "forward", "d2h")] == [full] * 4
    assert counts["serialize"] == full + 1  # the last call makes the file whole
    assert done == [min(start + batch, len(items)) for start in range(0, len(items), batch)]


@settings(max_examples=30)
@given(n_failing=st.integers(0, 12), limit=st.integers(0, 12), batch=st.integers(1, 5))
def test_over_max_failures_stops(corpus: Manifest, n_failing: int, limit: int, batch: int) -> None:
    items = corpus.items
    failures = {item.id: "decode" for item in items[:n_failing]}
    if n_failing <= limit:
        assert run(corpus, "npy", batch, failures, limit)[0].n_embedded == 12 - n_failing
        return
    with tempfile.TemporaryDirectory() as folder:
        load = failing(pipeline.load_stages(RECIPE, MODEL, corpus), failures)
        device = pipeline.device_stages(RECIPE, MODEL, Path(folder))
        message = rf"more than max_failures={limit} images failed.*in decode: made to fail$"
        with pytest.raises(UserError, match=message):
            engine.run(items, load, device, StageProfiler(), batch, limit, no_progress)
        device.finish()


def test_vanished_or_changed_files_fail_in_read(tmp_path: Path) -> None:
    corpus = manifest_in(tmp_path, 4)
    (tmp_path / "0.jpg").unlink()
    (tmp_path / "2.jpg").write_bytes(b"other")
    outcome, _, ids, _, _ = run(corpus, "parquet", 2, {})
    assert ids == ["image 1", "image 3"]
    failures = [(failure["id"], failure["stage"]) for failure in outcome.failures]
    assert failures == [("image 0", "read"), ("image 2", "read")]


def test_a_bug_is_no_image_failure(corpus: Manifest, tmp_path: Path) -> None:
    items = corpus.items

    def broken(item: Item, pixels: Any) -> Any:
        raise ZeroDivisionError

    load = replace(pipeline.load_stages(RECIPE, MODEL, corpus), resize=broken)
    device = pipeline.device_stages(RECIPE, MODEL, tmp_path)
    with pytest.raises(ZeroDivisionError):
        engine.run(items, load, device, StageProfiler(), 4, 99, no_progress)
    device.finish()
