"""Protocol `throughput` with engine `threads`: the same record, and what limits the pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wallclock.clock import STAGES
from wallclock.corpus import manifest as manifests
from wallclock.corpus import synthetic
from wallclock.engines.ring import buffers_for
from wallclock.errors import UserError
from wallclock.measure.fidelity import fidelity
from wallclock.measure.protocol import Measurement
from wallclock.measure.serial import serial
from wallclock.measure.throughput import throughput
from wallclock.spec import Cell, CorpusSpec, ModelSpec, Recipe, Slice
from wallclock.stages import sinks
from wallclock.summary import median

MODEL = ModelSpec("null", weights="none", input_px=32)
RECIPE = Recipe(
    "fast",
    "simplejpeg",
    "torch",
    engine="threads",
    workers=2,
    batch_size=4,
    dct_scale="auto",
    normalize_on="device",
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Slice:
    folder = tmp_path_factory.mktemp("corpus")
    return synthetic.prepare(
        CorpusSpec("synthetic"), "small_256", 18, folder, lambda done, total, what: None
    )


def run(corpus: Slice, folder: Path, model: ModelSpec = MODEL, **changes: Any) -> Measurement:
    cell = Cell(
        "fast",
        "throughput",
        "test",
        0,
        replace(RECIPE, **changes),
        corpus,
        model,
        {"max_failures": 100},
    )
    return throughput(cell, folder, lambda done: None)


def test_every_image_once_in_order_and_every_stage_sampled(corpus: Slice, tmp_path: Path) -> None:
    found = run(corpus, tmp_path)
    expected = [item.id for item in manifests.load(Path(corpus.manifest)).items]
    ids, vectors = sinks.read_parquet(tmp_path / "vectors.parquet")
    ring = buffers_for(2, 4)
    n, n_batches = len(ids), -(-(ring + 12) // 2) * 2
    assert n == 4 * n_batches, (
        "too few images for a steady state: they repeat, in whole bursts of two"
    )
    assert ids == (expected * n)[:n]
    assert len({vector.tobytes() for vector in vectors}) > len(expected) // 2, (
        "vectors do not tell images apart"
    )
    assert (found.values["n_embedded"], found.values["steady"], found.values["warmup_batches"]) == (
        n,
        True,
        ring,
    )
    for name in ("read", "decode", "resize"):
        assert len(found.samples[name]) == n
    for name in ("h2d", "forward", "d2h", "wait", "batch"):
        assert len(found.samples[name]) == n_batches
    assert len(found.samples["serialize"]) == n_batches + 1, "and the end of the file"
    assert not any(len(found.samples[name]) for name in ("normalize", "assemble"))
    assert (found.values["ring_batches"], len(found.values["workers"])) == (ring, 2)


def test_spans_lie_in_lanes_of_their_own(corpus: Slice, tmp_path: Path) -> None:
    found = run(corpus, tmp_path)
    lanes = {lane: {span[1] for span in found.spans if span[0] == lane} for lane, *_ in found.spans}
    assert {"main", "sink"} <= set(lanes) <= {"main", "sink", "thread 0", "thread 1"}
    assert lanes["sink"] == {"serialize"}
    assert lanes["main"] == {"wait", "h2d", "forward", "d2h"}
    assert all(span[1] in STAGES or span[1] == "wait" for span in found.spans)


@pytest.mark.parametrize(("service_ms", "limit"), [(0.0, "loader"), (40.0, "forward")])
def test_it_says_what_limits_it(
    corpus: Slice, tmp_path: Path, service_ms: float, limit: str
) -> None:
    found = run(
        corpus,
        tmp_path,
        replace(MODEL, service_ms=service_ms),
        batch_size=16,
        workers=1,
        sink="npy",
    )
    assert found.values["limited_by"] == limit
    assert sum(found.values["main_s"].values()) == pytest.approx(found.samples["wall"][0] / 1e9)


def test_too_many_failures_stop_it(corpus: Slice, tmp_path: Path) -> None:
    cell = Cell("fast", "throughput", "test", 0, RECIPE, corpus, MODEL, {"max_failures": 1})
    root = manifests.load(Path(corpus.manifest)).root
    moved = sorted(root.rglob("*.jpg"))[:2]
    for path in moved:
        path.rename(path.with_suffix(".away"))
    try:
        with pytest.raises(UserError, match="max_failures=1"):
            throughput(cell, tmp_path, lambda done: None)
    finally:
        for path in moved:
            path.with_suffix(".away").rename(path)


def test_the_serial_engine_runs_the_same_stages(corpus: Slice, tmp_path: Path) -> None:
    recipe = replace(RECIPE, engine="serial", workers=0)
    serial(
        Cell("serial", "serial", "test", 0, recipe, corpus, MODEL, {}), tmp_path, lambda done: None
    )
    ids, vectors = sinks.read_parquet(tmp_path / "vectors.parquet")
    (tmp_path / "threads").mkdir()
    run(corpus, tmp_path / "threads")
    others, theirs = sinks.read_parquet(tmp_path / "threads" / "vectors.parquet")
    assert others[: len(ids)] == ids
    np.testing.assert_array_equal(theirs[: len(ids)], vectors)


def test_fidelity_is_judged_image_by_image(corpus: Slice, tmp_path: Path) -> None:
    recipes = [
        {"name": "fast", "decoder": "simplejpeg", "resizer": "torch", "dct_scale": "auto"},
        {"name": "area", "decoder": "pil", "resizer": "opencv", "interpolation": "area"},
        {"name": "paper", "decoder": "pil", "resizer": "opencv", "interpolation": "linear"},
    ]
    cell = Cell(
        "fast", "fidelity", "fidelity", 0, Recipe("reference"), corpus, MODEL, {"recipes": recipes}
    )
    found = fidelity(cell, tmp_path, lambda done: None).values["fidelity"]
    assert found["area"]["psnr_loss_vs_area_db"] == 0.0
    assert found["paper"]["psnr_gain_vs_paper_db"] == 0.0
    assert found["fast"]["psnr_loss_vs_area_db"] < 0 < found["fast"]["psnr_gain_vs_paper_db"]
    assert 0 < found["fast"]["max_abs_diff"] < found["paper"]["max_abs_diff"]


@pytest.mark.slow
def test_loading_and_the_forward_pass_overlap(tmp_path: Path) -> None:
    """An accelerator that is the bottleneck is hardly ever idle; a loader that is, is hardly kept waiting.

    On two cores the main thread and the sink take their share of the loaders'; without overlap, half a loader's
    time in the accelerator would leave 0.67.
    """
    many = synthetic.prepare(
        CorpusSpec("synthetic"), "small_256", 3200, tmp_path, lambda done, total, what: None
    )
    model = replace(MODEL, input_px=224)

    def rate(service_ms: float) -> float:
        found = run(many, tmp_path, replace(model, service_ms=service_ms), batch_size=32)
        return float(found.values["n_embedded"] / found.samples["wall"][0])

    loader: list[float] = []
    ahead: list[float] = []
    for _ in range(5):  # interleaved: another program's minute hits both of a pair alike
        loader.append(rate(0.0))
        ahead.append(rate(0.5 * 32 / loader[-1] / 1e6))
    assert median([beside / alone for beside, alone in zip(ahead, loader, strict=True)]) >= 0.8
    service_ms = 3 * 32 / max(loader) / 1e6
    found = run(many, tmp_path, replace(model, service_ms=service_ms), batch_size=32)
    # 0.75 without overlap; between two batches of a few milliseconds the main thread has to let go and hand on.
    assert sum(found.samples["forward"]) >= 0.93 * found.samples["wall"][0]
