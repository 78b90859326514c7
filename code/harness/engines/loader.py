"""What a loader is to the study, and the product's own as one."""

from collections.abc import Iterator
from typing import Any, Protocol

from wallclock.loader.batch import Batch
from wallclock.loader.threads import ThreadLoader


class Loader(Protocol):
    """An iterator over batches, in order; a batch is valid until the next one is requested.

    `engine` names what runs; `version` its library and version, `settings` its
    configuration. `prefetched`: batches that may be complete before they are requested, which a
    warm-up drains. `burst`: batches that arrive together, because that many workers each make one.
    """

    engine: str
    workers: int
    version: str
    settings: str
    prefetched: int
    burst: int

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch: ...


class Threads(ThreadLoader):
    """The product's loader of threads."""

    engine, version, burst = "threads", "wallclock threads", 1

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.prefetched = len(self._ring.buffers)
        labels, dtype = self._labels, self._ring.buffers[0].dtype
        how = labels["interpolation" if labels["preprocess"] == "squash" else "preprocess"]
        tools = f"{labels['decoder']}, {labels['resizer']} {how}"
        self.settings = f"{self.workers} threads; {tools}, {dtype}"
