"""The output of a job: parts that are committed whole or not at all, and what they are.

    dataset.json                 what was embedded by what; `complete` once every part is there
    part-00000.parquet           id, vector, sha256, width, height, version: one shard of the list
    failures/part-00000.jsonl    its images without a vector: id, stage, reason
    thumbnails/part-00000.tar    with keep=thumbnails

With another sink, `part-00000.npy` (lmdb, jsonl) has ids and vectors, `rows/part-00000.parquet` the
other columns.

The commit of a part is one rename, of its Parquet file. All else of it was written, flushed and
renamed before, and counts only where that file exists: a kill between two renames leaves files that
the next start removes. Failures are files of their own and not metadata of the Parquet file, so
that they can be read with any tool.

On a cluster two processes may hold the same part: an actor of a lost node, or of a killed driver,
may still be at work. Each writes below a name of its own; renames, and removals of what a kill
left, exclude each other; the first one to publish a part is the one that counts.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from wallclock.errors import UserError
from wallclock.files import disk_is_full, pretty_json, write_text
from wallclock.stages import sinks

FORMAT = 1
ABOUT, LOCK, PUBLISHING = "dataset.json", ".lock", ".publishing"
_FOLDERS = ("failures", "rows", "thumbnails")
#: The columns beside the vector; sha256 as hexadecimal text, which every reader takes.
ROWS = pa.schema(
    [
        *(("id", pa.string()), ("sha256", pa.string())),
        *(("width", pa.int32()), ("height", pa.int32()), ("version", pa.string())),
    ]
)
#: Floats and digests take as many bytes compressed; only what is searched needs its range.
_HOW: Mapping[str, Any] = {
    **{"row_group_size": sinks.ROW_GROUP, "use_dictionary": False},
    **{"compression": dict.fromkeys(("id", "version"), "snappy"), "write_statistics": ["id"]},
}

Vectors = npt.NDArray[np.float32]


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
    """A folder of parts. `sink`: parquet, or what holds the vectors beside the rows."""

    out: Path
    sink: str = "parquet"
    about: Mapping[str, Any] = field(default_factory=dict)

    def committed(self) -> list[int]:
        """The numbers of the parts that are there, ascending."""
        paths = self._row_file(0).parent.glob("part-*.parquet")
        return sorted(int(path.stem.removeprefix("part-")) for path in paths)

    def counts(self) -> dict[str, int]:
        """Images with a vector and without, over all parts."""
        numbers = self.committed()
        return {
            "vectors": sum(pq.read_metadata(self._row_file(n)).num_rows for n in numbers),
            "failures": sum(len(self.failures(n)) for n in numbers),
            "parts": len(numbers),
        }

    def rows(self, number: int, columns: Sequence[str] = ROWS.names) -> Any:
        """Columns of a part as an Arrow table, without the vectors."""
        return pq.read_table(self._row_file(number), columns=list(columns))

    def vectors(self, number: int) -> Vectors:
        """The (n, dim) float32 vectors of a part, in the order of its rows."""
        return sinks.read_vectors(self.out / f"part-{number:05d}.{self.sink}")

    def failures(self, number: int) -> list[dict[str, str]]:
        """The images of a part without a vector: id, stage, reason."""
        path = self.out / "failures" / f"part-{number:05d}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else ()
        return [json.loads(line) for line in lines]

    def thumbnails(self, number: int) -> Path:
        """The copies of a part's images; no such file where none were kept."""
        return self.out / "thumbnails" / f"part-{number:05d}.tar"

    def commit(self, number: int, part: Part) -> None:
        """Write a part; it is on the disk when this returns. One that is there already stays.

        Raises UserError: the disk is full.
        """
        name = f"part-{number:05d}"
        work = self.out / f".{name}-{uuid4().hex}.tmp"
        last = self._row_file(number).relative_to(self.out)
        with _full_disk(self.out):
            for folder in _FOLDERS:
                (work / folder).mkdir(parents=True)
            if part.failures:
                lines = (f"{json.dumps(dict(row))}\n" for row in part.failures)
                (work / "failures" / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
            if part.thumbnails is not None:
                part.thumbnails(work / "thumbnails" / f"{name}.tar")
            table = pa.table(dict(part.rows), schema=ROWS)
            if self.sink == "parquet":
                table = table.add_column(1, "vector", _as_lists(part.vectors))
            else:
                kind, dim = sinks.SINKS[self.sink], part.vectors.shape[1]
                sink = kind(work / f"{name}.{self.sink}", dim)
                sink.write(table["id"].to_pylist(), part.vectors)
                sink.close()
            pq.write_table(table, work / last, **_HOW)
            written = sorted(p.relative_to(work) for p in work.rglob("*") if p.is_file())
            for path in written:
                _sync(work / path)
            written.remove(last)
            with self._publishing():
                for path in () if (self.out / last).exists() else (*written, last):
                    (self.out / path).parent.mkdir(exist_ok=True)
                    os.replace(work / path, self.out / path)
                    _sync((self.out / path).parent)
            shutil.rmtree(work)

    def remove_leftovers(self) -> None:
        """Remove what a kill left: temporary files, and files of parts that were not committed."""
        with self._publishing():
            for path in self.out.glob(".*.tmp"):
                if path.is_dir():  # under another name no process can still publish from it
                    shutil.rmtree(path.rename(path.with_suffix(".old.tmp")), ignore_errors=True)
                else:
                    path.unlink()
            whole = {f"part-{number:05d}" for number in self.committed()}
            for folder in (self.out, *(self.out / name for name in _FOLDERS)):
                for path in folder.glob("part-[0-9]*"):
                    if path.name.partition(".")[0] not in whole:
                        path.unlink()

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write dataset.json."""
        write_text(self.out / ABOUT, pretty_json({"format": FORMAT, **about}))

    @contextmanager
    def _publishing(self) -> Iterator[None]:
        with (self.out / PUBLISHING).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _row_file(self, number: int) -> Path:
        folder = self.out if self.sink == "parquet" else self.out / "rows"
        return folder / f"part-{number:05d}.parquet"


def open_existing(out: Path) -> Dataset | None:
    """The dataset in a folder; None for no folder or an empty one.

    Raises UserError: other files are there, or dataset.json cannot be read.
    """
    try:
        about = json.loads((out / ABOUT).read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise UserError(f"{out / ABOUT} has format {about['format']}; this version: {FORMAT}")
        return Dataset(out, about["identity"]["sink"], about)
    except FileNotFoundError:
        others = [p for p in out.iterdir() if p.name[0] != "."] if out.is_dir() else []
        if others:
            where = f"{out} has no {ABOUT} and is not empty ({others[0].name})"
            raise UserError(f"{where}; give a folder of its own") from None
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{out / ABOUT} cannot be read: {error}") from error


def check_same(dataset: Dataset, identity: Mapping[str, Any]) -> None:
    """Raise UserError, in one line, where a dataset is of another list, model or recipe."""
    before = dataset.about["identity"]
    changed = [name for name in identity if before.get(name) != identity[name]]
    if changed:
        details = "; ".join(_change(name, before.get(name), identity[name]) for name in changed)
        fix = "give another OUT (reuse= takes over what has not changed), or into_new=true"
        raise UserError(f"{dataset.out} holds another job's vectors: {details}; {fix}")


def _change(name: str, before: Any, now: Any) -> str:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        inner = [key for key in now if before.get(key) != now[key]]
        return ", ".join(f"{name}.{key} was {before.get(key)}, is {now[key]}" for key in inner)
    if len(str(before)) > 40:  # a digest says nothing
        return f"{name} changed"
    return f"{name} was {before}, is {now}"


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep other jobs out of a folder. The kernel releases the lock, also of a process killed -9.

    Raises UserError: another job has it, or the folder cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / LOCK).open("a")
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another job is writing to {out}; wait for it, or stop it") from None
        yield


def _as_lists(vectors: Vectors) -> Any:
    item = pa.field("element", pa.float32(), nullable=False)
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(item, vectors.shape[1]))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _full_disk(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not disk_is_full(error):
            raise
        fix = "free some and run the same command again: whole parts are kept"
        raise UserError(f"no space left while writing {out}; {fix}") from error
