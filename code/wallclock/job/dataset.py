"""The output of a job: parts that are committed whole or not at all, and what they are.

    dataset.json                 what was embedded by what; `complete` once every part is there
    part-00000.parquet           id, vector, sha256, width, height, version: one shard of the list
    failures/part-00000.jsonl    its images without a vector: id, stage, reason
    thumbnails/part-00000.tar    with keep=thumbnails

With another sink, `part-00000.npy` (lmdb, jsonl) has ids and vectors, `rows/part-00000.parquet` the
other columns.

The commit of a part is one rename, or in a bucket one conditional PUT, of its Parquet file
(`stores.py`, `s3.py`). All else of it was written before, and counts only where that file exists:
what a kill leaves is removed later. Failures are files of their own and not metadata of the Parquet
file, so that they can be read with any tool.

On a cluster two processes may hold the same part: an actor of a lost node, or of a killed driver,
may still be at work. Each writes below a name of its own; the first one to publish a part is the
one that counts.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wallclock.errors import UserError
from wallclock.files import pretty_json
from wallclock.job.stores import at
from wallclock.job.stores.interface import FOLDERS, Store
from wallclock.stages import sinks
from wallclock.stages.pixels import Vectors

FORMAT = 1
ABOUT = "dataset.json"
#: Parts that are asked for at once: a bucket answers late.
_THREADS = 16
#: The columns beside the vector; sha256 as hexadecimal text, which every reader takes.
ROWS = pa.schema(
    [
        ("id", pa.string()),
        ("sha256", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("version", pa.string()),
    ]
)
#: Floats and digests take as many bytes compressed; only what is searched needs its range.
_PARQUET: Mapping[str, Any] = {
    "row_group_size": sinks.ROW_GROUP,
    "use_dictionary": False,
    "compression": {"id": "snappy", "version": "snappy"},
    "write_statistics": ["id"],
}


@dataclass
class Part:
    """One shard before it is committed: n rows in the list's order; vectors (n, dim) float32.

    `thumbnails`: name in the tar → bytes.
    """

    rows: Mapping[str, Sequence[Any]]
    vectors: Vectors
    failures: Sequence[Mapping[str, str]] = ()
    thumbnails: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class Dataset:
    """Parts in a place. `sink`: parquet, or what holds the vectors beside the rows."""

    store: Store
    sink: str = "parquet"
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def out(self) -> Path | str:
        """The folder, or `s3://bucket/prefix`."""
        return self.store.out

    def committed(self) -> list[int]:
        """The numbers of the parts that are there, ascending."""
        names = self.store.names(f"{self._row_folder}part-")
        return sorted(_number(name) for name in names if name.endswith(".parquet"))

    def counts(self) -> dict[str, int]:
        """Images with a vector and without, over all parts."""
        numbers = self.committed()
        with ThreadPoolExecutor(_THREADS) as pool:
            rows = (self.store.open(self._row_file(n)) for n in numbers)
            vectors = pool.map(lambda row: pq.read_metadata(row).num_rows, rows)
            failures = pool.map(lambda n: len(self.failures(n)), numbers)
            return {"vectors": sum(vectors), "failures": sum(failures), "parts": len(numbers)}

    def rows(self, number: int, columns: Sequence[str] = ROWS.names) -> Any:
        """Columns of a part as an Arrow table, without the vectors."""
        return pq.read_table(self.store.open(self._row_file(number)), columns=list(columns))

    def vectors(self, number: int) -> Vectors:
        """The (n, dim) float32 vectors of a part, in the order of its rows."""
        name = f"part-{number:05d}.{self.sink}"
        with self._piece(number, name) as path:
            if path is None:
                raise FileNotFoundError(f"{self.out}/{name}")
            return sinks.read_vectors(path)

    def failures(self, number: int) -> list[dict[str, str]]:
        """The images of a part without a vector: id, stage, reason."""
        with self._piece(number, f"failures/part-{number:05d}.jsonl") as path:
            lines = path.read_text(encoding="utf-8").splitlines() if path else ()
            return [json.loads(line) for line in lines]

    def with_thumbnails(self) -> set[int]:
        """The numbers of the parts of whose images copies were kept."""
        return {_number(name) for name in self.store.names("thumbnails/part-")}

    def thumbnails(self, number: int) -> AbstractContextManager[Any]:
        """The path of the copies of a part's images while the block runs; None without any."""
        return self._piece(number, _tar(number))

    def commit(self, number: int, part: Part) -> None:
        """Write a part; it is there to stay when this returns. One that is there already stays.

        Raises UserError: the disk is full, or the bucket refuses it.
        """
        name, last = f"part-{number:05d}", self._row_file(number)
        with self.store.staging(name) as work:
            for folder in FOLDERS:
                (work / folder).mkdir(parents=True)
            if part.failures:
                lines = (f"{json.dumps(dict(row))}\n" for row in part.failures)
                (work / "failures" / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
            if part.thumbnails is not None:
                part.thumbnails(work / _tar(number))
            table = pa.table(dict(part.rows), schema=ROWS)
            if self.sink == "parquet":
                table = table.add_column(1, "vector", _as_lists(part.vectors))
            else:
                kind, dim = sinks.SINKS[self.sink], part.vectors.shape[1]
                sink = kind(work / f"{name}.{self.sink}", dim)
                sink.write(table["id"].to_pylist(), part.vectors)
                sink.close()
            pq.write_table(table, work / last, **_PARQUET)
            self.store.commit(work, last)

    def remove_leftovers(self) -> None:
        """Remove what a kill left."""
        self.store.remove_leftovers(self._row_folder)

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write dataset.json."""
        self.store.write(ABOUT, pretty_json({"format": FORMAT, **about}).encode())

    def _piece(self, number: int, name: str) -> AbstractContextManager[Any]:
        return self.store.piece(self._row_file(number), name)

    @property
    def _row_folder(self) -> str:
        return "" if self.sink == "parquet" else "rows/"

    def _row_file(self, number: int) -> str:
        return f"{self._row_folder}part-{number:05d}.parquet"


def open_existing(place: Store | str | Path) -> Dataset | None:
    """The dataset in a place; None where nothing is.

    Raises UserError: other files are there, or dataset.json cannot be read.
    """
    store = at(place) if isinstance(place, str | Path) else place
    try:
        about = json.loads(store.read(ABOUT))
        if about["format"] != FORMAT:
            where = f"{store.out}/{ABOUT}"
            raise UserError(f"{where} has format {about['format']}; this version: {FORMAT}")
        return Dataset(store, about["identity"]["sink"], about)
    except FileNotFoundError:
        if other := next((name for name in store.names("") if name[0] != "."), None):
            where = f"{store.out} has no {ABOUT} and is not empty ({other})"
            raise UserError(f"{where}; give a folder of its own") from None
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{store.out}/{ABOUT} cannot be read: {error}") from error


def _number(name: str) -> int:
    """Of a part, from the name of a file of it."""
    return int(name.rpartition("part-")[2].partition(".")[0])


def _tar(number: int) -> str:
    return f"thumbnails/part-{number:05d}.tar"


def _as_lists(vectors: Vectors) -> Any:
    item = pa.field("element", pa.float32(), nullable=False)
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(item, vectors.shape[1]))
