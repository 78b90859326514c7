"""Experiments on single stages, and other profilers beside ours."""

import cProfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from experiments.decoders import cells as decoders
from experiments.layers import cells as experiment
from experiments.layers.measure import layers
from experiments.profiler import measure
from harness.corpora.manifest import Item, Manifest
from harness.engines.pipeline import null_stages
from harness.profiler import StageProfiler
from harness.protocols.protocol import no_progress
from harness.spec import Cell, Recipe
from harness.table import read_table
from tests import fake_cuda
from tests.conftest import RunMain
from tests.fixture_run import fixture_records
from tests.harness.test_profiler import FakeClock
from wallclock.clock import STAGES
from wallclock.errors import Unavailable
from wallclock.recipe import ModelSpec

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
