"""What counts as disturbed, and which pass stands."""

from typing import Any

import pytest

from harness import disturbance


@pytest.mark.parametrize(
    ("readings", "kept", "discarded"),
    [
        ([0.1, 0.0], 0.1, None),
        ([0.98, 0.05, 0.0], 0.05, [0.98]),
        ([0.3, 0.98, 0.02, 0.0], 0.02, [0.3, 0.98]),
        ([0.98, 0.2, 0.4, 0.0], 0.2, [0.98, 0.4]),
    ],
)
def test_a_disturbed_pass_is_taken_again(
    readings: list[float], kept: float, discarded: list[float] | None
) -> None:
    """At most three passes; the calmest one's result stands, with its own reading."""
    coming = iter(readings)

    def take_pass(values: dict[str, Any]) -> str:
        values["other_cores"] = next(coming)
        return f"with {values['other_cores']}"

    values = {"n": 3}
    assert disturbance.take_calmest(take_pass, values) == f"with {kept}"
    expected = {"n": 3, "other_cores": kept}
    assert values == expected | ({"discarded_other_cores": discarded} if discarded else {})
    assert disturbance.is_disturbed(values) == (kept > 0.1)


@pytest.mark.parametrize(
    ("values", "cores"),
    [
        ({"other_cores": 0.25}, 0.25),
        ({"telemetry": {"other_cores": [0.0, 0.5, 0.4]}}, 0.3),
        ({"telemetry": {"other_cores": []}}, None),
        ({"telemetry": {}}, None),
        ({}, None),
    ],
)
def test_what_others_took_is_read_from_the_record(
    values: dict[str, Any], cores: float | None
) -> None:
    assert disturbance.other_cores(values) == cores
    assert disturbance.is_disturbed(values) == (cores is not None)
