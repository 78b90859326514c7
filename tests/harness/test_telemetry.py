"""Telemetry: of the devices that CUDA uses, by a sampler that ends when told to."""

import json
import os

import pytest

from harness import telemetry
from wallclock import machine


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["0", "1", "2"]),
        ("2,0", ["2", "0"]),
        ("GPU-4f1c, 1", ["GPU-4f1c", "1"]),
        ("1,7,0", ["1"]),
        ("", []),
    ],
)
def test_nvml_sees_the_gpus_that_cuda_sees(
    visible: str | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine._visible_gpus(3) == expected


def test_a_pass_shorter_than_a_sample() -> None:
    """The sampler may find `begin` and `end` in its pipe at once, and workers keep that open."""
    with telemetry.recorded("cpu") as recording:
        sampler = recording._sampler
        assert sampler.stdin is not None
        assert sampler.stdout is not None
        kept_open = os.dup(sampler.stdin.fileno())
        try:
            sampler.stdin.write(telemetry._BEGIN + telemetry._END)
            sampler.stdin.flush()
            sampler.wait(30)
            recording.values |= json.loads(sampler.stdout.read())
        finally:
            os.close(kept_open)
    assert recording.values["throttle_reasons"] == []
