"""What only the study needs of a machine: libraries, room, a GPU that is free and not held down."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from harness import native, telemetry
from harness.corpora.abo.prepare import OBJECT_BYTES
from wallclock import machine
from wallclock.doctor import Finding

#: Images that `make data` brings of each set.
_IMAGES = {"small_256": 100_000, "original": 5_000}
#: Of records, tables and figures of a run.
_RECORD_BYTES = 1_000_000_000
#: Of DataLoader's batches: 16 workers with two of 64 images in float32 each.
_SHARED_BYTES = 2_000_000_000
#: Of the GPU: a batch of 256, two copies of the network, the libraries' own.
_GPU_BYTES = 4 << 30
#: Cores that other programs may keep busy, and the seconds for which that is looked at.
_OTHER_CORES, _LOOK_S = 0.2, 1.0


def examine(out: Path, *, has_abo: bool) -> Iterator[Finding]:
    """What a run would miss here.

    Args:
        out: the folder that the run writes to.
        has_abo: whether the run is of the paper's images, which may have to be downloaded.
    """
    yield _turbojpeg()
    if machine.gpus():
        yield _onnxruntime()
    yield _disk(out, has_abo=has_abo)
    if (size := shutil.disk_usage("/dev/shm").total) < _SHARED_BYTES:
        state = f"{size / 1e6:,.0f} MB in /dev/shm: DataLoader's workers may die"
        yield Finding("shared memory", state, "docker run --shm-size=4g, or --ipc=host")
    yield from _gpu()
    yield from _others()


def _turbojpeg() -> Finding:
    if path := native.find_libturbojpeg():
        version = machine.libjpeg_turbo_version(os.path.realpath(path))
        return Finding("libturbojpeg", f"{version}, {path}")
    return Finding("libturbojpeg", "not found", native.INSTALL_HINT)


def _onnxruntime() -> Finding:
    """Whether it has a provider for the GPU, for the CUDA of torch, whose libraries it loads."""
    import onnxruntime
    import torch
    from onnxruntime.capi import build_and_package_info as about

    ours, theirs = torch.version.cuda or "", getattr(about, "cuda_version", "")
    state = f"{onnxruntime.__version__}, for CUDA {theirs or 'none'}; torch is for {ours or 'none'}"
    has_provider = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    fits = has_provider and ours.partition(".")[0] == theirs.partition(".")[0]
    cure = "" if fits else "take versions that fit: make setup LOCK=paper CUDA=128"
    return Finding("ONNX Runtime", state, cure)


def _disk(out: Path, *, has_abo: bool) -> Finding:
    folder = next(path for path in (out, *out.parents) if path.is_dir())
    free, needed = shutil.disk_usage(folder).free, _RECORD_BYTES
    if has_abo and not any((out / "corpora").glob("abo-*/small_256-first*.csv")):
        needed += sum(n * OBJECT_BYTES[name] for name, n in _IMAGES.items())
    state = f"{free / 1e9:.1f} GB free in {folder}; a run takes {needed / 1e9:.1f}"
    cure = "" if free > needed else "free some, or add ARGS=out=/another/disk"
    return Finding("disk", state, cure, stops=bool(cure))


def _gpu() -> Iterator[Finding]:
    """Memory for the largest batch, and whether the clocks are held down now."""
    with machine.nvml_handles() as handles:
        for handle in handles[:1]:
            free = machine.nvml().nvmlDeviceGetMemoryInfo(handle).free
            if free < _GPU_BYTES:
                cure = "end the programs that nvidia-smi lists"
                yield Finding("GPU memory", f"{free / 2**30:.1f} GiB free", cure)
            if reasons := telemetry.throttle_reasons(handle):
                cure = "let it cool, or end what else it runs; throttled rows say so"
                yield Finding("GPU clocks", f"held down: {', '.join(sorted(reasons))}", cure)


def _others() -> Iterator[Finding]:
    before = machine.busy_s()
    time.sleep(_LOOK_S)
    after = machine.busy_s()
    if before is not None and after is not None:
        cores = (after - before) / _LOOK_S
        if cores > _OTHER_CORES:
            cure = "end them; a pass that they disturb is taken again"
            yield Finding("other programs", f"keep {cores:.1f} cores busy", cure)
