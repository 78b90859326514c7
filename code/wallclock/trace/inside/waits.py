"""Waits that a row of `targets` cannot describe: threads of executors, torch's DataLoader."""

import _queue
from functools import wraps
from types import ModuleType
from typing import Any

from . import notes
from .patch import noted, replace, waiting
from .tracer import Call, Tracer

_DATALOADER_SETTINGS = (
    "num_workers",
    "batch_size",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
)
_DATALOADER = "torch.utils.data.DataLoader"


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
