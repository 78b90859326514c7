"""What would help a model: read beside its passes, and with `--try` measured once the program ends.

Facts are read in a few passes; the last one counts. One table has all remedies.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from . import layout
from .tracer import Tracer

#: Images at a time from which a CPU and a GPU have enough to do, and those of a small batch.
_BATCHES = {"cpu": 16, "cuda": 64}
_SMALL = 4
#: Passes that take so many times as long as the fastest one wait for cores.
_DISTURBED = 1.25
_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "asimdbf16", "bf16", "svebf16"}
#: Between the parts of a text for the report.
PARTED = "|"


class Pass(NamedTuple):
    """A pass of a model: what was called, with what, and how torch was set.

    `images`: of its batch. `workers`: child processes of multiprocessing. `cores`: of this rank.
    `disturbed`: the mean time of an image over its time in the fastest pass. `trains`: whether
    gradients are used. `grew`: bytes by which the process grew with each pass of late.
    """

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    images: int
    device: str
    dtype: str
    records: bool
    is_inference: bool
    autocast: Any
    threads: int
    workers: int
    cores: int
    disturbed: float
    trains: bool
    grew: float


class Remedy(NamedTuple):
    """What is wrong, and the change of the program, both with fields of the pass."""

    name: str
    applies: Callable[[Pass], bool]
    what: str
    change: str


def _is_training(module: Any) -> bool:
    """Whether a part computes something else, and more, as it is in training mode."""
    for part in module.modules():
        name, rate = type(part).__name__, getattr(part, "p", getattr(part, "drop_prob", 0))
        if part.training and ("BatchNorm" in name or ("Drop" in name and rate)):
            return True
    return False


def _is_convolutional(module: Any) -> bool:
    """Whether most weights are of convolutions, whose channels are not last in memory."""
    weights = list(module.parameters())
    kernels = [w for w in weights if w.dim() == 4 and w.shape[-1] > 1 and w.shape[1] > 1]
    part = sum(w.numel() for w in kernels) / max(1, sum(w.numel() for w in weights))
    return part > 1 / 2 and not any(w.stride(1) == 1 for w in kernels)


def _has_bf16(device: str) -> bool:
    """Whether the CPU has instructions for bf16, or the GPU tensor cores for it."""
    if device == "cuda":
        cuda: Any = sys.modules["torch"].cuda
        return bool(cuda.get_device_capability() >= (8, 0))
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as opened:
            lines = (line for line in opened if line.startswith(("flags", "Features")))
            return not _BF16_FLAGS.isdisjoint(next(lines, "").split())
    except OSError:
        return False


def _is_eager(module: Any) -> bool:
    config = getattr(module, "config", None)
    is_eager = getattr(config, "_attn_implementation", "") == "eager"
    return is_eager and hasattr(module, "set_attn_implementation")


def _leaves_cores(seen: Pass) -> bool:
    return seen.device == "cpu" and seen.threads + seen.workers < seen.cores


def _is_in_the_way(seen: Pass) -> bool:
    is_many = seen.threads > 1 and seen.workers > 0 and seen.threads + seen.workers > seen.cores
    return seen.device == "cpu" and is_many and seen.disturbed > _DISTURBED


#: The first that applies is named first: what costs nothing, then what changes the vectors.
REMEDIES = (
    Remedy(
        "gradients",
        lambda seen: seen.records and not seen.trains,
        "gradients are recorded, though nothing is trained",
        "call the model inside `with torch.inference_mode():`",
    ),
    Remedy(
        "turns",
        _is_in_the_way,
        "{threads} threads of torch and {workers} workers take turns on {cores} cores",
        "torch.set_num_threads({spare_cores})",
    ),
    Remedy(
        "threads",
        _leaves_cores,
        "torch uses {threads} of {cores} cores",
        "torch.set_num_threads({spare_cores}), or OMP_NUM_THREADS={spare_cores}",
    ),
    Remedy(
        "training mode",
        lambda seen: not seen.trains and _is_training(seen.module),
        "the model is in training mode: dropout and batch statistics change its vectors",
        "model.eval()",
    ),
    Remedy(
        "batch",
        lambda seen: 0 < seen.images <= _SMALL and not seen.trains,
        "the model gets {images} of the images at a time",
        "give it {batch} at a time",
    ),
    Remedy(
        "attention",
        lambda seen: _is_eager(seen.module),
        "attention is computed step by step (eager)",
        'model.set_attn_implementation("sdpa")',
    ),
    Remedy(
        "bf16",
        lambda seen: seen.dtype == "torch.float32" and not seen.autocast and _has_bf16(seen.device),
        "the model computes in FP32, and this {kind} has bf16",
        'call the model inside `with torch.autocast("{device}", dtype=torch.bfloat16):`',
    ),
    Remedy(
        "channels last",
        lambda seen: _is_convolutional(seen.module),
        "convolutions work on channels that are far apart in memory",
        "model.to(memory_format=torch.channels_last), and the batch too",
    ),
)


def spare_cores(seen: Pass) -> int:
    """Cores that the workers leave to the model, at least one."""
    return max(1, seen.cores - seen.workers)


def full_batch(seen: Pass) -> int:
    """Images at a time that the device has enough to do with."""
    return _BATCHES.get(seen.device, _BATCHES["cpu"])


class Models:
    """Reads what each model's passes are like. `keeps`: whether the last pass is kept, to try."""

    def __init__(self, tracer: Tracer, *, keeps: bool) -> None:
        self._tracer, self._keeps = tracer, keeps
        self._calls: dict[int, int] = {}
        #: Slot → passes so far, and the process's bytes then.
        self._sizes: dict[int, tuple[int, int]] = {}
        #: Slot → the last pass of this thread's models, and the remedies that apply.
        self.last: dict[int, tuple[Pass, list[Remedy]]] = {}

    def note(self, slot: int, images: int, module: Any, args: Any, kwargs: Any) -> None:
        """A pass begins. Of few passes facts are read: the second, the fourth, the eighth …"""
        calls = self._calls[slot] = self._calls.get(slot, 0) + 1
        if calls & (calls - 1) or calls == 1 or self._tracer.counters.words[layout.IS_WORKER]:
            return
        try:
            self._read(slot, images, module, args, kwargs)
        except Exception as error:  # noqa: BLE001 - the pass itself must run
            self._tracer.complain("a model", error)

    def _read(self, slot: int, images: int, module: Any, args: Any, kwargs: Any) -> None:
        torch: Any = sys.modules["torch"]
        view = self._tracer.view()
        weights = list(module.parameters())
        if not weights:
            return
        device = weights[0].device.type
        least, n_images = view[slot + layout.LEAST], view[slot + 2]
        backward = self._tracer.slot("backward", "torch.autograd.backward")
        processes: Any = sys.modules.get("multiprocessing.process")
        cast = torch.is_autocast_enabled(device) if device in _BATCHES else False
        seen = Pass(
            module,
            args if self._keeps else (),
            kwargs if self._keeps else {},
            images,
            device,
            str(weights[0].dtype),
            torch.is_grad_enabled() and any(weight.requires_grad for weight in weights),
            torch.is_inference_mode_enabled(),
            torch.get_autocast_dtype(device) if cast else None,
            torch.get_num_threads(),
            len(getattr(processes, "_children", ())),
            _cores(),
            view[slot] / n_images / least if n_images and least else 1.0,
            view[backward + 1] > 0,
            self._growth(slot),
        )
        applying = [remedy for remedy in REMEDIES if remedy.applies(seen)]
        if self._keeps:
            self.last[slot] = seen, applying
        told = {"calls": self._calls[slot], **_texts(seen, applying)}
        self._tracer.write_use(f"{type(module).__name__}.forward", told)

    def _growth(self, slot: int) -> float:
        calls, size = self._calls[slot], resident_bytes()
        calls_before, size_before = self._sizes.get(slot, (0, size))
        self._sizes[slot] = calls, size
        return (size - size_before) / (calls - calls_before)


def resident_bytes() -> int:
    """Of this process's memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as opened:
            return int(opened.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _cores() -> int:
    """Cores of this process: ranks that a launcher started divide those of the machine."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, len(os.sched_getaffinity(0)) // (int(ranks) if ranks.isdigit() else 1))


def _texts(seen: Pass, applying: Iterable[Remedy]) -> Mapping[str, str]:
    """Name of a remedy → what is wrong, and the change."""
    fields: dict[str, Any] = {"kind": {"cpu": "CPU", "cuda": "GPU"}.get(seen.device, seen.device)}
    fields.update(seen._asdict(), spare_cores=spare_cores(seen), batch=full_batch(seen))
    return {
        remedy.name: f"{remedy.what}{PARTED}{remedy.change}".format(**fields) for remedy in applying
    }
