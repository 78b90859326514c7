"""Batches of positions, and how many of them a loader has loaded ahead of their turn."""

from harness.spec import ENGINES, Cell, Recipe
from wallclock.loader.order import LazyBatches
from wallclock.loader.ring import buffers_for
from wallclock.loader.threads import worker_count

#: Batches to measure, at least, beyond those that may be ready when the clock starts; and bursts,
#: because some workers are ahead of others by a batch or two at either end.
_MIN_BATCHES, MIN_BURSTS = 12, 8


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


def batches_needed(cell: Cell) -> int:
    """How many batches a steady state takes, or `params.batches` if more; one where a forward pass
    on a CPU takes seconds.

    There the forward pass is the bottleneck by far, so that a full queue does not flatter the rate;
    the row says that it was not drained (`steady`). A cold storage may be slower still.
    """
    recipe = cell.recipe
    cold = cell.params.get("page_cache") == "cold"
    if recipe.device == "cpu" and cell.model.weights != "none" and not cold:
        return 1
    minimum = max(prefetched_batches(recipe) + _MIN_BATCHES, MIN_BURSTS * recipe.workers)
    return max(minimum, int(cell.params.get("batches", 0)))


def plan_batches(n: int, recipe: Recipe, at_least: int) -> tuple[int, int, list[list[int]]]:
    """How many batches warm up, how many are measured, and the positions of all, and more.

    All `n` images are measured once, or again and again until `at_least` full batches are. What the
    workers prefetch while the model loads must be gone before the clock starts, or a run that waits
    for its loader would be credited with it; where fewer are measured, half as many warm up.
    Batches of workers that began together arrive in bursts. Images that repeat are therefore
    measured in complete bursts, and loading goes on behind the last measured batch as it did before
    the first: what was half done when the clock started is half done when it stops.
    """
    size, burst = recipe.batch_size, burst_of(recipe)
    total = max(n, -(-at_least // burst) * burst * size if at_least > 1 else size)
    measured = [list(range(start, min(start + size, total))) for start in range(0, total, size)]
    prefetched = prefetched_batches(recipe)
    warm = prefetched if len(measured) >= prefetched else max(1, len(measured) // 2)
    full = list(range(size))
    warm_up = [full] * warm
    if recipe.device == "cuda" and len(measured[-1]) < size:
        # A batch of another size may need memory of its own: not to be had while the clock runs.
        warm_up = [full[: len(measured[-1])], *warm_up]
    return len(warm_up), len(measured), warm_up + measured + [full] * prefetched
