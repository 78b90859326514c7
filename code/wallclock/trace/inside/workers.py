"""What a row of `targets` cannot describe of torch's DataLoader, and of workers."""

from functools import wraps
from types import ModuleType
from typing import Any

from . import notes
from .patch import noted, replace
from .tracer import Call, Tracer

_DATALOADER_SETTINGS = (
    "num_workers",
    "batch_size",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
)
#: In the names of options for numbers of workers.
_OF_WORKERS = ("workers", "jobs", "num_proc", "threads", "processes")
_DATALOADER = "torch.utils.data.DataLoader"


def patch_dataloader(tracer: Tracer, module: ModuleType) -> None:
    """Note each DataLoader."""

    def wrap(original: Call) -> Call:
        @wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            settings = {name: getattr(self, name, "") for name in _DATALOADER_SETTINGS}
            tracer.write_use(_DATALOADER, settings)

        return __init__

    replace(tracer, module, "DataLoader.__init__", wrap)


def patch_argparse(tracer: Tracer, module: ModuleType) -> None:
    """Note the program's own options for numbers of workers."""

    def wrap(original: Call) -> Call:
        @wraps(original)
        def parse_known_args(self: Any, *args: Any, **kwargs: Any) -> Any:
            parsed = original(self, *args, **kwargs)
            for action in self._actions:
                value = getattr(parsed[0], str(action.dest), None)
                if type(value) is int and any(word in action.dest for word in _OF_WORKERS):
                    flag = max(action.option_strings, key=len, default="")
                    tracer.write_use("option", {"flag": flag, "value": value})
            return parsed

        return parse_known_args

    replace(tracer, module, "ArgumentParser.parse_known_args", wrap)


def patch_worker(tracer: Tracer, module: ModuleType) -> None:
    """A worker process knows that it is one."""

    def wrap(original: Call) -> Call:
        @wraps(original)
        def _worker_loop(*args: Any, **kwargs: Any) -> Any:
            tracer.call_worker()
            return original(*args, **kwargs)

        return _worker_loop

    replace(tracer, module, "_worker_loop", wrap)


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
