"""The interface of every loader.

with open_loader(sources, batches, options) as loader:
    for batch in loader:
        batch.ids, batch.images      # valid until the next batch is requested
"""

from collections.abc import Iterator
from typing import Any, Protocol

from wallclock.loader.batch import Batch


class Loader(Protocol):
    """An iterator over batches, in order.

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

    def ready(self) -> int:
        """About how many complete batches wait to be requested; 0 where that is unknown."""
        return 0

    def stats(self) -> dict[str, Any]:
        """Values for the record: buffers, and where each worker's time went; may be empty."""
        return {}
