"""Vectors of earlier parts, which copies of their images take over; each part is read once."""

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wallclock.errors import UserError
from wallclock.job.dataset import Dataset
from wallclock.job.index import Places, Words, by_part, hash_words, read_hashes
from wallclock.stages.pixels import Vectors


class CopiedVectors(AbstractContextManager["CopiedVectors"]):
    """The vectors of those parts of a dataset that have been copied from, in a file without a name.

    Copies may lie anywhere: each shard may have some of each part before it.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        folder = dataset.out if isinstance(dataset.out, Path) else None
        self._file = TemporaryFile(dir=folder, prefix=".", suffix=".tmp", buffering=0)  # noqa: SIM115
        #: Of a part, where it begins in the file, and its hashes; and where the next one will.
        self._starts, self._end = dict[int, int](), 0
        self._hashes = dict[int, Words]()

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def copy_into(self, vectors: Vectors, places: Places, sha256: npt.NDArray[np.object_]) -> None:
        """Fill the rows that have a place with vectors of images of these hashes.

        Raises DamagedPartError; UserError: another process has replaced a part.
        """
        row_bytes = vectors.itemsize * vectors.shape[1]
        for number, offsets, rows in by_part(places):
            part = None
            if number not in self._starts:
                part = self._dataset.vectors(number)
                self._hashes |= read_hashes(self._dataset, [number])
            self._check(number, rows, hash_words(pa.array(sha256[offsets], pa.string())))
            if part is not None and not self._keep(number, part):
                vectors[offsets] = part[rows]
                continue
            starts = rows * row_bytes + self._starts[number]
            for offset, start in zip(offsets.tolist(), starts.tolist(), strict=True):
                os.preadv(self._file.fileno(), [vectors[offset]], start)

    def _check(self, number: int, rows: Places, wanted: Words) -> None:
        hashes = self._hashes[number]
        if rows.max() >= len(hashes) or (hashes[rows] != wanted).any():
            name = f"{self._dataset.out}/{self._dataset.row_file(number)}"
            raise UserError(f"another process has replaced {name}; run the same command again")

    def _keep(self, number: int, part: Vectors) -> bool:
        """Write a part into the file; on a full disk it is read again for the next shard."""
        data = part.tobytes()
        with suppress(OSError):
            if self._file.write(data) == len(data):
                self._starts[number], self._end = self._end, self._end + len(data)
                return True
        self._file.truncate(self._file.seek(self._end))
        return False
