"""What a job embeds: what a source has that its dataset has not, and which batches that makes.

Every image is in one part. Those of a source that are in no part become an edition:
`_editions/from-00006.json` says of which images it is and with which part it begins, before any of
its parts is there. So the number of a part always means the same images.

Where the source has changed before an edition is complete, the parts that it lacks are closed: made
without an image. The next edition begins behind them. Images that have changed or were not reached
are made anew in their own part. Those that are gone stay, until they are pruned.
"""

import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wallclock import documents
from wallclock.constraints import Range
from wallclock.errors import UserError
from wallclock.job.dataset import FAILURES, THREADS, UNREACHED, Dataset
from wallclock.job.items import Items
from wallclock.job.part import Part
from wallclock.job.texts import digest_of
from wallclock.loader.order import LazyBatches
from wallclock.loader.stream import StreamOrder
from wallclock.recipe import Limits, ModelSpec, Recipe

_EDITION: documents.Schema = {"n": Annotated[int, Range(1, 1_000_000_000)], "ids": str}
#: A line of what has no vector, and what is known of an image. `runs`: that have not reached it.
_LINE = pa.schema([("id", pa.string()), ("version", pa.string()), ("runs", pa.int64())])
_KNOWN = pa.schema([*_LINE, ("number", pa.int64()), ("has_vector", pa.bool_())])
_FOLDER, _NAME = "_editions", "_editions/from-{:05d}.json"


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


class Edition(NamedTuple):
    """n images, in parts that begin with number `first`; the digest of their ids."""

    first: int
    n: int
    ids: str


@dataclass(frozen=True)
class Growth:
    """What is to be done for a dataset to have all that a source has.

    `items`, `parts`, `replaced`, `runs`: of a `Job`. `new`, `changed`: how many images. `gone`: by
    part, the ids that are. `edition`: that is to begin; `closed`: parts that end the one before.
    """

    items: Items
    parts: Mapping[int, range]
    replaced: Mapping[int, str] = field(default_factory=dict)
    runs: Mapping[int, int] = field(default_factory=dict)
    new: int = 0
    changed: int = 0
    gone: Mapping[int, Any] = field(default_factory=dict)
    edition: Edition | None = None
    closed: Sequence[int] = ()

    @property
    def n_gone(self) -> int:
        """How many images the source has no more."""
        return sum(map(len, self.gone.values()))

    def begin(self, dataset: Dataset, empty: Part) -> None:
        """Close the edition before, by `empty` parts, and begin the next. Raises UserError."""
        came_first = [number for number in self.closed if not dataset.commit(number, empty)]
        new = self.edition
        if new and not came_first:
            said = json.dumps({"n": new.n, "ids": new.ids}).encode()
            name = _NAME.format(new.first)
            if not dataset.store.create(name, said) and dataset.store.read(name) != said:
                came_first = [new.first]
        if came_first:
            part = dataset.row_file(came_first[0])
            raise UserError(f"another process has written {part} of {dataset.out}; run it again")

    def prune(self, dataset: Dataset, empty: Part) -> None:
        """Remove what is gone."""
        for number, ids in self.gone.items():
            dataset.replace(number, ids, empty)


def find_growth(dataset: Dataset, items: Items, shard: int) -> Growth:
    """Compare a source with its dataset. Raises DamagedPartError."""
    items, there = items.with_values(), dataset.committed()
    known = _read_known(dataset, there)
    text = pa.large_string()  # a column of strings has at most 2 GB
    at = pc.index_in(items.ids.cast(text), value_set=known["id"].cast(text))
    rows: npt.NDArray[np.int64] = np.asarray(pc.fill_null(at, -1), np.int64)
    numbers = np.where(rows >= 0, known["number"].to_numpy()[rows], -1) if len(known) else rows
    edition, closed, last = None, set[int](), _last_edition(dataset)
    first, new = last.first, np.flatnonzero((numbers < 0) | (numbers >= last.first))
    parts_of_new = first + np.arange(len(new)) // shard
    as_begun = np.where(np.isin(parts_of_new, there), parts_of_new, -1)
    if _digest(items, new) != last.ids or (numbers[new] != as_begun).any():
        first = max([first - (-last.n // shard), *(number + 1 for number in there)])
        closed, new = {*range(first)}.difference(there), np.flatnonzero(numbers < 0)
        edition = Edition(first, len(new), _digest(items, new)) if len(new) else None
    parts = parts_of(first, len(new), shard)
    again = _to_be_made_anew(items, known, rows)
    again = again[np.argsort(numbers[again], kind="stable")]
    runs = known["runs"].to_numpy()[rows[again]]
    ends, replaced = len(new), {}
    for number, count in zip(*np.unique(numbers[again], return_counts=True), strict=True):
        parts.pop(int(number), None)  # it comes behind all new ones
        parts[int(number)], ends = range(ends, ends + int(count)), ends + int(count)
        replaced[int(number)] = dataset.store.tag(dataset.row_file(int(number)))
    return Growth(
        items if len(new) == len(items) and not len(again) else items.take(np.append(new, again)),
        parts,
        replaced,
        {len(new) + at: int(runs[at]) for at in np.flatnonzero(runs > 0).tolist()},
        int((numbers < 0).sum()),
        int((runs < 0).sum()),
        _gone(known, rows) if items.is_whole else {},
        edition,
        sorted(closed),
    )


def _read_known(dataset: Dataset, numbers: Sequence[int]) -> Any:
    """A table, as `_KNOWN`, of the images that are in parts; `runs` of one that was reached: -1."""
    failed, unreached = dataset.with_files(FAILURES), dataset.with_files(UNREACHED)

    def read(number: int) -> Any:
        vectors = dataset.rows(number, ["id", "version"])
        lines = dataset.failures(number) if number in failed else []
        left = dataset.unreached(number) if number in unreached else []
        lines = [*lines, *({**row, "version": ""} for row in left)]
        table = pa.concat_tables(
            [vectors, pa.Table.from_pylist(lines, _LINE)], promote_options="default"
        )
        table = table.append_column("number", pa.repeat(number, len(table)))
        return table.append_column("has_vector", pa.array(np.arange(len(table)) < len(vectors)))

    with ThreadPoolExecutor(THREADS) as pool:
        table = pa.concat_tables([_KNOWN.empty_table(), *pool.map(read, numbers)])
    at = _KNOWN.get_field_index("runs")
    return table.set_column(at, "runs", pc.fill_null(table["runs"], -1))


def _to_be_made_anew(
    items: Items, known: Any, rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """What has changed or was not reached, by position; without a version, a vector stays."""
    at = np.flatnonzero(rows >= 0)
    known = known.select(["version", "has_vector", "runs"]).take(rows[at])
    now, before = items.versions.take(at), known["version"]
    differs = pc.fill_null(pc.and_(pc.not_equal(now, before), pc.not_equal(now, "")), False)
    has_no_version = pc.fill_null(pc.equal(before, ""), True).to_numpy()
    is_unknown = known["has_vector"].to_numpy() & has_no_version
    is_left = known["runs"].to_numpy() >= 0
    positions: npt.NDArray[np.int64] = at[differs.to_numpy() & ~is_unknown | is_left]
    return positions


def _gone(known: Any, rows: npt.NDArray[np.int64]) -> dict[int, Any]:
    is_gone = np.ones(len(known), bool)
    is_gone[rows[rows >= 0]] = False
    numbers, ids = (known[name].filter(pa.array(is_gone)) for name in ("number", "id"))
    numbers = numbers.to_numpy()
    return {int(n): ids.filter(pa.array(numbers == n)) for n in np.unique(numbers)}


def _last_edition(dataset: Dataset) -> Edition:
    """The one that began last; where there is none, as in older datasets, one without an image."""
    names = sorted(dataset.store.names(f"{_FOLDER}/from-"), key=lambda name: (len(name), name))
    if not names:
        return Edition(0, 0, "")
    where = f"{dataset.out}/{names[-1]}"
    data, fix = dataset.store.read(names[-1]), "give another OUT"
    said = documents.parse(data, where, _EDITION, fix)
    digits = names[-1].rpartition("-")[2].removesuffix(".json")
    if not digits.isdecimal() or not {*_EDITION} <= said.keys():
        raise UserError(f"{where} cannot be read: it says no n and ids; {fix}")
    return Edition(int(digits), said["n"], said["ids"])


def _digest(items: Items, positions: npt.NDArray[np.int64]) -> str:
    """Of the ids at these ascending positions."""
    is_all = len(positions) == len(items)
    return digest_of(items.ids if is_all else items.ids.take(positions))
