"""How a dataset grows: what a source has that its parts have not, and what is not as it was.

Every image is in one part, as a vector, a failure or not reached. Those of a source that are in no
part become an edition: `_editions/from-00006.json` says of which images it is and with which part
it begins, before any of its parts is there. So the number of a part always means the same images,
whoever writes it, and a start after a kill goes on with the edition as it was.

Where it cannot be the same any more, as the source has changed meanwhile or an earlier part was
damaged, the parts that it lacks are closed: made without an image. Where a process that still works
at one was first, its images count. The next edition begins behind them. Images that have changed or
were not reached are made anew in their own part. Those that are gone stay, until they are pruned.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
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
from wallclock.job.plan import parts_of
from wallclock.job.texts import add_to_digest

_EDITION: documents.Schema = {"n": Annotated[int, Range(1, 1_000_000_000)], "ids": str}
#: Of an edition; more would take hours to close.
_MOST_PARTS = 100_000
_FOLDER, _NAME = "_editions", "_editions/from-{:05d}.json"


class Edition(NamedTuple):
    """n images, in parts that begin with number `first`; the digest of their ids."""

    first: int
    n: int
    ids: str


@dataclass(frozen=True)
class Growth:
    """What is to be done for a dataset to have all that a source has.

    `items`, `parts`, `replaced` and `runs` are those of a `Job`. `new`, `changed`: how many images.
    `gone`: by part, the ids that the source has no more. `edition`: that is to begin; `closed`: the
    parts that end the one before.
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


class _Known(NamedTuple):
    """The images that are in parts, by row; of those that were not reached, in how many runs."""

    ids: Any
    versions: Any
    numbers: npt.NDArray[np.int64]
    has_vector: npt.NDArray[np.bool_]
    runs: Mapping[int, int]


def find_growth(dataset: Dataset, items: Items, shard: int) -> Growth:
    """Compare a source with its dataset. Raises DamagedPartError."""
    items, there = items.with_values(), dataset.committed()
    known = _read_known(dataset, there)
    rows = _find(items.ids, known.ids)
    numbers = np.where(rows >= 0, known.numbers[rows], -1) if len(known.ids) else rows
    edition, closed, last = None, set[int](), _last_edition(dataset)
    first, new = last.first, np.flatnonzero((numbers < 0) | (numbers >= last.first))
    parts_of_new = first + np.arange(len(new)) // shard
    as_begun = np.where(np.isin(parts_of_new, there), parts_of_new, -1)
    if _digest(items, new) != last.ids or (numbers[new] != as_begun).any():
        n_parts = -(-last.n // shard)
        if (n := first + n_parts - len(there)) > _MOST_PARTS:
            raise UserError(f"{dataset.out} lacks {n:,} parts; give another OUT")
        first = max([first + n_parts, *(number + 1 for number in there)])
        closed, new = {*range(first)}.difference(there), np.flatnonzero(numbers < 0)
        edition = Edition(first, len(new), _digest(items, new)) if len(new) else None
    parts = parts_of(first, len(new), shard)
    again = _to_be_made_anew(items, known, rows)
    again = again[np.argsort(numbers[again], kind="stable")]
    runs = {len(new) + at: known.runs.get(row, 0) for at, row in enumerate(rows[again].tolist())}
    ends, replaced = len(new), {}
    for number, count in zip(*np.unique(numbers[again], return_counts=True), strict=True):
        parts.pop(int(number), None)  # it comes behind all new ones
        parts[int(number)], ends = range(ends, ends + int(count)), ends + int(count)
        replaced[int(number)] = dataset.store.tag(dataset.row_file(int(number)))
    return Growth(
        items if len(new) == len(items) and not len(again) else items.take(np.append(new, again)),
        parts,
        replaced,
        {position: n for position, n in runs.items() if n},
        int((numbers < 0).sum()),
        len(again) - len(known.runs.keys() & {*rows[again].tolist()}),
        _gone(known, rows) if items.is_whole else {},
        edition,
        sorted(closed),
    )


def _read_known(dataset: Dataset, numbers: Sequence[int]) -> _Known:
    failed, unreached = dataset.with_files(FAILURES), dataset.with_files(UNREACHED)

    def read(number: int) -> tuple[Any, Any, int, list[int]]:
        table = dataset.rows(number, ["id", "version"])
        lines = dataset.failures(number) if number in failed else []
        left = dataset.unreached(number) if number in unreached else []
        ids = [row["id"] for row in (*lines, *left)]
        versions = [row.get("version") for row in lines] + [""] * len(left)
        return (
            [*table["id"].chunks, pa.array(ids, pa.string())],
            [*table["version"].chunks, pa.array(versions, pa.string())],
            len(table),
            [row["runs"] for row in left],
        )

    ids, versions, counts = list[Any](), list[Any](), list[tuple[int, int]]()
    runs, n = dict[int, int](), 0
    with ThreadPoolExecutor(THREADS) as pool:
        for some, about, n_vectors, left in pool.map(read, numbers):
            ids, versions = ids + some, versions + about
            n_rows = sum(map(len, some))
            counts.append((n_vectors, n_rows - n_vectors))
            n += n_rows
            runs |= zip(range(n - len(left), n), left, strict=True)
    pairs = np.array(counts, np.int64).reshape(-1, 2)
    return _Known(
        pa.chunked_array(ids, pa.string()),
        pa.chunked_array(versions, pa.string()),
        np.repeat(np.array(numbers, np.int64), pairs.sum(axis=1)),
        np.repeat(np.tile([True, False], len(pairs)), pairs.reshape(-1)),
        runs,
    )


def _find(ids: Any, among: Any) -> npt.NDArray[np.int64]:
    """Of each id its row among others, or -1."""
    kind = pa.large_string()  # one of strings has at most 2 GB
    rows = pc.index_in(ids.cast(kind), value_set=among.cast(kind))
    found: npt.NDArray[np.int64] = np.asarray(pc.fill_null(rows, -1), np.int64)
    return found


def _to_be_made_anew(
    items: Items, known: _Known, rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """What has changed or was not reached, by position; without a version, a vector stays."""
    at = np.flatnonzero(rows >= 0)
    now, before = items.versions.take(at), known.versions.take(rows[at])
    differs = pc.fill_null(pc.and_(pc.not_equal(now, before), pc.not_equal(now, "")), False)
    is_unknown = known.has_vector[rows[at]] & pc.fill_null(pc.equal(before, ""), True).to_numpy()
    is_left = np.isin(rows[at], [*known.runs])
    positions: npt.NDArray[np.int64] = at[differs.to_numpy() & ~is_unknown | is_left]
    return positions


def _gone(known: _Known, rows: npt.NDArray[np.int64]) -> dict[int, Any]:
    is_gone = np.ones(len(known.ids), bool)
    is_gone[rows[rows >= 0]] = False
    numbers = known.numbers[is_gone]
    ids = known.ids.filter(pa.array(is_gone))
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
    digest = sha256()
    is_all = len(positions) == len(items)
    add_to_digest(digest, items.ids if is_all else items.ids.take(positions))
    return digest.hexdigest()
