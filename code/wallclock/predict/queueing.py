"""Loaders, a queue of finite depth and a consumer, batch by batch, under variance.

The recursion is DataLoader's own order of events: batch i goes to worker i mod W, not before the consumer has
taken batch i - W × depth; the consumer takes batches in order.

    loaded[i] = max(loaded[i - W], taken[i - W × depth]) + load[i]
    taken[i]  = max(loaded[i], done[i - 1])
    done[i]   = taken[i] + step[i]

It is the (max, +) form of a closed tandem queue with blocking: Baccelli, Cohen, Olsder, Quadrat,
"Synchronization and Linearity" (1992), chapter 1; with one worker and an endless queue it is Lindley's (1952).
Without variance its rate is that of the slower side; with it, a shallow queue loses some of that.
"""

from __future__ import annotations

import math
import random

from wallclock.predict.costs import check

#: Batches that are simulated for each worker, at least, and in all; the first fifth fills the queue.
_PER_WORKER = 60
_AT_LEAST = 600


def simulate(
    load_s: float,
    step_s: float,
    workers: int,
    depth: int,
    load_variation: float = 0.0,
    step_variation: float = 0.0,
    seed: int = 0,
) -> float:
    """Batches a second in the steady state.

    Times are log-normal with the means and variations (standard deviation over mean) given, drawn from `seed`
    and scaled so that the drawn mean is the mean asked for: what is left of the difference to the slower
    side's rate is what variance costs.

    Raises:
        ValueError: no worker, no queue, or a time that is no finite number of at least 0, or both are 0.
    """
    check("load_s", load_s)
    check("step_s", step_s)
    if workers < 1 or depth < 1 or load_s + step_s == 0:
        raise ValueError(
            f"workers={workers}, depth={depth}, load_s={load_s}, step_s={step_s}: nothing to simulate"
        )
    if not load_variation and not step_variation:
        return 1 / max(load_s / workers, step_s)
    count = max(_AT_LEAST, _PER_WORKER * workers)
    source = random.Random(seed)
    loads, steps = (
        _draw(source, load_s, load_variation, count),
        _draw(source, step_s, step_variation, count),
    )
    loaded, taken, done = [0.0] * count, [0.0] * count, 0.0
    first = count // 5
    began = 0.0
    for i in range(count):
        free = loaded[i - workers] if i >= workers else 0.0
        asked = taken[i - workers * depth] if i >= workers * depth else 0.0
        loaded[i] = max(free, asked) + loads[i]
        taken[i] = max(loaded[i], done)
        done = taken[i] + steps[i]
        if i == first:
            began = done
    return (count - 1 - first) / (done - began)


def _draw(source: random.Random, mean: float, variation: float, count: int) -> list[float]:
    if not variation or not mean:
        return [mean] * count
    sigma = math.sqrt(math.log1p(variation * variation))
    drawn = [source.lognormvariate(0.0, sigma) for _ in range(count)]
    scale = mean * count / sum(drawn)
    return [value * scale for value in drawn]
