"""Where threads and processes wait for each other, torch's DataLoader included.

The main thread of the program waits for data: `wait`. Any other thread, and a child of
multiprocessing, waits for work or for a free slot: `idle`. One that waits inside another counts as
the outer one.
"""

import _queue
import sys
from functools import partial, wraps
from types import ModuleType
from typing import Any

from . import notes
from .patch import noted, replace
from .tracer import Call, Tracer

_WAITS = ("wait", "idle")
_DATALOADER_SETTINGS = (
    "num_workers",
    "batch_size",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
)
_DATALOADER = "torch.utils.data.DataLoader"


def waiting(tracer: Tracer, name: str, original: Call) -> Call:
    """`original`, counted as `wait` or `idle` by who calls it."""
    waits, idles = tracer.slot("wait", name), tracer.slot("idle", name)

    @wraps(original)
    def traced(*args: Any, **kwargs: Any) -> Any:
        if tracer.open_stage() in _WAITS:
            return original(*args, **kwargs)
        slot = waits
        if not tracer.is_main() or _is_child():
            slot = idles
            tracer.note_cpu_time()
        entered = tracer.enter(slot)
        try:
            return original(*args, **kwargs)
        finally:
            tracer.leave(slot, entered)

    return traced


def _is_child() -> bool:
    """Whether multiprocessing started this process."""
    process = sys.modules.get("multiprocessing.process")
    return getattr(process, "_parent_process", None) is not None


def _patch(tracer: Tracer, module: ModuleType, *paths: str) -> None:
    for path in paths:
        name = f"{module.__name__}.{path}".replace("._base.", ".")
        replace(tracer, module, path, partial(waiting, tracer, name))


def patch_threading(tracer: Tracer, module: ModuleType) -> None:
    """Conditions are below events, queues, futures and pools of Python."""
    _patch(tracer, module, "Condition.wait", "Thread.join")


def patch_queue(tracer: Tracer, module: ModuleType) -> None:
    """Queues between threads, as far as they are Python."""
    _patch(tracer, module, "Queue.get", "Queue.put")


def patch_multiprocessing(tracer: Tracer, module: ModuleType) -> None:
    """Queues between processes: workers of pools and of DataLoaders get their work from them."""
    _patch(tracer, module, "Queue.get", "SimpleQueue.get")


def patch_process(tracer: Tracer, module: ModuleType) -> None:
    """A parent that waits for the end of a child."""
    _patch(tracer, module, "BaseProcess.join")


def patch_pool(tracer: Tracer, module: ModuleType) -> None:
    """A pool's results."""
    _patch(tracer, module, "ApplyResult.get", "IMapIterator.next")


def patch_futures(tracer: Tracer, module: ModuleType) -> None:
    """Results of executors; their `map` takes them, too."""
    _patch(tracer, module, "Future.result", "wait")


def patch_subprocess(tracer: Tracer, module: ModuleType) -> None:
    """Other programs."""
    _patch(tracer, module, "Popen.wait", "Popen.communicate")


def patch_selectors(tracer: Tracer, module: ModuleType) -> None:
    """Event loops, and pipes between processes."""
    _patch(
        tracer, module, "EpollSelector.select", "_PollLikeSelector.select", "SelectSelector.select"
    )


def patch_thread_pool(tracer: Tracer, module: ModuleType) -> None:
    """The threads of an executor get their work from a queue in C; give it one that counts."""

    class SimpleQueue(_queue.SimpleQueue[Any]):
        """As the class in C, with a clock around `get`."""

    queue: Any = SimpleQueue
    queue.get = waiting(tracer, "concurrent.futures.ThreadPoolExecutor", _queue.SimpleQueue.get)

    def wrap(original: Call) -> Call:
        @wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            if type(getattr(self, "_work_queue", None)) is _queue.SimpleQueue:
                self._work_queue = queue()

        return __init__

    replace(tracer, module, "ThreadPoolExecutor.__init__", wrap)


# --- torch's DataLoader -------------------------------------------------------------------------


def patch_dataloader(tracer: Tracer, module: ModuleType) -> None:
    """Note each DataLoader; with worker processes, its consumer waits in `_next_data`."""

    def wrap(original: Call) -> Call:
        @wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            tracer.write_loader(
                _DATALOADER, {name: str(getattr(self, name, "")) for name in _DATALOADER_SETTINGS}
            )

        return __init__

    def wrap_next(original: Call) -> Call:
        return tracer.timed(original, tracer.slot("wait", _DATALOADER))

    replace(tracer, module, "DataLoader.__init__", wrap)
    replace(tracer, module, "_MultiProcessingDataLoaderIter._next_data", wrap_next)


def patch_worker(tracer: Tracer, module: ModuleType) -> None:
    """A worker process knows that it is one."""

    def wrap(original: Call) -> Call:
        @wraps(original)
        def _worker_loop(*args: Any, **kwargs: Any) -> Any:
            tracer.call_worker()
            return original(*args, **kwargs)

        return _worker_loop

    replace(tracer, module, "_worker_loop", wrap)


def patch_collate(tracer: Tracer, module: ModuleType) -> None:
    """The default collate function, which programs may also call."""

    def wrap(original: Call) -> Call:
        slot = tracer.slot("assemble", "torch.utils.data.default_collate")
        return noted(tracer, original, slot, notes.collated_batch)

    replace(tracer, module, "default_collate", wrap)


def patch_fetch(tracer: Tracer, module: ModuleType) -> None:
    """A collate function of the program: the fetcher, in the worker, calls it."""
    slot = tracer.slot("assemble", "collate_fn")

    def wrap(original: Call) -> Call:
        @wraps(original)
        def __init__(  # noqa: N807
            self: Any, dataset: Any, auto_collation: bool, collate_fn: Call, drop_last: bool
        ) -> None:
            if auto_collation and id(collate_fn) not in tracer.made:
                collate_fn = noted(tracer, collate_fn, slot, notes.collated_batch)
            original(self, dataset, auto_collation, collate_fn, drop_last)

        return __init__

    replace(tracer, module, "_BaseDatasetFetcher.__init__", wrap)
