"""The sampler: real processes on a CPU; a GPU's figures where there is one."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from wallclock.measure import telemetry


def test_cpu_use_of_a_child() -> None:
    burn = "while True: pass"
    sampler = telemetry.Telemetry()
    with subprocess.Popen([sys.executable, "-c", burn]) as child:
        try:
            sampler.sample_cpu()
            sampler.clear()
            before = psutil.Process(child.pid).cpu_times().user
            while psutil.Process(child.pid).cpu_times().user < before + 0.1:
                time.sleep(0.01)
            sampler.sample_cpu()
        finally:
            child.kill()
    values = sampler.as_values()
    (total,), (other,) = values["cpu_cores"], values["other_cores"]
    own, *children = (cores for (cores,) in values["cpu_cores_by_process"])
    assert max(children) > 0, "the child's CPU use"
    assert total == pytest.approx(own + sum(children), abs=1e-3)
    assert other >= 0
    assert "gpu_util" not in values
    assert values["throttle_reasons"] == []


def test_sampling_ends_with_its_block() -> None:
    with pytest.raises(ZeroDivisionError), telemetry.recorded("cpu") as sampler:  # noqa: PT012
        while not sampler.samples.get("cpu_cores"):
            time.sleep(0.01)
        1 / 0  # noqa: B018
    count = len(sampler.samples["cpu_cores"])
    time.sleep(0.3)
    assert len(sampler.samples["cpu_cores"]) == count


@pytest.mark.cuda
def test_gpu_samples() -> None:
    with telemetry.recorded("cuda") as sampler:
        while len(sampler.samples.get("gpu_util", ())) < 2:
            time.sleep(0.05)
    assert sampler.samples["gpu_mem_mib"][0] > 0
