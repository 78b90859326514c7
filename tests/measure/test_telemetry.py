"""GPU telemetry: of the devices that CUDA uses."""

import pytest

from wallclock import provenance


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
    assert provenance._visible_gpus(3) == expected
