"""Protocol `throughput`: each engine end to end, with real workers, files and sinks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.common import new_row
from harness import sinks
from harness.corpora import manifest as manifests
from harness.corpora import synthetic
from harness.engines import loaders
from harness.engines.positions import plan_batches
from harness.protocols import throughput as throughput_module
from harness.protocols.protocol import Measurement, no_progress
from harness.protocols.throughput import throughput
from harness.records import Record
from harness.spec import Cell, CorpusSpec, Recipe, Slice
from tests import devices
from tests.conftest import FORKS
from tests.devices import Device
from tests.experiments import made
from wallclock.clock import DEVICE_STAGES, STAGES
from wallclock.errors import UserError
from wallclock.loader.ring import buffers_for
from wallclock.recipe import ModelSpec
from wallclock.stages.forward import networks

pytestmark = FORKS

MODEL = ModelSpec("null", weights="none", input_px=32)
PROCESSES = Recipe("test", engine="dataloader", workers=2, batch_size=4)
THREADS = Recipe("fast", "simplejpeg", "torch", engine="threads", workers=2, batch_size=4)
THREADS = replace(THREADS, dct_scale="auto", normalize_on="device")
SERIAL = replace(PROCESSES, engine="serial", workers=0)
RECIPES = {"serial": SERIAL, "dataloader": PROCESSES, "threads": THREADS}


def run(
    corpus: Slice, work: Path, recipe: Recipe, model: ModelSpec = MODEL, limit: int = 100
) -> Measurement:
    work.mkdir(exist_ok=True)
    cell = Cell("t4", "throughput", "test", 0, recipe, corpus, model, {"max_failures": limit})
    return throughput(cell, work, no_progress)


@pytest.mark.parametrize(
    ("recipe", "prefetched"),
    [
        (SERIAL, 1),
        (replace(PROCESSES, workers=0), 1),
        (PROCESSES, 2 * 2 + 1),
        (replace(PROCESSES, prefetch=1), 2 * 1 + 1),
        # Each of its processes imports all of the package anew.
        pytest.param(replace(PROCESSES, start_method="spawn"), 2 * 2 + 1, marks=pytest.mark.slow),
        (THREADS, buffers_for(2, 4)),
    ],
    ids=[
        "serial",
        "dataloader-0",
        "dataloader-fork",
        "dataloader-1-ahead",
        "dataloader-spawn",
        "threads",
    ],
)
def test_images_in_order(corpus: Slice, tmp_path: Path, recipe: Recipe, prefetched: int) -> None:
    result = run(corpus, tmp_path, recipe)
    expected = [item.id for item in manifests.load(Path(corpus.manifest)).items]
    ids, _ = sinks.read(tmp_path / "vectors.parquet")
    burst = max(recipe.workers, 1)
    n, n_batches = len(ids), -(-(prefetched + 12) // burst) * burst
    assert n == 4 * n_batches, "too few images for a steady state: they repeat, in full bursts"
    assert ids == (expected * n)[:n]
    values = result.values
    assert (values["n_embedded"], values["n_unique"], values["steady"]) == (n, 18, True)
    assert values["warmup_batches"] == prefetched
    assert 0 < values["model_load_s"] < values["startup_s"]
    assert values["sink_faults"] == []
    assert values["sink_checked"] >= 8 * (n // 18), "every time that one of eight images came"
    assert (values["sink_cosine_min"], values["sink_max_abs_diff"]) == (pytest.approx(1), 0)
    ran = {"engine": recipe.engine, "workers": recipe.workers, "layout": "files"}
    ran |= {"decoder": recipe.decoder, "resizer": recipe.resizer}
    assert values["ran"] | ran == values["ran"], "labels are read back"
    counts = {name: len(result.samples[name]) for name in (*STAGES, "wait", "batch", "latency")}
    wall, in_thread = result.samples["wall"][0], recipe.engine == "threads"
    if recipe.start_method == "spawn":
        assert values["startup_s"] * 1e9 > wall, "two interpreters take longer than 17 batches"
        assert sum(result.samples["batch"]) <= wall
    assert min(result.samples["latency"]) > 0, "a worker's clock is the main process's"
    images = dict.fromkeys(("read", "decode", "resize", "latency"), n)
    batches = dict.fromkeys((*DEVICE_STAGES, "wait", "batch"), n_batches)
    assert counts == images | batches | {
        "normalize": 0 if in_thread else n,
        "assemble": 0 if in_thread else n_batches,
        # Closing the file is a call of the sink's thread.
        "serialize": n_batches + 1 if in_thread else n_batches,
    }


def test_no_latency_behind_a_full_queue(
    corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images that were loaded while the model was have waited for it."""
    monkeypatch.setattr(throughput_module, "batches_needed", lambda cell: 1)
    result = run(corpus, tmp_path, replace(PROCESSES, batch_size=16))
    assert (result.values["steady"], "latency" in result.samples) == (False, False)


def test_labels_of_loader(corpus: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that another engine runs is labelled with that engine."""
    real = loaders.open_loader
    monkeypatch.setattr(
        loaders, "open_loader", lambda m, recipe, model, p: real(m, SERIAL, model, p)
    )
    ran = run(corpus, tmp_path, replace(PROCESSES, decoder="opencv")).values["ran"]
    assert (ran["engine"], ran["workers"], ran["decoder"]) == ("serial", 0, "pil")


@pytest.mark.parametrize("name", RECIPES)
def test_failures_are_listed_and_limited(corpus: Slice, tmp_path: Path, name: str) -> None:
    broken = _with_vanished_files(corpus, tmp_path / "copy", every=3)
    result = run(broken, tmp_path / "work", RECIPES[name])
    ids, _ = sinks.read(tmp_path / "work" / "vectors.parquet")
    failed = {failure["id"] for failure in result.failures}
    assert (len(failed), len(set(ids)), failed & set(ids)) == (6, 12, set())
    assert (result.values["sink_faults"], result.values["sink_max_abs_diff"]) == ([], 0)
    assert {failure["stage"] for failure in result.failures} == {"read"}
    with pytest.raises(UserError, match="max_failures=2"):
        run(broken, tmp_path / "strict", RECIPES[name], limit=2)


@pytest.mark.parametrize(
    ("workers", "n", "at_least", "planned"),
    [
        (4, 1000, 1, (9, 100, 9 + 100 + 9)),
        (4, 40, 1, (2, 4, 2 + 4 + 9)),
        (0, 13, 1, (1, 2, 1 + 2 + 1)),
        # Four workers that began together bring four batches: 21 would end inside a burst.
        (4, 40, 21, (9, 24, 9 + 24 + 9)),
    ],
)
def test_warm_up_drains_the_prefetch(workers: int, n: int, at_least: int, planned: Any) -> None:
    recipe = replace(PROCESSES, workers=workers, batch_size=10)
    warm, count, positions = plan_batches(n, recipe, at_least)
    assert (warm, count, len(positions)) == planned
    measured = max(n, 10 * count) if at_least > 1 else n
    assert positions[warm + count - 1][-1] == measured - 1
    assert {len(batch) for batch in (*positions[:warm], *positions[warm + count :])} == {10}


def test_a_gpu_warms_up_with_a_batch_of_the_last_ones_size() -> None:
    """It may need memory of its own; a CPU takes a second for each of its images."""
    recipe = replace(PROCESSES, batch_size=10)
    assert plan_batches(53, recipe, 1)[:2] == (5, 6)
    warm, count, positions = plan_batches(53, replace(recipe, device="cuda"), 1)
    assert (warm, count, [len(batch) for batch in positions[:6]]) == (6, 6, [3] + [10] * 5)
    assert positions[6] == list(range(10))
    assert plan_batches(60, replace(recipe, device="cuda"), 1)[:2] == (5, 6)


@pytest.mark.parametrize("engine", RECIPES)
def test_a_mock_model_beside_a_gpu(
    device: Device, corpus: Slice, tmp_path: Path, engine: str
) -> None:
    """Its stages stay on the host, whatever the recipe's device, and its row says so."""
    # torch's DataLoader pins where torch has a device, which the fake is not.
    pins = device.fake is None or engine == "threads"
    recipe = replace(RECIPES[engine], device="cuda", pin_memory=pins)
    result = run(corpus, tmp_path, recipe)
    assert result.values["embedded_on"] == "null"
    assert not {name for name in result.values if "gpu" in name}
    assert (result.values["sink_faults"], result.values["sink_max_abs_diff"]) == ([], 0)
    assert {lane for lane, stage, *_ in result.spans if stage == "forward"} == {"main"}
    machine = made.MACHINE | {"gpus": [devices.GPU]}
    cell = Cell("t4", "throughput", "test", 0, recipe, corpus, MODEL, {})
    record = Record(cell, values=result.values, environment={"machine": machine})
    row = new_row([record], ["device", "device_kind"])
    assert (row["device_kind"], row["device"]) == ("cpu", "Test CPU (4 cores, with a fake GPU)")


@pytest.mark.parametrize("partial", [False, True])
def test_no_segment_is_allocated_while_timed(
    device: Device, corpus: Slice, tmp_path: Path, partial: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warm-up has used the streams, and batches of each size, that the timed pass uses."""
    monkeypatch.setattr(networks, "_LAYERS", 2)
    if partial:  # of 18 images in batches of 4
        monkeypatch.setattr(throughput_module, "batches_needed", lambda cell: 1)
    recipe = replace(THREADS, device="cuda", workers=1)
    result = run(corpus, tmp_path, recipe, ModelSpec("tiny", dim=48, input_px=28))
    values = result.values
    assert (values["embedded_on"], values["steady"]) == ("cuda", True)
    assert values["n_embedded"] % 4 == (2 if partial else 0)
    assert values["gpu_segments_allocated"] == 0
    assert 0 < values["peak_gpu_allocated_gib"] <= values["peak_gpu_reserved_gib"]
    assert (values["sink_faults"], values["sink_checked"] > 0) == ([], True)
    assert values["sink_cosine_min"] > 0.99999
    assert {lane for lane, stage, *_ in result.spans if stage == "forward"} == {"gpu"}
    off_us = 10 + 2 * values["clock_error_us"]
    assert min(result.samples["latency"]) > -1e3 * off_us
    assert max(result.samples["latency"]) < result.samples["wall"][0] + 1e9 * values["startup_s"]


def _with_vanished_files(corpus: Slice, folder: Path, every: int) -> Slice:
    """A copy of the corpus from which every n-th listed file is missing."""
    spec = CorpusSpec("synthetic", progressive_share=0.5)
    copy = synthetic.prepare(spec, "small_256", corpus.n, folder, lambda done, total, what: None)
    for path in sorted(Path(copy.manifest).with_suffix("").rglob("*.jpg"))[::every]:
        path.unlink()
    return copy
