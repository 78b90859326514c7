"""The textbook's case to the last digit, and mlsysim as the oracle on random inputs."""

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.analytic import feed, overlap
from wallclock.predict.costs import JobSetup, Machine, StageCosts, StepTime
from wallclock.predict.model import Pipeline

KB, MB, GB = 1e3, 1e6, 1e9
#: Batch size: milliseconds of a ResNet-50 step on an A100 and of the transform, utilization in %.
TABLE = {
    32: ("5.86", "8", "73.2"),
    64: ("6.70", "16", "41.9"),
    128: ("8.38", "32", "26.2"),
    256: ("11.74", "64", "18.3"),
    512: ("18.47", "128", "14.4"),
    1024: ("31.93", "256", "12.5"),
}
STEP_S = {size: float(step_ms) / 1e3 for size, (step_ms, _, _) in TABLE.items()}
POSITIVE = st.floats(1e-3, 1e12)


@pytest.mark.parametrize("size", TABLE)
def test_predict_agrees_with_the_table(size: int) -> None:
    _, transform_ms, percent = TABLE[size]
    costs = StageCosts(decode_s=500 * KB / (250 * MB))
    step, setup = StepTime(STEP_S[size]), JobSetup(8, size)
    expected = Pipeline(costs, step, Machine(cores=8), setup).predict()
    assert f"{1e3 * size / expected.img_per_s:.10g}" == transform_ms
    assert f"{100 * expected.accelerator_utilization:.1f}" == percent
    assert expected.bottleneck == "transform"


def test_the_tables_steps_are_on_one_line() -> None:
    assert f"{overlap(35, 1 * MB, 1 * GB, 0.020).utilization:.0%}" == "57%"
    step = StepTime.fit(STEP_S.items())
    for size, seconds in STEP_S.items():
        assert step.batch_s(size) == pytest.approx(seconds, rel=2e-3)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.integers(1, 4096), POSITIVE, POSITIVE, st.floats(1e-6, 1e4))
def test_overlap_agrees_with_the_oracle(
    size: int, sample: float, rate: float, step_s: float
) -> None:
    from mlsysim.core.units import Q_
    from mlsysim.engine.solvers import TransformationModel

    ours = overlap(size, sample, rate, step_s)
    quantities = (Q_(sample, "byte"), Q_(rate, "byte/s"), Q_(step_s, "s"))
    theirs = TransformationModel().solve(size, *quantities)
    assert 1e3 * ours.transform_s == pytest.approx(theirs.transform_time.magnitude, rel=1e-9)
    assert ours.utilization == pytest.approx(theirs.accelerator_utilization, rel=1e-9)
    assert ours.slowdown == pytest.approx(theirs.slowdown_factor, rel=1e-9)


@pytest.mark.slow
@settings(max_examples=100)
@given(POSITIVE, POSITIVE, POSITIVE)
def test_feed_agrees_with_the_oracle(demand: float, storage: float, link: float) -> None:
    from mlsysim import Hardware
    from mlsysim.core.units import Q_
    from mlsysim.engine.solvers import DataModel
    from mlsysim.hardware.types import IOInterconnect, StorageHierarchy

    paths = {
        "storage": StorageHierarchy(capacity=Q_("1 TB"), bandwidth=Q_(storage, "byte/s")),
        "interconnect": IOInterconnect(name="link", bandwidth=Q_(link, "byte/s")),
    }
    theirs = DataModel().solve(Q_(demand, "byte/s"), Hardware.Cloud.A100.model_copy(update=paths))
    ours = feed(demand, storage=storage, interconnect=link)
    supply = theirs.supply_bw.to("byte/s").magnitude
    assert ours.utilization == pytest.approx(theirs.utilization, rel=1e-9)
    assert ours.supply_bytes_per_s == pytest.approx(supply, rel=1e-9)
    if ours.utilization != pytest.approx(1, rel=1e-9):
        assert ours.is_stalled == theirs.is_stalled
    if storage != pytest.approx(link, rel=1e-9):
        assert ours.bottleneck == theirs.bottleneck.lower()


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
def test_no_bandwidth_is_an_error(bad: float) -> None:
    for position in range(4):
        arguments: list[float] = [1, 1.0, 1.0, 1.0]
        arguments[position] = bad
        with pytest.raises(ValueError, match="give a finite number above 0"):
            overlap(*arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="storage in bytes per second"):
        feed(1.0, storage=bad)
    with pytest.raises(ValueError, match="no path"):
        feed(1.0)
    with pytest.raises(ValueError, match="storage_bytes_per_s"):
        Machine(cores=1, storage_bytes_per_s=bad)


def test_predict_loads_neither_torch_nor_hydra() -> None:
    unwanted = "{'torch', 'hydra', 'numpy', 'mlsysim'}"
    program = f"import sys, wallclock.predict.model; print({unwanted} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program]) == b"set()\n"
