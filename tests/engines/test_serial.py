"""Engine `serial`: whatever fails, wherever, ids stay with their vectors and nothing is lost unseen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import making
from wallclock.clock import StageProfiler
from wallclock.corpus.manifest import Item
from wallclock.engines import pipeline as pipelines
from wallclock.engines import serial as engine
from wallclock.engines.pipeline import Pipeline
from wallclock.errors import ImageError, UserError
from wallclock.spec import ModelSpec, Recipe
from wallclock.stages import sinks

STAGES = ("read", "decode", "resize", "normalize")
RECIPE = Recipe("test", device="cpu")
MODEL = ModelSpec("null", "none", input_px=8, dim=16)


def items_in(folder: Path, n: int) -> list[Item]:
    """Images in a folder, each of another colour."""
    items = []
    for index in range(n):
        data = making.jpeg(16, 12, seed=index)
        (folder / f"{index}.jpg").write_bytes(data)
        items.append(
            Item(f"image {index}", f"{index}.jpg", len(data), 16, 12, "", "jpeg", "baseline", 3, 0)
        )
    return items


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Item]]:
    folder = tmp_path_factory.mktemp("images")
    return folder, items_in(folder, 12)


def failing(pipeline: Pipeline, failures: dict[str, str]) -> Pipeline:
    """The pipeline, but the images named fail at the stage given."""
    current: list[str] = []

    def at(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stage(*arguments: Any) -> Any:
            if name == "read":
                current[:] = [arguments[0].id]
            if failures.get(current[0]) == name:
                raise ImageError(name, "made to fail")
            return function(*arguments)

        return stage

    changes: dict[str, Any] = {name: at(name, getattr(pipeline, name)) for name in STAGES}
    return replace(pipeline, **changes)


def expected(root: Path, items: Sequence[Item]) -> dict[str, npt.NDArray[np.float32]]:
    """Each image's vector, made on its own: the first normalized pixels."""
    loader = pipelines.build_loader(RECIPE, MODEL.input_px, root)
    return {
        item.id: loader.normalize(
            loader.resize(item, loader.decode(item, loader.read(item)))
        ).reshape(-1)[: MODEL.dim]
        for item in items
    }


def run(
    root: Path,
    items: Sequence[Item],
    sink: str,
    batch: int,
    failures: dict[str, str],
    limit: int = 99,
) -> tuple[engine.Outcome, StageProfiler, list[str], npt.NDArray[np.float32], list[int]]:
    profiler, done = StageProfiler(), list[int]()
    with tempfile.TemporaryDirectory() as folder:
        pipeline = failing(
            pipelines.build(replace(RECIPE, sink=sink), MODEL, root, Path(folder)), failures
        )
        outcome = engine.run(items, pipeline, profiler, batch, limit, done.append)
        assert pipeline.output is not None
        ids, vectors = sinks.READERS[sink](pipeline.output)
    return outcome, profiler, ids, vectors, done


@settings(max_examples=40, deadline=None)
@given(
    pattern=st.lists(st.sampled_from(["", "", *STAGES]), min_size=12, max_size=12),
    batch=st.integers(1, 14),
    sink=st.sampled_from(list(sinks.READERS)),
)
def test_vectors_stay_with_their_ids(
    corpus: tuple[Path, list[Item]], pattern: list[str], batch: int, sink: str
) -> None:
    root, items = corpus
    failures = {item.id: stage for item, stage in zip(items, pattern, strict=True) if stage}
    outcome, profiler, ids, vectors, done = run(root, items, sink, batch, failures)
    sound = [item for item in items if item.id not in failures]
    assert ids == [item.id for item in sound]
    truth = expected(root, sound)
    for identity, vector in zip(ids, vectors, strict=True):
        np.testing.assert_array_equal(vector, truth[identity])
    assert outcome.n_embedded == len(sound)
    assert outcome.failures == [
        {"id": identity, "stage": stage, "reason": "made to fail"}
        for identity, stage in failures.items()
    ]
    counts = profiler.counts()
    assert counts["read"] == len(items)
    assert counts.get("decode", 0) == len(items) - pattern.count("read")
    assert counts.get("normalize", 0) == len(items) - sum(
        pattern.count(stage) for stage in STAGES[:3]
    )
    batches = [items[start : start + batch] for start in range(0, len(items), batch)]
    full = sum(any(item in sound for item in some) for some in batches)
    assert [counts.get(stage, 0) for stage in ("assemble", "h2d", "forward", "d2h")] == [full] * 4
    assert counts["serialize"] == full + 1  # the last call makes the file whole
    assert done == [min(start + batch, len(items)) for start in range(0, len(items), batch)]


@settings(max_examples=30, deadline=None)
@given(n_failing=st.integers(0, 12), limit=st.integers(0, 12), batch=st.integers(1, 5))
def test_over_max_failures_the_run_stops_with_one_line(
    corpus: tuple[Path, list[Item]], n_failing: int, limit: int, batch: int
) -> None:
    root, items = corpus
    failures = {item.id: "decode" for item in items[:n_failing]}
    if n_failing <= limit:
        assert run(root, items, "npy", batch, failures, limit)[0].n_embedded == 12 - n_failing
        return
    with tempfile.TemporaryDirectory() as folder:
        pipeline = failing(pipelines.build(RECIPE, MODEL, root, Path(folder)), failures)
        with pytest.raises(
            UserError, match=f"more than max_failures={limit} images failed"
        ) as caught:
            engine.run(items, pipeline, StageProfiler(), batch, limit, lambda done: None)
        pipeline.finish()
    assert "in decode: made to fail" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_vanish_or_change_are_failures_of_read(tmp_path: Path) -> None:
    items = items_in(tmp_path, 4)
    (tmp_path / "0.jpg").unlink()
    (tmp_path / "2.jpg").write_bytes(b"other")
    outcome, _, ids, _, _ = run(tmp_path, items, "parquet", 2, {})
    assert ids == ["image 1", "image 3"]
    assert [(failure["id"], failure["stage"]) for failure in outcome.failures] == [
        ("image 0", "read"),
        ("image 2", "read"),
    ]


def test_a_bug_is_no_image_failure(corpus: tuple[Path, list[Item]], tmp_path: Path) -> None:
    root, items = corpus

    def broken(item: Item, pixels: Any) -> Any:
        raise ZeroDivisionError

    pipeline = replace(pipelines.build(RECIPE, MODEL, root, tmp_path), resize=broken)
    with pytest.raises(ZeroDivisionError):
        engine.run(items, pipeline, StageProfiler(), 4, 99, lambda done: None)
    pipeline.finish()


def test_what_is_no_plain_jpeg_goes_through_pillow_in_every_recipe(tmp_path: Path) -> None:
    data = making.encode(making.picture(16, 12), "PNG")
    (tmp_path / "a.png").write_bytes(data)
    item = Item("a.png", "a.png", len(data), 16, 12, "", "png", "", 3, 0)
    pictures = []
    for decoder in ("pil", "opencv", "turbojpeg", "simplejpeg"):
        loader = pipelines.build_loader(replace(RECIPE, decoder=decoder), 8, tmp_path)
        pictures.append(loader.decode(item, loader.read(item)))
    for picture in pictures:
        np.testing.assert_array_equal(picture, making.picture(16, 12))


def test_the_floor_calls_every_stage_and_does_nothing(corpus: tuple[Path, list[Item]]) -> None:
    _, items = corpus
    profiler = StageProfiler()
    outcome = engine.run(items, pipelines.null(), profiler, 5, 0, lambda done: None)
    assert (outcome.n_embedded, outcome.failures) == (12, [])
    assert profiler.counts() == {
        **dict.fromkeys(STAGES, 12),
        **dict.fromkeys(("assemble", "h2d", "forward", "d2h"), 3),
        "serialize": 4,
    }
