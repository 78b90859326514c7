"""Experiments on single stages: their grids, and their tables."""

import cProfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from experiments.decoders import cells as decoders
from experiments.layers import cells as experiment
from experiments.layers.measure import layers
from experiments.profiler import cells as profiler
from experiments.profiler import measure
from experiments.serial import cells as serial
from experiments.stage_fixes import cells as stage_fixes
from experiments.storage import cells as storage
from harness.corpora.manifest import Item, Manifest
from harness.decoders import DECODERS, NAMES
from harness.engines.pipeline import null_stages
from harness.protocols.protocol import no_progress
from harness.records import Record
from harness.spec import Cell, Recipe
from harness.table import read_table
from tests import fake_cuda
from tests.conftest import RunMain
from tests.experiments import made
from tests.experiments.conftest import Grid
from tests.fixture_run import fixture_records
from tests.wallclock.test_clock import FakeClock
from wallclock.clock import STAGES, StageProfiler
from wallclock.errors import Unavailable
from wallclock.recipe import ModelSpec

# --- serial ---------------------------------------------------------------------------------------


def test_grid(grid: Grid) -> None:
    cells = grid("serial", "repeats=3", "n=2")
    protocols = ("serial",) * 3 + ("floor",)
    names = [f"{name}-original" for name in ("pil", "opencv", "turbojpeg", "floor")]
    passes = [
        (protocol, name, repeat)
        for repeat in range(3)
        for protocol, name in zip(protocols, names, strict=True)
    ]
    assert [(cell.protocol, cell.label, cell.repeat) for cell in cells] == [
        ("fidelity", "fidelity-original", 0),
        *passes,
    ]
    assert {cell.images.n for cell in cells} == {2}
    recipes = [cell.recipe for cell in cells if cell.protocol == "serial"]
    assert {(r.engine, r.workers, r.dtype) for r in recipes} == {("serial", 0, "fp32")}


def test_gate_is_per_image_set() -> None:
    records = [r for r in fixture_records("serial") if r.cell.label != "fidelity-original"]
    for image_set, gate in (("small_256", "passed"), ("original", "not checked")):
        opencv = serial.tables(records)[serial.CSVS[image_set]][1]
        assert (opencv["gate"], opencv["status"]) == (gate, "ok")


# --- profiler -------------------------------------------------------------------------------------


def measured(stage: int, torch: float = 0.01, c: float = 0.002) -> Record:
    """Two rounds of 100 calls; a bare loop costs 10 ns a call, a stage call `stage` ns more."""
    per_call = {"bare_loop": 0, "stage_calls": stage}
    samples = {name: [1_000 + 100 * ns, 3_000 + 100 * ns] for name, ns in per_call.items()}
    differences = {"torch.profiler": {"decode": torch, "resize": torch / 2}}
    differences["cProfile"] = {"decode": c, "forward": 0.0}
    values = {"calls_per_round": 100, "differences": differences}
    return replace(fixture_records("profiler")[0], samples=samples, values=values)


def test_one_cell_per_repeat(grid: Grid) -> None:
    cells = grid("profiler", "repeats=3", "corpus.image_set=small_256")
    assert [(cell.protocol, cell.repeat) for cell in cells] == [("profiler", n) for n in range(3)]
    assert {cell.images.image_set for cell in cells} == {"small_256"}


def test_cost_is_per_call_without_the_bare_loop() -> None:
    records = [measured(200), measured(100), measured(300)]
    stage, *agreement = profiler.tables(records)[profiler.CSV]
    both = "torch.profiler and cProfile"
    assert [row["what"] for row in agreement] == ["torch.profiler", "cProfile", both]
    cost = (stage["ns_per_call"], stage["ns_per_call_min"], stage["ns_per_call_max"])
    assert (stage["what"], cost) == ("stage call", (200, 100, 300))
    assert (stage["n_calls"], stage["repeats"]) == (600, 3)


def test_no_records_no_table() -> None:
    assert profiler.tables([]) == {}


# --- layers ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_modules_of_a_small_network(run_main: RunMain, tmp_path: Path) -> None:
    import torch
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    sizes: Any = {"hidden_size": 32, "intermediate_size": 64, "image_size": 64, "patch_size": 16}
    network = ViTModel(ViTConfig(num_hidden_layers=3, num_attention_heads=2, **sizes))
    network.save_pretrained(tmp_path / "model")
    out, figures = tmp_path / "data", tmp_path / "figures"
    model = ("model=any", f"model.path={tmp_path / 'model'}", "device=cpu")
    done = run_main("--experiment=layers", "--n=4", *model, f"out={out}", f"figures={figures}")
    assert done.returncode == 0, done.stdout + done.stderr
    modules = {row["layer"]: row for row in read_table(out / experiment.CSV)}
    blocks = [row for row in modules.values() if row["kind"] == "ViTLayer"]
    assert len(blocks) == 3
    total_ms = modules[""]["ms"]
    assert modules[""]["share"] == 1
    assert 0 < sum(row["ms"] for row in blocks) < total_ms
    assert modules[""]["parameters"] == sum(p.numel() for p in network.parameters())
    assert {row["status"] for row in modules.values()} == {"ok"}


def test_mock_model_has_no_layers(tmp_path: Path) -> None:
    mock = ModelSpec("null", weights="none")
    cell = Cell("layers", "layers", "layers", 0, Recipe("x"), None, mock)
    with pytest.raises(Unavailable, match="the model is a mock model without a network"):
        layers(cell, tmp_path, no_progress)


# --- decoders -------------------------------------------------------------------------------------


def test_grid_of_decoders(grid: Grid) -> None:
    cells = grid("decoders", "repeats=3")
    assert [(cell.protocol, cell.label, cell.repeat) for cell in cells] == [
        ("agreement", "agreement-original", 0),
        *(("decode", f"{name}-original", repeat) for repeat in range(3) for name in NAMES),
    ]
    first = cells[1 : 1 + len(NAMES)]
    assert [cell.recipe.decoder for cell in first] == list(NAMES)
    keyed = [cell.recipe.decoder for cell in first if "installed" in cell.params]
    optional = [name for name in NAMES if DECODERS[name].optional]
    assert keyed == optional, "their versions are not among the pinned ones"
    assert {cell.images.n for cell in cells} == {3}


def table(image_set: str, **compared: Any) -> dict[object, dict[str, object]]:
    """The fixture's rows of all decoders, with other agreement on one image set."""
    records = []
    for record in fixture_records("decoders"):
        if record.cell.label == f"agreement-{image_set}":
            agreement = {**record.values["agreement"], **compared}
            record = replace(record, values={**record.values, "agreement": agreement})
        records.append(record)
    rows = decoders.tables(records)[decoders.CSV]
    return {(row["image_set"], row["decoder"]): row for row in rows}


@pytest.mark.parametrize(
    ("difference", "gate"), [(0, "passed"), (2, "passed"), (3, "failed"), (None, "not checked")]
)
def test_gate_is_a_largest_difference_on_an_image_set(difference: int | None, gate: str) -> None:
    rows = table("original", opencv={} if difference is None else {"max_abs_diff": difference})
    opencv = rows["original", "opencv"]
    assert (opencv["gate"], opencv["mean_ms"] is None) == (gate, gate == "failed")
    assert rows["original", "pil"]["gate"] == "reference"
    assert rows["small_256", "opencv"]["gate"] == "passed"


def test_library_is_named_with_its_version() -> None:
    (record, *_) = (r for r in fixture_records("decoders") if r.cell.label == "pil-original")
    version = record.environment["versions"]["libjpeg-turbo in pillow"]
    assert table("original")["original", "pil"]["library"] == f"libjpeg-turbo {version}"


def test_paired_ratios() -> None:
    """Of 2.0, 3.0 and 2.0 in three blocks of repeats."""
    records = []
    times = {
        "pil": (20, 30, 22),
        "opencv": (13, 13, 13),
        "turbojpeg": (10, 10, 11),
        "simplejpeg": (11, 12, 11),
    }
    for record in fixture_records("decoders"):
        name, _, image_set = record.cell.label.partition("-")
        if image_set == "original" and record.cell.repeat == 0 and name in times:
            for repeat, ms in enumerate(times[name]):
                samples = {**record.samples, "decode": [ms * 1_000_000] * 4}
                cell = replace(record.cell, repeat=repeat)
                records.append(replace(record, cell=cell, samples=samples))
    rows = {row["decoder"]: row for row in decoders.tables(records)[decoders.CSV]}
    turbo = rows["turbojpeg"]
    limits = [turbo[f"speedup_vs_pil{end}"] for end in ("_min", "", "_max")]
    assert limits == [2, 2, 3]


# --- formats --------------------------------------------------------------------------------------


def test_grid_of_formats(grid: Grid) -> None:
    cells = grid("formats", "repeats=3")
    scaled = []
    for name in NAMES:
        scaled += [f"{name}-full", f"{name}-auto"] if DECODERS[name].scales else [f"{name}-full"]
    assert [cell.label for cell in cells] == 3 * scaled
    for cell in cells:
        others = {key for key in cell.params["encodings"] if not key.startswith("jpeg")}
        assert bool(others) == (cell.label in ("pil-full", "opencv-full"))
        assert {"jpeg_baseline-75", "jpeg_444-95"} <= {*cell.params["encodings"]}


# --- storage --------------------------------------------------------------------------------------


def test_storage_grid(grid: Grid) -> None:
    cells = grid("storage", "repeats=3", "corpus.image_set=small_256")
    forms = ["files", "tar", "pixels"]
    assert [cell.label for cell in cells] == 3 * forms
    for cell in cells:
        remote = ["http-5"] if cell.label in ("files", "tar") else []
        assert cell.params["where"] == ["cold", "warm", *remote]
        assert (cell.recipe.decoder, cell.recipe.normalize_on) == ("native", "device")


def test_originals_also_smaller(grid: Grid) -> None:
    labels = [cell.label for cell in grid("storage")]
    assert labels[-2:] == ["pixels", "pixels_256"]


def test_storage_rows() -> None:
    rows = {row["what"]: row for row in storage.tables(made.storage())[storage.CSV]}
    cold = rows["tar cold/1/bytes"]
    names = ("img_per_s", "img_per_s_min", "img_per_s_max", "mb_per_s", "cpu_ms", "repeats")
    assert [cold[name] for name in names] == pytest.approx([100, 50, 200, 2, 0.5, 3])
    assert (cold["access"], cold["source"], cold["finish"]) == ("sequential", "cold", "bytes")
    assert (cold["kb_on_disk"], cold["cached_share"], cold["in_flight"]) == (24, 0.01, "1")
    partly = rows["tar cold/16/bytes"]
    assert (partly["status"], partly["access"]) == ("2 of 3", "ahead")
    assert partly["reason"] == "mincore finds 50% of them in memory"
    assert (partly["repeats"], partly["img_per_s_max"]) == (2, 100)
    failed = storage.tables([replace(made.storage()[0], status="error", values={})])[storage.CSV]
    assert [(row["what"], row["status"]) for row in failed] == [("tar", "error")]


def test_stage_fixes(grid: Grid) -> None:
    cells = grid("stage_fixes", "repeats=3")
    assert [cell.label for cell in cells] == 3 * [*stage_fixes.STAGES]
    rows = {row["stage"]: row for row in stage_fixes.tables(made.stage_fixes())[stage_fixes.CSV]}
    done, absent = rows["assemble"], rows["h2d"]
    names = ("plain_us", "fixed_us", "gain", "gain_min", "gain_max", "n_images")
    assert [done[name] for name in names] == pytest.approx([1000, 500, 2, 1, 4, 10])
    assert (absent["status"], absent["gain"]) == ("not applicable", None)
    assert absent["reason"] == "needs a GPU"


# --- profilers ------------------------------------------------------------------------------------


FOUR, NULL = Recipe("test", batch_size=4), ModelSpec("null", weights="none", input_px=32)
PROFILED = Cell("profiler", "profiler", "profiler", 0, FOUR, None, NULL)
ITEMS = tuple(Item(f"{index}", f"{index}", 1, 1, 1, "", "jpeg", "", 3, 0) for index in range(8))
MANIFEST = Manifest("folder", "original", Path("/"), ITEMS)


def test_differences_of_stages_over_one_per_cent() -> None:
    clock = FakeClock()
    ours = StageProfiler(clock=clock)
    for name, ns in (("decode", 4_000_000_000), ("forward", 5_950_000_000), ("read", 50_000_000)):
        with ours.stage(name):
            clock.now += ns
    theirs = dict.fromkeys(STAGES, 0.0) | {"decode": 5.0, "forward": 5.95, "read": 1.0}
    assert measure.differences(ours, theirs) == {
        "decode": pytest.approx(0.2),
        "forward": pytest.approx(0),
    }


def test_a_stage_call_costs_more_than_none() -> None:
    samples = measure.overhead(5, 3_000)
    # The fastest round of each: other load on the machine can only add.
    assert min(samples["bare_loop"]) < min(samples["stage_calls"])


@pytest.mark.parametrize("run", [measure.torch_pass, measure.c_profile_pass])
def test_calls_under_another_profiler(run: Callable[..., Any]) -> None:
    ours, theirs = run(PROFILED, MANIFEST, null_stages())
    images, batches = dict.fromkeys(STAGES[:4], 8), dict.fromkeys(STAGES[4:8], 2)
    assert ours.counts == images | batches | {"serialize": 3}
    assert set(theirs) == set(STAGES)
    assert min(theirs.values()) >= 0


@pytest.mark.parametrize("name", ["torch.profiler", "cProfile"])
def test_profilers_agree_on_a_device_behind_the_host(name: str, monkeypatch: Any) -> None:
    """Labels and stages end together, though every call returns 30 ms before its work is done."""
    cuda = fake_cuda.install(monkeypatch)
    clock = cuda.clock
    load, device = null_stages()

    def queued(work: int) -> Callable[..., Any]:
        def stage(argument: Any) -> Any:
            clock.now += 1_000_000  # of the host, for the launch
            cuda.work(work)
            return argument

        return stage

    calls: dict[str, Any] = dict.fromkeys(("h2d", "forward", "d2h"), queued(30_000_000))
    stages = load, replace(device, synchronize=cuda.synchronize, **calls)
    monkeypatch.setattr(measure, "StageProfiler", partial(StageProfiler, clock=clock))
    if name == "cProfile":
        timed = partial(cProfile.Profile, clock, 1e-9)
        monkeypatch.setattr(cProfile, "Profile", timed)
        ours, theirs = measure.c_profile_pass(PROFILED, MANIFEST, stages)
    else:
        ours, labels = StageProfiler(cuda.synchronize, clock=clock), StageProfiler(clock=clock)
        measure._pass(PROFILED, MANIFEST, measure._labelled(stages, labels.stage), ours)
        theirs = {key.removeprefix("wallclock::"): at for key, at in labels.totals.items()}
    assert ours.totals["forward"] == pytest.approx(2 * 0.031)
    assert max(measure.differences(ours, theirs).values()) <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("run", [measure.torch_pass, measure.c_profile_pass])
def test_another_profiler_agrees(run: Callable[..., Any]) -> None:
    seconds = {"read": 0.001, "decode": 0.004, "forward": 0.01}
    load, device = null_stages()

    def slow(part: Any, name: str) -> Callable[..., Any]:
        def stage(*arguments: Any) -> Any:
            time.sleep(seconds[name])
            return getattr(part, name)(*arguments)

        return stage

    loading: dict[str, Any] = {name: slow(load, name) for name in ("read", "decode")}
    stages = replace(load, **loading), replace(device, forward=slow(device, "forward"))
    ours, theirs = run(PROFILED, MANIFEST, stages)
    # On a busy machine there is one of a stage without work, too.
    differences = measure.differences(ours, theirs)
    expected = dict.fromkeys(seconds, pytest.approx(0, abs=0.25))
    assert {name: differences[name] for name in seconds} == expected
    assert min(theirs[name] for name in seconds) > theirs["resize"] >= 0
