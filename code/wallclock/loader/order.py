"""Which images each batch has, in all epochs: computed when a batch is asked for.

An order is a sequence of batches, a batch a sequence of positions in what is loaded. Past the last
image they start over, in the next epoch: of n images, those of epoch e are at e × n and on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wallclock.fetch.sources import MOST_AHEAD

#: For a thread that waits for a batch while another one closes the loader.
CLOSED = "the images were closed while a thread waited for a batch"


class Place(NamedTuple):
    """How far an iteration is: the epoch, and how many of its batches were loaded.

    `skip`: how many of those behind them were delivered, where some are repeated. Of tars and
    tables: this rank reads on at the `row` of the `shard`, behind so many `items` of the epoch.
    """

    epoch: int
    batches: int
    skip: int = 0
    items: int = 0
    shard: int = 0
    row: int = 0


class LazyBatches(Sequence[Sequence[int]]):
    """Batches of at most `batch_size` images, computed by their `numbers` when they are indexed."""

    def __init__(
        self, batch: Callable[[int], Sequence[int]], numbers: range, batch_size: int
    ) -> None:
        self._batch, self._numbers = batch, numbers
        self.batch_size: int = batch_size

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return LazyBatches(self._batch, self._numbers[index], self.batch_size)
        return self._batch(self._numbers[index])


class BatchSource:
    """Batches in order: what the ring opens; here those of a list.

    `batch_size`: the most images of a batch. `skipped`: what was skipped before the images of the
    batch that was taken last, or behind the last ones.
    """

    skipped: Sequence[str] = ()

    def __init__(self, batches: Sequence[Sequence[int]]) -> None:
        self._batches = batches
        self._opened = self._announced = 0
        # Of those that are computed, none is asked for to find it.
        size = getattr(batches, "batch_size", None)
        self.batch_size: int = max(map(len, batches), default=1) if size is None else size

    def stop(self) -> None:
        """Let whatever makes them end."""

    def close(self) -> None:
        """Stop, and wait for it."""

    def __next__(self) -> Sequence[int]:
        """The positions of the next batch; waits for it. Raises StopIteration."""
        if self._opened == len(self._batches):
            raise StopIteration
        self._opened += 1
        return self._batches[self._opened - 1]

    def ready(self) -> bool:
        """Whether the next batch, or the end, is there without waiting."""
        return True

    def taken(self) -> None:
        """The consumer has taken the oldest batch that it had not."""

    def announced(self) -> Sequence[int] | None:
        """Positions of batches that are opened later, each once; None: they are not known."""
        first, ahead = self._announced, -(-MOST_AHEAD // max(self.batch_size, 1))
        self._announced = min(self._opened + ahead, len(self._batches))
        return [at for batch in self._batches[first : self._announced] for at in batch]


@dataclass(frozen=True)
class Order:
    """Which images each batch of one rank has, in all epochs."""

    n: int
    batch_size: int
    shuffle: bool
    seed: int
    rank: int
    world_size: int
    drop_last: bool

    @property
    def batches_per_epoch(self) -> int:
        """Of this rank."""
        if self.drop_last:
            return self.n // self.world_size // self.batch_size
        of_rank = len(range(self.rank, self.n, self.world_size))
        return -(-of_rank // self.batch_size)

    def positions(self, index: int) -> list[int]:
        """Of batch `index` over all epochs; those of epoch e start at e × n."""
        epoch, number = divmod(index, self.batches_per_epoch)
        first = self.rank + number * self.batch_size * self.world_size
        places = range(first, self.n, self.world_size)[: self.batch_size]
        if not self.shuffle:
            return [epoch * self.n + place for place in places]
        shuffled = _permutation(self.n, self.seed, epoch)[places.start : places.stop : places.step]
        positions: list[int] = (shuffled.astype(np.int64) + epoch * self.n).tolist()
        return positions

    def batches(self, first: int, last: int) -> LazyBatches:
        """Batches `first` to `last` over all epochs, the last one not included."""
        batches = LazyBatches(self.positions, range(first, last), min(self.batch_size, self.n))
        if batches:  # processes that are forked share this epoch's permutation
            batches[0]
        return batches


@lru_cache(maxsize=4)  # batches are opened ahead, into the next epoch
def _permutation(n: int, seed: int, epoch: int) -> npt.NDArray[np.integer[Any]]:
    numbers = np.arange(n, dtype=np.uint32 if n < 1 << 32 else np.int64)
    return np.random.default_rng([seed, epoch]).permutation(numbers)
