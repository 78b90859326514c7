"""Protocol `layers`: the forward pass by operator and module, and a trace of one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from wallclock.errors import Unavailable
from wallclock.measure.protocol import Measurement, Progress, open_corpus
from wallclock.measure.runtimes import first_batch, timed
from wallclock.spec import Cell
from wallclock.stages import forward, transfer
from wallclock.thread_counts import set_threads

#: The trace that is kept beside the record; chrome://tracing and ui.perfetto.dev open it.
TRACE = "trace-forward.json.gz"

_PREFIX = "module::"


def layers(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Time `params.batches` batches without torch.profiler, then profile as many.

    Samples: `batch`, one for each batch without the profiler. Values: `operators` and `modules`,
    milliseconds of a batch under the profiler: on a GPU of the device, elsewhere of the CPU; an
    operator's own, a module's with all that it calls. The profiler's overhead is `profiled_ms` over
    the batch's own time.
    """
    recipe, model = cell.recipe, cell.model
    if model.weights == "none":
        raise Unavailable("the model is a mock model without a network: it has no layers")
    threads = set_threads(recipe, uses_torch=True)
    images, _ = first_batch(open_corpus(cell), recipe, model)
    move = transfer.make(recipe.device)
    eager = replace(recipe, runtime="pytorch", compile="none")
    request = forward.prepare(model, eager, None, forward.cache_of(work))
    run, network = forward.build(request).run, request.network
    batch, batches = move.h2d(images), int(cell.params["batches"])
    run(batch)
    samples = timed(lambda: run(batch), move.synchronize, batches, lambda done: None)
    progress(batches * recipe.batch_size)
    on_gpu = recipe.device == "cuda"
    profile = _profile(network, lambda: run(batch), batches, on_gpu)
    profile.export_chrome_trace(str(work / TRACE))
    events = [event for event in profile.key_averages() if event.count]
    modules = _modules(events, network, batches, on_gpu)
    values = {
        **threads,
        "weights_digest": request.weights_digest,
        "operators": _operators(events, batches, on_gpu),
        "modules": modules,
        "profiled_ms": max(module["ms"] for module in modules),
    }
    return Measurement({"batch": samples}, values, keep=[work / TRACE])


def _profile(network: Any, run: Callable[[], object], batches: int, on_gpu: bool) -> Any:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with _labelled(network), profile(activities=activities) as recorded:
        with record_function("warm-up"):
            pass  # the first one costs milliseconds
        for _ in range(batches):
            run()
        if on_gpu:
            torch.cuda.synchronize()
    return recorded


@contextmanager
def _labelled(network: Any) -> Iterator[None]:
    """Let every call of a module appear in the profile under its name."""
    from torch.profiler import record_function

    hooks = []
    open_calls: list[Any] = []

    def enter(name: str) -> Any:
        def hook(module: Any, arguments: Any, keywords: Any) -> None:
            open_calls.append(record_function(_PREFIX + name))
            open_calls[-1].__enter__()

        return hook

    def leave(module: Any, arguments: Any, output: Any) -> None:
        open_calls.pop().__exit__(None, None, None)

    for name, module in network.named_modules():
        hooks.append(module.register_forward_pre_hook(enter(name), with_kwargs=True))
        hooks.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _operators(events: Sequence[Any], batches: int, on_gpu: bool) -> list[dict[str, Any]]:
    time_of = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    rows = [
        {
            "operator": event.key,
            "calls": event.count / batches,
            "ms": getattr(event, time_of) / 1e3 / batches,
        }
        for event in events
        if event.key.startswith("aten::")
    ]
    return sorted(rows, key=lambda row: -row["ms"])


def _modules(
    events: Sequence[Any], network: Any, batches: int, on_gpu: bool
) -> list[dict[str, Any]]:
    """In the order of the network."""
    time_of = "device_time_total" if on_gpu else "cpu_time_total"
    by_name = {
        event.key.removeprefix(_PREFIX): event for event in events if event.key.startswith(_PREFIX)
    }
    return [
        {
            "layer": name,
            "kind": type(module).__name__,
            "depth": name.count(".") + 1 if name else 0,
            "calls": by_name[name].count / batches,
            "ms": getattr(by_name[name], time_of) / 1e3 / batches,
            "parameters": sum(value.numel() for value in module.parameters()),
        }
        for name, module in network.named_modules()
        if name in by_name
    ]
