"""GumGum's parts from its rungs, and the rungs from the parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ladder.parts import PRINTED, parts, rate


def test_parts_as_the_docstring_has_them() -> None:
    request = parts(0.05, 0.05)
    assert request.download_s + request.callback_s == pytest.approx(2 / 9)
    assert request.preprocess_s == pytest.approx(1 / 9 - 1 / 21)
    assert [request.step.batch_s(n) for n in (1, 8)] == pytest.approx([1 / 21, 8 / 28])
    assert (request.step.fixed_s, request.step.per_image_s) == pytest.approx(
        (0.0136, 0.0340), rel=1e-2
    )
    assert request.device_share == pytest.approx(0.35)
    assert request.device.batch_s(1) + request.host_s == pytest.approx(1 / 21)
    assert 1 / parts(0.05, 1 / 7).device.per_image_s == pytest.approx(29.4)


@given(duty=st.floats(0.01, 1 / 7), callback_ms=st.floats(10, 107))
def test_rungs_follow_whatever_the_source_leaves_open(duty: float, callback_ms: float) -> None:
    request = parts(callback_ms / 1e3, duty)
    assert [rate(rung, request) for rung in (1, 2, 3, 4)] == pytest.approx(PRINTED)
    assert rate(5, request, batch=32) <= 1 / request.device.per_image_s


@pytest.mark.parametrize(("duty", "times"), [(0.05, 2.96), (0.09, 1.65), (1 / 7, 1.04)])
def test_rung_5_depends_on_the_duty(duty: float, times: float) -> None:
    assert rate(5, parts(0.05, duty), batch=32) / PRINTED[3] == pytest.approx(times, abs=0.01)


@pytest.mark.parametrize(
    ("rung", "callback_s", "workers", "expected"),
    [(4, 0.2, 8, 15.0), (4, 0.05, 1, 15.75), (5, 0.2, 8, 82.96)],
)
def test_other_resources_limit_too(
    rung: int, callback_s: float, workers: int, expected: float
) -> None:
    """Three callbacks at a time, or one worker; rung 5 has as many connections as it takes."""
    request = parts(callback_s, 0.05)
    batch = 32 if rung == 5 else 8
    assert rate(rung, request, workers, batch) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("callback_s", "duty", "printed"),
    [(0.3, 0.05, PRINTED), (0.05, 0.2, PRINTED), (0.05, 0, PRINTED), (0.05, 0.05, (3, 9, 9, 28))],
)
def test_no_parts(callback_s: float, duty: float, printed: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="no parts give"):
        parts(callback_s, duty, printed)
