"""Protocol `layers`: one batch through the network again and again, by operator and module."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from harness import runtimes, telemetry
from harness.engines.pipeline import cache_of
from harness.processes import set_threads
from harness.protocols import protocol
from harness.protocols.network import ForwardPass, first_batch, require_network, timed
from harness.protocols.protocol import Measurement, Progress, no_progress
from harness.spec import Cell
from wallclock.stages import transfer

_PREFIX = "module::"


def layers(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Time `params.batches` batches without torch.profiler, then profile as many.

    Samples: `batch`, one for each batch without the profiler. Values: `modules`, milliseconds of a
    batch under the profiler with all that a module calls: on a GPU of the device, elsewhere of the
    CPU. The profiler's overhead is `profiled_ms` over the batch's own time.
    """
    recipe, model = replace(cell.recipe, normalize_on="host"), cell.model
    require_network(model)
    threads = set_threads(recipe, uses_torch=True)
    images, _ = first_batch(protocol.open_corpus(cell), recipe, model)
    move = transfer.make(recipe.device)
    eager = replace(recipe, runtime="pytorch", compile="none")
    request = runtimes.prepare(model, eager, None, cache_of(work))
    run = runtimes.build(request).run
    network = request.network
    batch = move.h2d(images)
    n = int(cell.params["batches"])
    run(batch)
    run_batch = partial(run, batch)
    with telemetry.of_gpu(recipe.device) as readings:
        samples = timed(run_batch, move.synchronize, n, no_progress)
    progress(n * recipe.batch_size)
    on_gpu = recipe.device == "cuda"
    profile = _profile(network, run_batch, move.synchronize, n)
    events = calls_by_name(profile.key_averages())
    time_of = "device_time_total" if on_gpu else "cpu_time_total"

    modules = [
        {
            "layer": name,
            "kind": type(module).__name__,
            "depth": name.count(".") + 1 if name else 0,
            "parameters": sum(value.numel() for value in module.parameters()),
            "calls": event.count / n,
            "ms": getattr(event, time_of) / 1e3 / n,
        }
        for name, module in network.named_modules()
        if (event := events.get(_PREFIX + name))
    ]
    values: dict[str, Any] = {**threads, **readings}
    values |= {
        "weights_digest": request.weights_digest,
        "modules": modules,
        "profiled_ms": max(module["ms"] for module in modules),
    }
    return Measurement({"batch": samples}, values)


def calls_by_name(averages: Iterable[Any]) -> dict[str, Any]:
    """torch.profiler's averages of what the host called, by name.

    With CUDA's activity a label is there twice, as the call and as its span on the device's
    timeline, gaps between kernels included. The call's device time is that of its kernels.
    """
    host = (event for event in averages if event.count and event.device_type.name == "CPU")
    return {event.key: event for event in host}


def _profile(network: Any, run: ForwardPass, synchronize: ForwardPass | None, batches: int) -> Any:
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU]
    if synchronize is not None:
        activities.append(ProfilerActivity.CUDA)
    with _labelled(network), profile(activities=activities) as recorded:
        with record_function("warm-up"):
            pass  # the first one costs milliseconds
        for _ in range(batches):
            run()
        if synchronize is not None:
            synchronize()
    return recorded


@contextmanager
def _labelled(network: Any) -> Iterator[None]:
    """Let every call of a module appear in the profile under its name."""
    from torch.profiler import record_function

    open_calls: list[Any] = []

    def enter(name: str, module: Any, arguments: Any) -> None:
        open_calls.append(record_function(_PREFIX + name))
        open_calls[-1].__enter__()

    def leave(module: Any, arguments: Any, output: Any) -> None:
        open_calls.pop().__exit__(None, None, None)

    with ExitStack() as stack:
        for name, module in network.named_modules():
            stack.enter_context(module.register_forward_pre_hook(partial(enter, name)))
            stack.enter_context(module.register_forward_hook(leave))
        yield
