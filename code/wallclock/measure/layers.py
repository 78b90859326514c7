"""Protocol `layers`: the forward pass opened up by torch.profiler: operators, modules, and a trace of one batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from wallclock.clock import gc_disabled
from wallclock.errors import Unavailable
from wallclock.measure.protocol import Measurement, Progress, open_corpus
from wallclock.measure.runtimes import first_batch
from wallclock.spec import Cell
from wallclock.stages import forward, transfer
from wallclock.thread_counts import set_threads

#: The trace that is kept beside the record; chrome://tracing and ui.perfetto.dev open it as it is.
TRACE = "trace-forward.json.gz"

_PREFIX = "module::"


def layers(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Time `params.batches` batches without the profiler, then profile as many.

    Samples: `batch`, one a batch without the profiler. Values: `operators` and `modules`, milliseconds of a batch
    under the profiler: of the device on a GPU, of the CPU elsewhere; of an operator without what it calls, of a
    module with all that is in it. What the profiler itself costs is `profiled_ms` over the batch's own time.
    """
    recipe, model = cell.recipe, cell.model
    if model.weights == "none":
        raise Unavailable(
            "the model is a mock model without a network: there are no layers to look at"
        )
    threads = set_threads(recipe, uses_torch=True)
    images, _ = first_batch(open_corpus(cell), recipe, model)
    move = transfer.make(recipe.device)
    network = forward.load_network(model)
    digest, _ = forward.digest_of(network)
    batch = move.h2d(images)
    run = forward.bound(network, recipe.device, recipe.dtype)
    wait = move.synchronize or (lambda: None)
    batches = int(cell.params["batches"])
    run(batch)
    samples = [_timed(run, batch, wait) for _ in range(batches)]
    progress(batches * recipe.batch_size)
    recorded = _profiled(network, run, batch, wait, batches, recipe.device)
    recorded.export_chrome_trace(str(work / TRACE))
    on_gpu = recipe.device == "cuda"
    found = [event for event in recorded.key_averages() if event.count]
    modules, operators = (
        _modules(found, network, batches, on_gpu),
        _operators(found, batches, on_gpu),
    )
    values: dict[str, Any] = {
        **threads,
        "weights_digest": digest,
        "operators": operators,
        "modules": modules,
    }
    values["profiled_ms"] = max(module["ms"] for module in modules)
    return Measurement({"batch": samples}, values, keep=[work / TRACE])


def _timed(run: Any, batch: Any, wait: Any) -> int:
    with gc_disabled():
        began = perf_counter_ns()
        run(batch)
        wait()
        return perf_counter_ns() - began


def _profiled(network: Any, run: Any, batch: Any, wait: Any, batches: int, device: str) -> Any:
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with _labelled(network), profile(activities=activities) as recorded:
        with record_function("warm-up"):
            pass  # the first one costs milliseconds
        for _ in range(batches):
            run(batch)
        wait()
    return recorded


@contextmanager
def _labelled(network: Any) -> Iterator[None]:
    """Every call of a module shows up in the profile under its name."""
    from torch.profiler import record_function

    hooks = []
    open_calls: list[Any] = []

    def enter(name: str) -> Any:
        def hook(module: Any, arguments: Any, keywords: Any) -> None:
            call: Any = record_function(_PREFIX + name)
            call.__enter__()
            open_calls.append(call)

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


def _operators(found: list[Any], batches: int, on_gpu: bool) -> list[dict[str, Any]]:
    rows = [
        {
            "operator": event.key,
            "calls": event.count / batches,
            "ms": (event.self_device_time_total if on_gpu else event.self_cpu_time_total)
            / 1e3
            / batches,
        }
        for event in found
        if not event.key.startswith(_PREFIX) and event.key.startswith("aten::")
    ]
    return sorted(rows, key=lambda row: -row["ms"])


def _modules(found: list[Any], network: Any, batches: int, on_gpu: bool) -> list[dict[str, Any]]:
    """In the order of the network."""
    totals = {
        event.key.removeprefix(_PREFIX): event for event in found if event.key.startswith(_PREFIX)
    }
    return [
        {
            "layer": name,
            "kind": type(module).__name__,
            "depth": name.count(".") + 1 if name else 0,
            "calls": totals[name].count / batches,
            "ms": (totals[name].device_time_total if on_gpu else totals[name].cpu_time_total)
            / 1e3
            / batches,
            "parameters": sum(value.numel() for value in module.parameters()),
        }
        for name, module in network.named_modules()
        if name in totals
    ]
