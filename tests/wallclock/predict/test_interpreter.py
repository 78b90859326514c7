"""The interpreter's lock: how long an image holds it, and where that limits threads."""

import pytest

from wallclock.predict import JobSetup, Machine, Pipeline, StageCosts, StepTime
from wallclock.predict.interpreter import in_one_process, locked_s


@pytest.mark.parametrize(("load_ms", "locked_us"), [(0.25, 75), (4.0, 150), (0.0, 0), (0.05, 50)])
def test_seconds_under_the_lock(load_ms: float, locked_us: float) -> None:
    """As measured: 60 to 75 µs of a 256 px image of 0.25 ms, 50 to 200 of an original of 4 ms."""
    assert locked_s(load_ms / 1e3) == pytest.approx(locked_us / 1e6)


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(ValueError, match="load_s=-1"):
        locked_s(-1)


def rate(costs: StageCosts, cores: int) -> float:
    setup = JobSetup(cores, 64, "threads")
    return Pipeline(costs, StepTime(), Machine(cores), setup).rate()


def test_threads_of_one_process_stop_at_its_lock() -> None:
    costs = StageCosts(decode_s=0.25e-3)
    threads = in_one_process(costs)
    assert threads.load_s + threads.serialize_s == pytest.approx(costs.load_s)
    for cores in (1, 2):
        assert rate(threads, cores) == pytest.approx(rate(costs, cores)), "one core does as much"
    assert rate(costs, 16) == pytest.approx(64_000)
    assert rate(threads, 16) == pytest.approx(1e6 / 75)
