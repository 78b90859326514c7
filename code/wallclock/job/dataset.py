"""The output of a job: parts that are committed whole or not at all, and what they are.

    _dataset.json                what was embedded by what; `complete` once every part is there
    part-00000.parquet           id, vector, sha256, width, height, version, then the list's other
                                 columns: one shard of the list
    _failures/part-00000.jsonl   its images without a vector: id, stage, reason
    _thumbnails/part-00000.tar   with keep=thumbnails

Readers of Parquet folders skip names that begin with `_` or `.`: the folder is a table for them.
Older versions wrote `dataset.json`, `failures/` and `thumbnails/`; such a dataset keeps these.

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
from wallclock.job import half
from wallclock.job.stores import at
from wallclock.job.stores.interface import Store
from wallclock.stages import sinks
from wallclock.stages.pixels import Vectors

FORMAT = 1
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


@dataclass(frozen=True)
class Layout:
    """How the files beside the parts are called: the description, and two folders."""

    about: str
    failures: str
    thumbnails: str


#: Of the library `datasets`, which skips no names that begin with `_`.
CONFIG = ".huggingface.yaml"
_CONFIG = 'configs:\n- config_name: default\n  data_files: "{parts}"\n'

LAYOUT = Layout("_dataset.json", "_failures", "_thumbnails")
OLDER_LAYOUT = Layout("dataset.json", "failures", "thumbnails")


@dataclass
class Part:
    """One shard before it is committed: n rows in the list's order; vectors (n, dim) float32.

    `thumbnails`: writes the tar. `carried`: the list's other columns, an Arrow table of n rows.
    """

    rows: Mapping[str, Sequence[Any]]
    vectors: Vectors
    failures: Sequence[Mapping[str, str]] = ()
    thumbnails: Callable[[Path], None] | None = None
    carried: Any = None


@dataclass(frozen=True)
class Dataset:
    """Parts in a place. `sink`: parquet, or what holds the vectors beside the rows.

    `dtype`: float32, or float16 where the files hold that.
    """

    store: Store
    sink: str = "parquet"
    about: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    layout: Layout = LAYOUT

    @property
    def out(self) -> Path | str:
        """The folder, or `s3://bucket/prefix`."""
        return self.store.out

    def committed(self) -> list[int]:
        """The numbers of the parts that are there, ascending."""
        names = self.store.names(f"{self._row_folder}part-")
        return sorted(part_number(name) for name in names if name.endswith(".parquet"))

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
            return np.asarray(sinks.read_vectors(path), np.float32)

    def failures(self, number: int) -> list[dict[str, str]]:
        """The images of a part without a vector: id, stage, reason."""
        with self._piece(number, f"{self.layout.failures}/part-{number:05d}.jsonl") as path:
            lines = path.read_text(encoding="utf-8").splitlines() if path else ()
            return [json.loads(line) for line in lines]

    def with_thumbnails(self) -> set[int]:
        """The numbers of the parts of whose images copies were kept."""
        return {part_number(name) for name in self.store.names(f"{self.layout.thumbnails}/part-")}

    def thumbnails(self, number: int) -> AbstractContextManager[Any]:
        """The path of the copies of a part's images while the block runs; None without any."""
        return self._piece(number, self._tar(number))

    def commit(self, number: int, part: Part) -> None:
        """Write a part; it is there to stay when this returns. One that is there already stays.

        Raises UserError: the disk is full, the bucket refuses it, or float16 cannot hold a vector.
        """
        name, last = f"part-{number:05d}", self._row_file(number)
        with self.store.staging(name) as work:
            for folder in (self.layout.failures, self.layout.thumbnails, self._row_folder):
                (work / folder).mkdir(parents=True, exist_ok=True)
            if part.failures:
                lines = (f"{json.dumps(dict(row))}\n" for row in part.failures)
                path = work / self.layout.failures / f"{name}.jsonl"
                path.write_text("".join(lines), encoding="utf-8")
            if part.thumbnails is not None:
                part.thumbnails(work / self._tar(number))
            pq.write_table(self._table(part, work / f"{name}.{self.sink}"), work / last, **_PARQUET)
            self.store.commit(work, last)

    def _table(self, part: Part, path: Path) -> Any:
        """The rows as they are written; with a sink beside them, its file is written to `path`."""
        table = pa.table(dict(part.rows), schema=ROWS)
        is_half = self.dtype == half.DTYPE
        vectors: Any = half.as_float16(table["id"], part.vectors) if is_half else part.vectors
        if self.sink == "parquet":
            table = table.add_column(1, "vector", _as_lists(vectors))
        elif is_half:
            half.write_npy(path, table["id"].to_pylist(), vectors)
        else:
            sink = sinks.SINKS[self.sink](path, vectors.shape[1])
            sink.write(table["id"].to_pylist(), vectors)
            sink.close()
        if part.carried is not None:
            for column, values in zip(part.carried.schema, part.carried.columns, strict=True):
                table = table.append_column(column, values)
        return table

    def remove_leftovers(self) -> None:
        """Remove what a kill left."""
        self.store.remove_leftovers(self._row_folder)

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write what it is."""
        if self.layout == LAYOUT:
            parts = f"{self._row_folder}part-*.parquet"
            self.store.write(CONFIG, _CONFIG.format(parts=parts).encode())
        self.store.write(self.layout.about, pretty_json({"format": FORMAT, **about}).encode())

    def _piece(self, number: int, name: str) -> AbstractContextManager[Any]:
        return self.store.piece(self._row_file(number), name)

    @property
    def _row_folder(self) -> str:
        return "" if self.sink == "parquet" else "rows/"

    def _row_file(self, number: int) -> str:
        return f"{self._row_folder}part-{number:05d}.parquet"

    def _tar(self, number: int) -> str:
        return f"{self.layout.thumbnails}/part-{number:05d}.tar"


def open_existing(place: Store | str | Path) -> Dataset | None:
    """The dataset in a place, of this layout or the older one; None where nothing is.

    Raises UserError: other files are there, or its description cannot be read.
    """
    store = at(place) if isinstance(place, str | Path) else place
    texts = {layout: _read(store, layout.about) for layout in (LAYOUT, OLDER_LAYOUT)}
    described = [layout for layout, text in texts.items() if text is not None]
    if not described:
        if other := next((name for name in store.names("") if name[0] != "."), None):
            where = f"{store.out} has no {LAYOUT.about} and is not empty ({other})"
            raise UserError(f"{where}; give a folder of its own")
        return None
    if len(described) > 1:
        both = f"{LAYOUT.about} and {OLDER_LAYOUT.about}"
        raise UserError(f"{store.out} has {both}: remove the one that is not its own")
    (layout,) = described
    where = f"{store.out}/{layout.about}"
    try:
        about = json.loads(texts[layout] or b"")
        if about["format"] != FORMAT:
            raise UserError(f"{where} has format {about['format']}; this version: {FORMAT}")
        identity = about["identity"]
        return Dataset(store, identity["sink"], about, identity.get("vectors", "float32"), layout)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{where} cannot be read: {error}") from error


def _read(store: Store, name: str) -> bytes | None:
    """A file; None where it is not. Raises UserError: it cannot be read."""
    try:
        return store.read(name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{store.out}/{name} cannot be read: {error}") from error


def part_number(name: str) -> int:
    """Of a part, from the name of a file of it."""
    return int(name.rpartition("part-")[2].partition(".")[0])


def _as_lists(vectors: Any) -> Any:
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    item = pa.field("element", flat.type, nullable=False)
    return pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(item, vectors.shape[1]))
