"""Loaders, a queue of finite depth and a consumer, batch by batch, under variance.

The recursion is DataLoader's own order of events: batch i goes to worker i mod W, not before the
consumer has taken batch i - W × depth; the consumer takes batches in order.

    loaded[i] = max(loaded[i - W], taken[i - W × depth]) + load[i]
    taken[i]  = max(loaded[i], done[i - 1])
    done[i]   = taken[i] + step[i]

It is the (max, +) form of a closed tandem queue with blocking: Baccelli, Cohen, Olsder, Quadrat,
"Synchronization and Linearity" (1992), chapter 1; with one worker and an infinite queue it is
Lindley's (1952). Without variance its rate is that of the slower side; with variance, a shallow
queue loses part of it.
"""

import math
import random

#: Batches simulated: so many per worker, at least so many in all; the first fifth fills the queue.
_PER_WORKER = 60
_MIN_BATCHES = 600


def simulate(
    load_s: float,
    step_s: float,
    workers: int,
    depth: int,
    load_variation: float = 0.0,
    step_variation: float = 0.0,
    seed: int = 0,
) -> float:
    """Batches per second in the steady state.

    There are a worker and a place in the queue at least, and not both times are 0. Times are
    log-normal with these means and variations (standard deviation over mean), drawn from `seed` and
    scaled so that the drawn mean is exact: the remaining difference to the slower side's
    rate is what variance costs.
    """
    if not load_variation and not step_variation:
        return 1 / max(load_s / workers, step_s)
    count = max(_MIN_BATCHES, _PER_WORKER * workers)
    rng = random.Random(seed)
    loads = _draw(rng, load_s, load_variation, count)
    steps = _draw(rng, step_s, step_variation, count)
    loaded = [0.0] * count
    taken = [0.0] * count
    done = 0.0
    first = count // 5
    start = 0.0
    for i in range(count):
        free = loaded[i - workers] if i >= workers else 0.0
        allowed = taken[i - workers * depth] if i >= workers * depth else 0.0
        loaded[i] = max(free, allowed) + loads[i]
        taken[i] = max(loaded[i], done)
        done = taken[i] + steps[i]
        if i == first:
            start = done
    return (count - 1 - first) / (done - start)


def _draw(rng: random.Random, mean: float, variation: float, count: int) -> list[float]:
    if not variation or not mean:
        return [mean] * count
    sigma = math.sqrt(math.log1p(variation * variation))
    drawn = [rng.lognormvariate(0.0, sigma) for _ in range(count)]
    scale = mean * count / sum(drawn)
    return [value * scale for value in drawn]
