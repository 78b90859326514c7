"""Protocol `layers`: the forward pass by operator and module, and a trace of one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from wallclock.measure.protocol import Measurement, Progress, no_progress, open_corpus
from wallclock.measure.runtimes import first_batch, require_network, timed
from wallclock.spec import Cell
from wallclock.stages import forward, transfer
from wallclock.thread_counts import set_threads

#: The trace that is kept with the record; chrome://tracing and ui.perfetto.dev open it.
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
    require_network(model)
    threads = set_threads(recipe, uses_torch=True)
    images, _ = first_batch(open_corpus(cell), recipe, model)
    move = transfer.make(recipe.device)
    eager = replace(recipe, runtime="pytorch", compile="none")
    request = forward.prepare(model, eager, None, forward.cache_of(work))
    run, network = forward.build(request).run, request.network
    batch, n = move.h2d(images), int(cell.params["batches"])
    run(batch)
    samples = timed(lambda: run(batch), move.synchronize, n, no_progress)
    progress(n * recipe.batch_size)
    on_gpu = recipe.device == "cuda"
    profile = _profile(network, lambda: run(batch), n, on_gpu)
    profile.export_chrome_trace(str(work / TRACE))
    events = {event.key: event for event in profile.key_averages() if event.count}
    time_of = "device_time_total" if on_gpu else "cpu_time_total"

    def row(key: str, attribute: str) -> dict[str, Any]:
        ms = getattr(events[key], attribute) / 1e3 / n
        return {"calls": events[key].count / n, "ms": ms}

    names = [key for key in events if key.startswith("aten::")]
    operators = [{"operator": key, **row(key, f"self_{time_of}")} for key in names]
    modules = [
        {
            "layer": name,
            "kind": type(module).__name__,
            "depth": name.count(".") + 1 if name else 0,
            "parameters": sum(value.numel() for value in module.parameters()),
            **row(_PREFIX + name, time_of),
        }
        for name, module in network.named_modules()
        if _PREFIX + name in events
    ]
    values = {
        **threads,
        "weights_digest": request.weights_digest,
        "operators": sorted(operators, key=lambda operator: -operator["ms"]),
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

    def enter(name: str, module: Any, arguments: Any) -> None:
        open_calls.append(record_function(_PREFIX + name))
        open_calls[-1].__enter__()

    def leave(module: Any, arguments: Any, output: Any) -> None:
        open_calls.pop().__exit__(None, None, None)

    for name, module in network.named_modules():
        hooks.append(module.register_forward_pre_hook(partial(enter, name)))
        hooks.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
