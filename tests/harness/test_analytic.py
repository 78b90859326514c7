"""Feeding an accelerator: mlsysim is the oracle on random inputs."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.analytic import feed, overlap
from harness.pipeline_model.costs import Machine

POSITIVE = st.floats(1e-3, 1e12)


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
