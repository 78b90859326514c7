"""What a job embeds, and which batches of it are still to be made."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from wallclock.job.dataset import Dataset
from wallclock.job.items import Items
from wallclock.loader.order import LazyBatches
from wallclock.loader.stream import StreamOrder
from wallclock.recipe import Limits, ModelSpec, Recipe


class Plan(LazyBatches):
    """The batches of parts, by number the positions of their images; computed when indexed."""

    def __init__(self, parts: Mapping[int, range], batch_size: int) -> None:
        self.parts: Mapping[int, range] = parts
        self.missing: list[int] = [*parts]
        counts = (-(-len(some) // batch_size) for some in parts.values())
        self._starts = [0, *accumulate(counts)]
        super().__init__(self._positions, range(self._starts[-1]), batch_size)

    def size(self, *numbers: int) -> int:
        """The images of parts."""
        return sum(len(self.parts[number]) for number in numbers)

    def shards(self) -> Iterator[tuple[int, int]]:
        """Every part with the number of its batches."""
        for number, (begin, end) in zip(self.missing, pairwise(self._starts), strict=True):
            yield number, end - begin

    def _positions(self, index: int) -> Sequence[int]:
        at = bisect_right(self._starts, index) - 1
        begin = (index - self._starts[at]) * self.batch_size
        return self.parts[self.missing[at]][begin : begin + self.batch_size]


@dataclass(frozen=True)
class PlannedOrder(StreamOrder):
    """The batches of a plan, made of a stream of the images at its positions."""

    plan: Sequence[Sequence[int]] = ()

    def batches(self, items: Iterable[Any], epoch: int) -> Iterator[list[tuple[int, Any]]]:
        """See `StreamOrder`."""
        left = iter(items)
        for batch in self.plan:
            yield [*zip(batch, left)]  # noqa: B905 - the stream is that of all batches


@dataclass(frozen=True)
class Job:
    """All that embeds any part of an edition, in whatever process.

    `parts`: by number the positions of its images; at first new parts, then those of which only
    these images are made anew, which have in `replaced` the tag that they had.
    `runs`: by position, how many runs have not reached an image.
    `deduplicate`: images of equal bytes are embedded once in each part.
    """

    items: Items
    dataset: Dataset
    model: ModelSpec
    recipe: Recipe
    parts: Mapping[int, range]
    replaced: Mapping[int, str] = field(default_factory=dict)
    runs: Mapping[int, int] = field(default_factory=dict)
    deduplicate: bool = True
    max_failures: int | None = None
    limits: Limits = field(default_factory=Limits)

    def plan(self, only: Collection[int] | None = None) -> Plan:
        """The batches of the parts that are still to be made; `only` of these."""
        there = {*self.dataset.committed()}
        tags = {
            number: self.dataset.store.tag(self.dataset.row_file(number))
            for number in there.intersection(self.replaced, self.parts if only is None else only)
        }
        left = {
            number: some
            for number, some in self.parts.items()
            if (only is None or number in only)
            and (number not in there or self.replaced.get(number, "") == tags.get(number))
        }
        return Plan(left, self.recipe.batch_size)


def parts_of(first: int, n: int, shard: int) -> dict[int, range]:
    """The positions of n images in parts, whose numbers begin with `first`."""
    starts = enumerate(range(0, n, shard), first)
    return {number: range(at, min(at + shard, n)) for number, at in starts}
