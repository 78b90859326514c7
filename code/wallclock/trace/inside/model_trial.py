"""After the program has ended: its model as it was and with each change, on a batch that it saw."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from . import layout
from .models import PARTED, Pass, Remedy, full_batch, resident_bytes, spare_cores
from .tracer import Tracer

#: Pairs of passes, and seconds for those of a change and for all.
_LEAST_PAIRS, _MOST_PAIRS, _EACH_S, _ALL_S = 3, 40, 3.0, 15.0
#: Where results are kept, as the program kept them: by how many bytes the process may grow.
_MOST_KEPT = 1 << 30
#: Use, in the text of the counters: name of the model, then of each change what was measured.
TRIED = "tried "
_Change = Callable[[Pass], Any]


def try_model(tracer: Tracer) -> None:
    """Measure every remedy of the model that took most time in this process."""
    words = tracer.counters.words
    last = tracer.models.last if tracer.models else {}
    if not last or words[layout.IS_WORKER] or os.environ.get("LOCAL_RANK", "0") != "0":
        return
    started, cpu_started = time.perf_counter_ns(), time.process_time_ns()
    tracer.local.in_model = True  # nothing here is counted
    try:
        # What a model prints, the program did not.
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            _try_all(tracer, last)
    except BaseException as error:  # noqa: BLE001 - also Ctrl-C: the program has ended well
        tracer.complain("the model, which was to be tried,", error)
    words[layout.TRIED_CPU_NS] = time.process_time_ns() - cpu_started
    words[layout.TRIED_NS] = time.perf_counter_ns() - started


def _try_all(tracer: Tracer, last: dict[int, tuple[Pass, list[Remedy]]]) -> None:
    seen, remedies = last[max(last, key=lambda slot: tracer.view()[slot])]
    name = type(seen.module).__name__
    if name in ("OptimizedModule", "FullyShardedDataParallel"):
        return
    if name == "DistributedDataParallel":  # its passes wait for the other ranks
        seen = seen._replace(module=seen.module.module)
    until, tried = time.monotonic() + _ALL_S, {}
    for remedy in remedies:
        if time.monotonic() < until:
            tried[remedy.name] = _try(seen, remedy.name)
    tracer.write_use(f"{TRIED}{name}.forward", tried)


def _try(seen: Pass, name: str) -> str:
    """Gain in the middle, at least and at most, and the least cosine of the vectors."""
    gains: list[float] = []
    times = -(-full_batch(seen) // seen.images) if name == "batch" else 1
    changed = _repeated(seen, times)
    with _as_it_was(seen), _crowd(seen.workers if name == "turns" else 0):
        _, before = _run(seen)
        with _CHANGES[name](changed):
            _, after = _run(changed)
        cosine = _least_cosine(before, after)
        kept: list[Any] | None = [] if name == "gradients" and keeps_graphs(seen) else None
        until, most_bytes = time.monotonic() + _EACH_S, resident_bytes() + _MOST_KEPT
        while len(gains) < _LEAST_PAIRS or (
            len(gains) < _MOST_PAIRS and time.monotonic() < until and resident_bytes() < most_bytes
        ):
            took_s, _ = _run(seen, kept)
            with _CHANGES[name](changed):
                changed_s, _ = _run(changed)
            gains.append(times * took_s / changed_s)
    gains.sort()
    n = len(gains)
    middle = (gains[(n - 1) // 2] + gains[n // 2]) / 2
    values = middle, gains[n // 8], gains[-1 - n // 8], cosine  # of few pairs, all of them
    return PARTED.join(f"{value:.6g}" for value in values)


def keeps_graphs(seen: Pass) -> bool:
    """Whether the program grew with each pass as it does with a result that is kept.

    Such a result keeps all that its gradients would need, for which each pass takes new memory.
    """
    kept: list[Any] = []
    _run(seen, kept)  # takes what memory is free
    before = resident_bytes()
    _run(seen, kept)
    return 0 < resident_bytes() - before < 2 * seen.grew


def _run(seen: Pass, kept: list[Any] | None = None) -> tuple[float, Any]:
    """Seconds of a pass, with the backward pass where the program trains; its vectors."""
    started = time.perf_counter()
    result = _vectors(seen.module(*seen.args, **seen.kwargs))
    if seen.trains:
        result.float().sum().backward()
    if seen.device == "cuda":
        _torch().cuda.synchronize()
    if kept is not None:
        kept.append(result)
    result = result.detach()  # what gradients would need goes, which takes its time
    return time.perf_counter() - started, result


def _torch() -> Any:
    return sys.modules["torch"]


def _vectors(result: Any) -> Any:
    """The first tensor of what a model gives."""
    if hasattr(result, "detach"):
        return result
    values = result.values() if hasattr(result, "values") else result
    return next(_vectors(value) for value in values if value is not None)


def _least_cosine(before: Any, after: Any) -> float:
    rows = min(len(before), len(after))
    pair = (each[:rows].reshape(rows, -1).double() for each in (before, after))
    return float(_torch().nn.functional.cosine_similarity(*pair).min())


def _repeated(seen: Pass, times: int) -> Pass:
    """The same images so many times in a batch."""

    def more(value: Any) -> Any:
        if times == 1 or not hasattr(value, "detach") or len(value) != seen.images:
            return value
        return value.repeat(times, *[1] * (value.dim() - 1))

    kwargs = {key: more(value) for key, value in seen.kwargs.items()}
    return seen._replace(args=tuple(map(more, seen.args)), kwargs=kwargs)


@contextmanager
def _as_it_was(seen: Pass) -> Iterator[None]:
    """Torch as it was set in the program's pass."""
    torch = _torch()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(seen.is_inference))
        if not seen.is_inference:
            stack.enter_context(torch.set_grad_enabled(seen.records or seen.trains))
        if seen.autocast:
            stack.enter_context(torch.autocast(seen.device, dtype=seen.autocast))
        stack.enter_context(_threads(seen.threads))
        yield


@contextmanager
def _crowd(workers: int) -> Iterator[None]:
    """Processes that use the cores as the program's workers did."""
    command = [sys.executable, "-S", "-E", "-c", "while True: pass"]
    busy = [subprocess.Popen(command) for _ in range(workers)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@contextmanager
def _switched(switch: Callable[[Any], Any], on: Any, off: Any) -> Iterator[None]:
    switch(on)
    yield
    switch(off)


def _threads(number: int) -> Any:
    torch = _torch()
    return _switched(torch.set_num_threads, number, torch.get_num_threads())


def _evaluating(seen: Pass) -> Any:
    parts = [part for part in seen.module.modules() if part.training]

    def switch(on: bool) -> None:
        for part in parts:
            part.training = on

    return _switched(switch, False, True)


def _channels_last(seen: Pass) -> Any:
    layouts = _torch().channels_last, _torch().contiguous_format
    return _switched(lambda layout: seen.module.to(memory_format=layout), *layouts)


#: Remedy of `models.REMEDIES` → what is around the pass with the change.
_CHANGES: dict[str, _Change] = {
    "gradients": lambda seen: _torch().no_grad(),
    "turns": lambda seen: _threads(spare_cores(seen)),
    "threads": lambda seen: _threads(spare_cores(seen)),
    "training mode": _evaluating,
    "batch": lambda seen: ExitStack(),
    "attention": lambda seen: _switched(seen.module.set_attn_implementation, "sdpa", "eager"),
    "bf16": lambda seen: _torch().autocast(seen.device, dtype=_torch().bfloat16),
    "channels last": _channels_last,
}
