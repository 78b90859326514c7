"""The output of a job: parts that are committed whole or not at all, and what they are.

    _dataset.json                what was embedded by what; `complete` once every part is there
    _editions/from-00000.json    which images the parts from that number on have, and how many
    part-00000.parquet           id, vector, sha256, width, height, version, then the list's other
                                 columns: one shard of an edition
    _failures/part-00000.jsonl   its images without a vector: id, stage, reason, version
    _unreached/part-00000.jsonl  those that were not reached: also in how many runs
    _checksums/part-00000.json   size and sha256 of each of the part's files: a checksum of Parquet
                                 covers the data of a page, not its header and not the footer

Readers of Parquet folders skip names that begin with `_` or `.`: the folder is a table for them.

The commit of a part is one rename, or in a bucket one conditional PUT, of its Parquet file. All
else of it was written before, and counts only where that file exists.

A part whose images have changed, were not reached or are to be removed is replaced at once, and
only as it was when it was read. Of two processes that write the same part, the first one to publish
it counts. `plan.py` says which images are in which part.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wallclock import documents
from wallclock.errors import UserError, first_line, reason_of
from wallclock.files import pretty_json, sha256_file
from wallclock.infer.finite import rows_not_finite
from wallclock.job.part import PARQUET, ROWS, Part, read_rows, table_of
from wallclock.job.stores.s3 import Store, at
from wallclock.outside import path_of, printable, text_of, without_secrets
from wallclock.recipe import Count, Positive
from wallclock.stages.pixels import Vectors

FORMAT = 1
#: Parts, or files, that are asked for at once: a bucket or a network file system answers late.
THREADS = 16
#: Parts that are checked at once: a bucket answers late, a file of a bucket is in memory.
_CHECKED = 4
#: Of the library `datasets`, which skips no names that begin with `_`.
CONFIG = ".huggingface.yaml"
_CONFIG = 'configs:\n- config_name: default\n  data_files: "part-*.parquet"\n'

_PART = re.compile(r"(?:.*/)?part-([0-9]{5,9})(?:\.[0-9a-f]+)?\.[a-z]+")
_Object = Mapping[str, Any]
#: Of the description.
_ABOUT: documents.Schema = {
    "format": int,
    "complete": bool,
    "has_whole_source": bool,
    **dict.fromkeys(("source", "settings.model", "weights"), str),
    "settings.limit": Positive | None,
    "schema": Mapping[str, str],
    **dict.fromkeys(("settings", "identity", "identity.model", "identity.recipe"), _Object),
    **dict.fromkeys(("identity.shard", "identity.model.dim"), Positive),
    **dict.fromkeys(("identity.recipe.dtype", "identity.recipe.preprocess"), str),
    "carries": tuple[str, ...],
    "versions": Mapping[str, str],
    "earlier_versions": tuple[Mapping[str, str], ...],
    "counts": Mapping[str, Count],
}
_NEEDED = ("format", "complete", "source", "settings", "identity", "shard")
_COUNTS = ("vectors", "failures", "parts")
_CHECKSUMS: documents.Schema = {"bytes": Count, "sha256": str}
_FAILURE = dict.fromkeys(("id", "stage", "reason", "version"), str)
#: Beside them, of an image that was not reached.
_RUNS = {"runs": Count}

#: The description, and the folders of the files beside the parts.
ABOUT, FAILURES, UNREACHED, CHECKSUMS = "_dataset.json", "_failures", "_unreached", "_checksums"


class DamagedPartError(UserError):
    """A file `name` of the part with this `row_file` is not what was written; `reason` says why."""

    def __init__(self, out: Path | str, row_file: str, name: str, reason: str) -> None:
        fix = f"remove {row_file}, and run the job of {out} again: it makes the part again"
        super().__init__(f"{out}/{name} is damaged: {reason}; {fix}")
        self.out: Path | str = out
        self.row_file: str = row_file
        self.name: str = name
        self.reason: str = reason

    def __reduce__(self) -> Any:
        """It goes from an actor of a cluster to the driver."""
        return DamagedPartError, (self.out, self.row_file, self.name, self.reason)


@dataclass(frozen=True)
class Dataset:
    """Parts in a place."""

    store: Store
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def out(self) -> Path | str:
        """The folder, or `s3://bucket/prefix`."""
        return self.store.out

    def committed(self) -> list[int]:
        """The numbers of the parts that are there, ascending."""
        names = [name for name in self.store.names("part-") if name.endswith(".parquet")]
        if other := next((name for name in names if not _PART.fullmatch(name)), None):
            raise UserError(f"{self.out}/{printable(other)} is not part of its job; move it away")
        return sorted(map(part_number, names))

    def counts(self) -> dict[str, int]:
        """Images with a vector and without, over all parts."""
        numbers = self.committed()
        with ThreadPoolExecutor(THREADS) as pool:
            vectors = pool.map(lambda n: self.footer(n).num_rows, numbers)
            failures = pool.map(lambda n: len(self.failures(n)), numbers)
            return {"vectors": sum(vectors), "failures": sum(failures), "parts": len(numbers)}

    def footer(self, number: int) -> Any:
        """The metadata of a part's row file. Raises DamagedPartError."""
        name = self.row_file(number)
        with self.reading(number, name):
            return pq.read_metadata(self.store.open(name))

    def rows(self, number: int, columns: Sequence[str] = ROWS.names) -> Any:
        """A part as an Arrow table, by default without vectors. Raises DamagedPartError."""
        name = self.row_file(number)
        with self.reading(number, name):
            return read_rows(self.store.open(name), columns)

    def vectors(self, number: int) -> Vectors:
        """The (n, dim) float32 vectors of a part, in its rows' order. Raises DamagedPartError."""
        with self.reading(number, self.row_file(number)):
            lists = self._whole(number, ["vector"])["vector"].combine_chunks()
            vectors: Vectors = lists.flatten().to_numpy().reshape(len(lists), lists.type.list_size)
            if rows_not_finite(vectors):  # of an older version
                raise ValueError("it has vectors that are not finite")
            return vectors

    def _whole(self, number: int, columns: Sequence[str] | None = None) -> Any:
        """Columns of a part, by default all, whose file was compared with its sha256."""
        name = self.row_file(number)
        with (
            self.reading(number, name),
            self.store.piece(name, name) as path,
            pa.OSFile(os.fsencode(self.checked(number, name, path))) as file,
        ):
            return read_rows(file, columns)

    def failures(self, number: int) -> list[_Object]:
        """Of the images without a vector: id, stage, reason, version. Raises DamagedPartError."""
        return self._lines(number, FAILURES, _FAILURE)

    def unreached(self, number: int) -> list[_Object]:
        """Of those that were not reached, also in how many runs. Raises DamagedPartError."""
        return self._lines(number, UNREACHED, _FAILURE | _RUNS)

    def _lines(self, number: int, folder: str, schema: documents.Schema) -> list[_Object]:
        name = f"{folder}/part-{number:05d}.jsonl"
        with self.reading(number, name), self.store.piece(self.row_file(number), name) as path:
            if path is None:
                return []
            self.checked(number, name, path)
            rows = [documents.load(line, schema) for line in path.read_bytes().splitlines()]
            for row in rows:
                if absent := schema.keys() - row.keys() - {"version"}:  # older datasets have none
                    raise ValueError(f"a line has no {min(absent)}")
            return rows

    def recorded(self, number: int) -> Mapping[str, _Object]:
        """`bytes` and `sha256` of each of a part's files, by name. Raises DamagedPartError."""
        name = self._checksum_file(number)
        with self.reading(number, name), self.store.piece(self.row_file(number), name) as path:
            if path is None:
                raise ValueError("it is missing")
            files = documents.load(path.read_bytes(), _CHECKSUMS)
            if self.row_file(number) not in files:
                raise ValueError(f"it does not name {self.row_file(number)}")
            if any({*_CHECKSUMS} - about.keys() for about in files.values()):
                raise ValueError(f"it lacks {' or '.join(_CHECKSUMS)} of a file")
            return files

    def checked(self, number: int, name: str, path: Path | None) -> Path:
        """A part's file, here at `path`. Raises DamagedPartError: it is not what was written."""
        recorded = self.recorded(number)
        if path is None:
            raise self.damaged(number, name, "it is missing")
        if name not in recorded:
            raise self.damaged(number, name, "no checksum of it was recorded")
        if sha256_file(path) != recorded[name]["sha256"]:
            raise self.damaged(number, name, "its sha256 is not the recorded one")
        return path

    def damaged(self, number: int, name: str, reason: str) -> DamagedPartError:
        """The error that says so of a part's file."""
        return DamagedPartError(self.out, self.row_file(number), name, reason)

    def with_files(self, folder: str) -> set[int]:
        """The numbers of the parts that have a file in a folder, as `FAILURES`."""
        names = self.store.names(f"{folder}/part-")
        return {part_number(name) for name in names if _PART.fullmatch(name)}

    def commit(self, number: int, part: Part) -> bool:
        """Write a whole part; False: one was there, and stays. Raises UserError: it is refused."""
        with self._staged(number, part, table_of(part)) as work:
            return self.store.commit(work, self.row_file(number))

    def replace(self, number: int, ids: Any, part: Part) -> None:
        """Put what `part` says of these images, an Arrow column of ids, in the place of the rest.

        A reader finds the part as it was, or as it is when this returns. Raises UserError as
        `commit` does; DamagedPartError: what stays is not what was written.
        """
        while True:
            tag = self.store.tag(self.row_file(number))
            whole, lines = self._whole(number), [self.failures(number), self.unreached(number)]
            had = pa.array([row["id"] for rows in lines for row in rows], pa.string())
            had = pa.chunked_array([*whole["id"].chunks, had], pa.string())
            ids = ids.filter(pc.is_in(ids, value_set=had))
            gone, there = {*ids.to_pylist()}, pc.is_in(whole["id"], value_set=ids)
            new = table_of(part)
            new = new.filter(pc.is_in(new["id"], value_set=ids)).cast(whole.schema)
            failures, unreached = (
                [row for row in old if row["id"] not in gone]
                + [row for row in some if row["id"] in gone]
                for old, some in zip(lines, (part.failures, part.unreached), strict=True)
            )
            merged = replace(part, failures=failures, unreached=unreached)
            table = pa.concat_tables([whole.filter(pc.invert(there)), new])
            with self._staged(number, merged, table, is_whole=True) as work:
                if self.store.commit(work, self.row_file(number), tag):
                    return

    @contextmanager
    def _staged(
        self, number: int, part: Part, table: Any, *, is_whole: bool = False
    ) -> Iterator[Path]:
        """A folder with the files of a part; `is_whole`: with all that it may have had."""
        name = f"part-{number:05d}"
        with self.store.staging(name) as work:
            for folder, rows in ((FAILURES, part.failures), (UNREACHED, part.unreached)):
                (work / folder).mkdir(parents=True)
                if rows or is_whole:
                    lines = (f"{json.dumps(dict(row))}\n" for row in rows)
                    path = work / folder / f"{name}.jsonl"
                    path.write_text("".join(lines), encoding="utf-8")
            with pa.OSFile(os.fsencode(work / self.row_file(number)), "wb") as file:
                pq.write_table(table, file, **PARQUET)
            written = [path for path in work.rglob("*") if path.is_file()]
            recorded = {
                path.relative_to(work).as_posix(): {
                    "bytes": path.stat().st_size,
                    "sha256": sha256_file(path),
                }
                for path in written
            }
            path = work / self._checksum_file(number)
            path.parent.mkdir()
            path.write_bytes(pretty_json(recorded).encode())
            yield work

    def describe(self, about: Mapping[str, Any], *, first: bool = False) -> None:
        """Write what it is. Raises UserError: it is the first time, and another job was first."""
        self.store.write(CONFIG, _CONFIG.encode())
        about = _with_paths(about, _public)
        data = pretty_json({"format": FORMAT, **about}).encode()
        if not first:
            self.store.write(ABOUT, data)
        elif not self.store.create(ABOUT, data):
            raise UserError(f"another job has begun in {self.out}; run the same command again")

    def row_file(self, number: int) -> str:
        """The name of the file whose presence commits a part."""
        return f"part-{number:05d}.parquet"

    def _checksum_file(self, number: int) -> str:
        return f"{CHECKSUMS}/part-{number:05d}.json"

    @contextmanager
    def reading(self, number: int, name: str) -> Iterator[None]:
        """Raise DamagedPartError where the block finds a file damaged; UserError: unreadable."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # of what a file may make a library raise there is no end
            if getattr(error, "errno", None):
                raise UserError(f"{self.out}/{name} cannot be read: {error}") from error
            raise self.damaged(number, name, reason_of(error).rstrip(".")) from error


def open_existing(place: Store | str | Path) -> Dataset | None:
    """The dataset in a place; None: nothing is there. Raises UserError: other or damaged files."""
    store = at(place) if isinstance(place, str | Path) else place
    where, fix = f"{store.out}/{ABOUT}", "give another OUT"
    try:
        text = store.read(ABOUT)
    except FileNotFoundError:
        if other := next((name for name in store.names("") if name[0] != "."), None):
            why = f"{store.out} has no {ABOUT} and is not empty ({other})"
            raise UserError(f"{why}; give a folder of its own") from None
        return None
    except OSError as error:
        raise UserError(f"{where} cannot be read: {error}") from error
    about = documents.parse(text, where, _ABOUT, fix)
    try:
        pretty_json(about)
    except ValueError as error:  # NaN, which JSON has not
        raise UserError(f"{where} cannot be read: {first_line(error)}; {fix}") from error
    if about.get("format", FORMAT) != FORMAT:
        raise UserError(f"{where} has format {about['format']}; this version: {FORMAT}")
    found = {*about, *about.get("identity", ()), *about.get("counts", _COUNTS)}
    if absent := [name for name in (*_NEEDED, *_COUNTS) if name not in found]:
        raise UserError(f"{where} cannot be read: it has no {absent[0]}; {fix}")
    return Dataset(store, _with_paths(about, path_of))


def _public(path: str) -> str:
    """A path as text; what has a URL, without secrets."""
    text = text_of(path)
    return without_secrets(text) if "://" in text else text


def _with_paths(about: Mapping[str, Any], form: Callable[[str], str]) -> dict[str, Any]:
    """A description with its source and settings in another form."""
    settings = {
        name: form(value) if isinstance(value, str) else value
        for name, value in about["settings"].items()
    }
    return {**about, "source": form(about["source"]), "settings": settings}


def part_number(name: str) -> int:
    """Of a part, from the name of a file of it."""
    return int(_PART.fullmatch(name)[1])  # type: ignore[index]


# --- are they what was written? Each start looks at sizes and footers, verify at every byte -------


def check_sizes(dataset: Dataset, number: int) -> None:
    """Compare a part's sizes and columns with what they must be. Raises DamagedPartError."""
    row_file = dataset.row_file(number)
    recorded = dataset.recorded(number)
    for name in recorded:
        size = dataset.store.size(row_file, name)
        if size is None:
            raise dataset.damaged(number, name, "it is missing")
        if size != recorded[name]["bytes"]:
            raise dataset.damaged(number, name, f"{size:,} of {recorded[name]['bytes']:,} bytes")
    footer = dataset.footer(number)
    with dataset.reading(number, row_file):
        _check_columns(dataset, footer.schema.to_arrow_schema())
    dataset.failures(number)
    dataset.unreached(number)


def _check_columns(dataset: Dataset, schema: Any) -> None:
    """Raise ValueError where a column is not there, or has another type than `commit` writes."""
    identity = dataset.about["identity"]
    columns = [*ROWS.names, "vector", *identity.get("carries", ())]
    if absent := set(columns) - set(schema.names):
        raise ValueError(f"it has no column {min(absent)}")
    for item in ROWS:
        if (kind := schema.field(item.name).type) != item.type:
            raise ValueError(f"its column {item.name} has the type {kind}, not {item.type}")
    kind, dim = schema.field("vector").type, identity.get("model", {}).get("dim")
    is_list = pa.types.is_fixed_size_list(kind) and kind.value_type == pa.float32()
    if not is_list or kind.list_size != (dim or kind.list_size):
        raise ValueError(f"its column vector has the type {kind}")


def check_bytes(dataset: Dataset, number: int) -> None:
    """Compare every byte of a part with its checksums. Raises DamagedPartError."""
    check_sizes(dataset, number)
    row_file = dataset.row_file(number)
    for name in dataset.recorded(number):
        with dataset.store.piece(row_file, name) as path:
            dataset.checked(number, name, path)


def damaged_parts(
    dataset: Dataset, check: Callable[[Dataset, int], None]
) -> Iterator[DamagedPartError]:
    """What a check finds, part by part."""

    def fault_of(number: int) -> DamagedPartError | None:
        try:
            check(dataset, number)
        except DamagedPartError as error:
            return error
        return None

    with ThreadPoolExecutor(_CHECKED) as pool:
        yield from filter(None, pool.map(fault_of, dataset.committed()))


def remove_damaged(dataset: Dataset) -> Iterator[str]:
    """Remove the parts that are not whole, with a line for each; the job makes them again."""
    for fault in [*damaged_parts(dataset, check_sizes)]:
        dataset.store.remove(fault.row_file)
        yield f"{fault.name} is damaged: {fault.reason}; the images of its part are embedded again"
