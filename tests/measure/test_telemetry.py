"""The sampler: real processes on a CPU; a GPU's numbers where there is one."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from wallclock.measure import telemetry

BURN = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"


def test_cpu_use_of_this_process_and_its_children() -> None:
    child = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        with telemetry.recorded("cpu") as found:
            time.sleep(1.0)
    finally:
        child.kill()
        child.wait()
    values = found.as_values()
    assert len(values["cpu_cores"]) >= 5
    assert max(values["cpu_cores"]) > 0.3, "the child burns a core"
    assert len(values["cpu_cores_by_process"]) >= 2, "this process and the child"
    assert len(values["other_cores"]) == len(values["cpu_cores"])
    assert all(cores >= 0 for cores in values["other_cores"])
    assert "gpu_util" not in values
    assert values["throttle_reasons"] == []


def test_it_stops_with_its_block_even_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), telemetry.recorded("cpu") as found:
        1 / 0  # noqa: B018
    count = len(found.as_values().get("cpu_cores", []))
    time.sleep(0.3)
    assert len(found.as_values().get("cpu_cores", [])) == count


@pytest.mark.cuda
def test_gpu_samples() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    with telemetry.recorded("cuda") as found:
        time.sleep(0.5)
    assert len(found.samples["gpu_util"]) >= 2
    assert found.samples["gpu_mem_mib"][0] > 0
