"""Batches of positions, and how many of them a loader has loaded ahead of their turn."""

from harness.spec import ENGINES, Recipe
from wallclock.loader.order import LazyBatches
from wallclock.loader.ring import buffers_for
from wallclock.loader.threads import worker_count


class CyclicPositions(LazyBatches):
    """Batches of positions over `n_items` images, again and again, computed when indexed.

    Args:
        n: images in all.
    """

    def __init__(self, n_items: int, batch_size: int, n: int) -> None:
        self._n_items, self._n = n_items, n
        super().__init__(self._positions, range(-(-n // batch_size)), batch_size)

    def _positions(self, index: int) -> list[int]:
        first = index * self.batch_size
        last = min(first + self.batch_size, self._n)
        return [position % self._n_items for position in range(first, last)]


def prefetched_batches(recipe: Recipe) -> int:
    """Batches that a loader of this suite may have loaded before the clock starts."""
    if recipe.engine == "threads":
        return buffers_for(worker_count(recipe), recipe.batch_size)
    if recipe.engine == "dataloader":
        return recipe.workers * recipe.prefetch + 1
    return 1


def burst_of(recipe: Recipe) -> int:
    """Batches of a loader of this suite that arrive together."""
    return max(recipe.workers, 1) if recipe.engine in ENGINES[1:] else 1
