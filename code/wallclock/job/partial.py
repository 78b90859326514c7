"""What a kill leaves of a shard in progress: its first batches, saved every few minutes.

    .partial-part-00003    vectors, hashes, sizes and failures of whole batches, with their sha256

The next start of the same job takes them up and begins at the batch behind, so that the part has
the bytes that it would have had. The file is replaced by one rename or one PUT, and removed when
its part is there. Readers of the dataset skip its name.

It is written only when all earlier parts are committed, and taken up only where they are there: a
row may be a copy of a row of one of them.
"""

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.errors import UserError
from wallclock.job.dataset import Dataset, part_number
from wallclock.job.index import by_part
from wallclock.job.shard import Shard
from wallclock.job.unchanged import Places

PREFIX = ".partial-"
#: Bytes of vectors above which a shard is not saved: two copies of them are in memory meanwhile.
MOST = 1 << 28
_DIGEST_BYTES = sha256().digest_size
#: Fields of a shard with an element a row; the rows are the last axis.
_OF_ROWS = ("kept", "sizes", "in_dataset", "in_earlier")
#: What a file that cannot be read as arrays of these names may raise.
_BROKEN = (ValueError, KeyError, TypeError, IndexError, EOFError, OSError)


class _NotOfThisJobError(Exception):
    """A checkpoint that is not taken up; the text says why."""


@dataclass(frozen=True)
class Saved:
    """The first `batches` batches of a shard: `arrays` as they were saved, and its failures."""

    batches: int
    arrays: Mapping[str, npt.NDArray[Any]]
    failures: Sequence[Mapping[str, str]]

    def restore(self, shard: Shard, positions: Sequence[int]) -> int:
        """Fill a new shard's rows; how many they are. `positions`: of its images to read."""
        n = len(self.arrays["vectors"])
        offsets = np.asarray(positions[:n], np.int64) - shard.first
        for name in _OF_ROWS:
            getattr(shard, name)[..., offsets] = self.arrays[name]
        shard.vectors[offsets] = self.arrays["vectors"]
        shard.sha256[offsets] = self.arrays["sha256"].astype(str).astype(object)
        shard.twins.update(map(tuple, self.arrays["twins"].tolist()))
        shard.failures += self.failures
        return n


@dataclass
class Checkpoints:
    """Saves the shard in progress of one job.

    `identity`: digest of the job's. `every_s`: seconds between two checkpoints. `taken`: by number,
    what an earlier start has saved. `clock`: in seconds.
    """

    dataset: Dataset
    identity: str
    batch_size: int
    every_s: float = 0.0
    taken: dict[int, Saved] = field(default_factory=dict, init=False)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._last = self.clock()
        self._written = set[int]()

    def take(self, number: int, saved: Saved) -> None:
        """Note what an earlier start has saved of a shard."""
        self.taken[number] = saved
        self._written.add(number)

    def is_due(self) -> bool:
        """Whether the time is over; never with `every_s` 0."""
        return 0 < self.every_s <= self.clock() - self._last

    def save(self, shard: Shard, positions: Sequence[int], batches: int) -> None:
        """Save its first batches, all of whose vectors have arrived.

        Args:
            positions: of the shard's images that are read, in order.

        Raises UserError: the disk is full, or the bucket refuses it.
        """
        self._last = self.clock()
        read = positions[: batches * self.batch_size]
        offsets = np.asarray(read, np.int64) - shard.first
        if len(offsets) * shard.dim * shard.vectors.itemsize > MOST:
            return
        about = {**self._about(shard.number, positions), "batches": batches}
        text = json.dumps({**about, "failures": [dict(row) for row in shard.failures]})
        arrays = {name: getattr(shard, name)[..., offsets] for name in _OF_ROWS}
        arrays["vectors"] = shard.vectors[offsets]
        arrays["sha256"] = shard.sha256[offsets].astype("S64")
        arrays["twins"] = np.array([*shard.twins.items()], np.int64).reshape(-1, 2)
        arrays["about"] = np.frombuffer(text.encode(), np.uint8)
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **arrays)
        file.write(sha256(file.getbuffer()).digest())
        self.dataset.store.write(_name(shard.number), file.getvalue())
        self._written.add(shard.number)

    def committed(self, number: int) -> None:
        """Remove what was saved of a shard whose part is there."""
        if number in self._written:
            self._written.discard(number)
            self.dataset.store.remove(_name(number))

    def load(self, number: int, positions: Sequence[int], earlier: Dataset | None) -> Saved:
        """What was saved of a shard. Raises _NotOfThisJobError: it does not hold."""
        data = self.dataset.store.read(_name(number))
        payload, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if sha256(payload).digest() != digest:
            raise _NotOfThisJobError("it is not complete")
        try:
            with np.load(io.BytesIO(payload), allow_pickle=False) as file:
                arrays = dict(file)
            about = json.loads(arrays.pop("about").tobytes())
            saved = Saved(about.pop("batches"), arrays, about.pop("failures"))
        except _BROKEN as error:
            raise _NotOfThisJobError("it cannot be read") from error
        if about != self._about(number, positions):
            raise _NotOfThisJobError("it is another job's")
        if not set(range(number)) <= set(self.dataset.committed()):
            raise _NotOfThisJobError("an earlier part is gone")
        for source, name in ((self.dataset, "in_dataset"), (earlier, "in_earlier")):
            if not _holds(source, arrays[name], arrays["sha256"]):
                raise _NotOfThisJobError("it has copies of images that have changed")
        return saved

    def _about(self, number: int, positions: Sequence[int]) -> dict[str, Any]:
        """What must be equal when it is taken up: the job, and the borders of the batches."""
        read = np.asarray(positions, np.int64).tobytes()
        return {
            "identity": self.identity,
            "number": number,
            "batch_size": self.batch_size,
            "read": sha256(read).hexdigest(),
        }


def take_up(
    checkpoints: Checkpoints,
    to_read: Callable[[int], Sequence[int]],
    earlier: Dataset | None,
    *,
    used: bool = True,
) -> Iterator[str]:
    """Load what earlier starts have saved; remove what does not hold, with a line for each.

    Args:
        to_read: number of a shard → the positions of its images that are read.
        earlier: the dataset of `reuse=`.
        used: whether this place takes them up; a cluster does not.
    """
    store, there = checkpoints.dataset.store, set(checkpoints.dataset.committed())
    for number in sorted(map(part_number, store.names(f"{PREFIX}part-"))):
        if number in there:
            store.remove(_name(number))
            continue
        try:
            if not used:
                raise _NotOfThisJobError("a cluster makes whole parts")
            saved = checkpoints.load(number, to_read(number), earlier)
        except _NotOfThisJobError as why:
            store.remove(_name(number))
            yield f"{_name(number)} is left out: {why}; its images are embedded again"
        else:
            checkpoints.take(number, saved)
            n = len(saved.arrays["vectors"])
            yield f"{n:,} images of part {number} are there from {_name(number)}"


def _holds(source: Dataset | None, places: Places, hashes: npt.NDArray[np.bytes_]) -> bool:
    """Whether the rows that are copied have the same bytes as they had."""
    try:
        for number, indices, rows in by_part(places):
            if source is None:
                return False
            there = source.rows(number, ["sha256"])["sha256"].take(rows).to_pylist()
            if there != hashes[indices].astype(str).tolist():
                return False
    except (UserError, OSError, IndexError):  # the part, or its row, is not there
        return False
    return True


def _name(number: int) -> str:
    return f"{PREFIX}part-{number:05d}"
