"""Stage `serialize`: ids and vectors into a file, in four formats that read back exactly.

- `parquet`: columns id (string) and vector (fixed-size list of float32), snappy, in row groups of
  4,096, written as they fill.
- `lmdb`: key = the id in UTF-8, so that `get(id.encode())` finds a vector; its last 4 × dim bytes.
  Value = position (8 bytes, little-endian), length of the id (4), id, float32 vector. An id longer
  than 400 bytes, or empty, has the key "sha256:" and its digest: LMDB ends keys at 511 bytes. An
  image written again keeps its first vector's key; the others' have "\\0" and the position behind.
- `npy`: rows appended to a .npy file whose header is rewritten on close; ids in `<name>.ids.json`.
- `jsonl`: a line `{"id": …, "vector": […]}` an image, in the shortest digits that read back as the
  same float32. JSON has no NaN and no infinity: both are null, and NaN when read.
"""

import errno
import hashlib
import json
import os
import struct
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.errors import check_name

Vectors = npt.NDArray[np.float32]

#: Rows that `parquet` collects before it writes them.
ROW_GROUP = 4096
_LMDB_MAP_BYTES = 1 << 40  # a sparse map: address space, not disk
_LMDB_ID_BYTES = 400
_LMDB_HEAD = struct.Struct("<QI")


class Sink:
    """A file of vectors. It is complete after `close`; to survive a power cut, `sync_folder` it."""

    def __init__(self, path: Path, dim: int) -> None:
        self.path, self._dim = path, dim
        self._ids: list[str] = []

    def write(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Append n ids and their (n, dim) float32 vectors."""

    def close(self) -> None:
        """Finish the file."""

    @staticmethod
    def read(path: Path) -> tuple[list[str], Vectors]:
        """Ids and (n, dim) float32 vectors of a closed file."""
        raise NotImplementedError


class _Parquet(Sink):
    def __init__(self, path: Path, dim: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        super().__init__(path, dim)
        self._pa: Any = pa
        vector = pa.list_(pa.field("element", pa.float32(), nullable=False), dim)
        self._schema = pa.schema([pa.field("id", pa.string()), pa.field("vector", vector)])
        self._writer: Any = pq.ParquetWriter(path, self._schema, compression="snappy")
        self._chunks: list[Vectors] = []

    def write(self, ids: Sequence[str], vectors: Vectors) -> None:
        self._ids.extend(ids)
        # A copy: a view would keep its batch alive until the row group is full.
        self._chunks.append(np.array(vectors, dtype=np.float32))
        if len(self._ids) >= ROW_GROUP:
            self._flush()

    def close(self) -> None:
        if self._ids:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        pa, schema = self._pa, self._schema
        flat = pa.array(np.concatenate(self._chunks).reshape(-1))
        vectors = pa.FixedSizeListArray.from_arrays(flat, type=schema.field("vector").type)
        columns = [pa.array(self._ids), vectors]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=schema))
        self._ids, self._chunks = [], []

    @staticmethod
    def read(path: Path) -> tuple[list[str], Vectors]:
        import pyarrow.parquet as pq

        return pq.read_table(path, columns=["id"])["id"].to_pylist(), _Parquet.read_vectors(path)

    @staticmethod
    def read_vectors(path: Path) -> Vectors:
        import pyarrow.parquet as pq

        column = pq.read_table(path, columns=["vector"])["vector"].combine_chunks()
        flat = column.flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat, dtype=np.float32).reshape(-1, column.type.list_size)


class _Lmdb(Sink):
    """One transaction a batch."""

    def __init__(self, path: Path, dim: int) -> None:
        import lmdb

        super().__init__(path, dim)
        self._error: type[Exception] = lmdb.Error
        self._environment = lmdb.open(
            str(path), subdir=False, map_size=_LMDB_MAP_BYTES, sync=False, lock=False
        )
        self._position = 0

    def write(self, ids: Sequence[str], vectors: Vectors) -> None:
        try:
            with self._environment.begin(write=True) as transaction:
                for identity, row in zip(ids, np.asarray(vectors, np.float32), strict=True):
                    name, key = identity.encode(), lmdb_key(identity)
                    head = _LMDB_HEAD.pack(self._position, len(name))
                    value = head + name + row.tobytes()
                    if not transaction.put(key, value, overwrite=False):
                        transaction.put(b"%b\0%d" % (key, self._position), value)
                    self._position += 1
        except self._error as error:
            # LMDB reports a full disk as an input/output error.
            disk = os.statvfs(self.path.parent)
            if disk.f_bavail * disk.f_frsize > vectors.nbytes:
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path)) from error

    def close(self) -> None:
        self._environment.close()

    @staticmethod
    def read(path: Path) -> tuple[list[str], Vectors]:
        import lmdb

        found: list[tuple[int, str, Vectors]] = []
        environment = lmdb.open(str(path), subdir=False, readonly=True, lock=False)
        with environment, environment.begin() as view:
            for _, value in view.cursor():
                position, length = _LMDB_HEAD.unpack_from(value)
                end = _LMDB_HEAD.size + length
                name = value[_LMDB_HEAD.size : end].decode()
                found.append((position, name, np.frombuffer(value[end:], dtype=np.float32)))
        found.sort(key=itemgetter(0))
        return [name for _, name, _ in found], _stacked([row for _, _, row in found])


def lmdb_key(identity: str) -> bytes:
    """The key in a sink `lmdb` of an image's (first) vector."""
    name = identity.encode()
    if 0 < len(name) <= _LMDB_ID_BYTES:
        return name
    return b"sha256:" + hashlib.sha256(name).hexdigest().encode()


def _stacked(rows: Sequence[Any]) -> Vectors:
    """(n, dim) float32 of n rows; an empty file does not know its width."""
    return np.array(rows, dtype=np.float32) if rows else np.empty((0, 0), np.float32)


class _Npy(Sink):
    """Raw rows behind a .npy header, which numpy pads so that it can be rewritten."""

    def __init__(self, path: Path, dim: int) -> None:
        super().__init__(path, dim)
        self._file = path.open("wb")
        self._write_header()

    def write(self, ids: Sequence[str], vectors: Vectors) -> None:
        self._ids.extend(ids)
        self._file.write(np.ascontiguousarray(vectors, dtype=np.float32).tobytes())

    def close(self) -> None:
        self._file.seek(0)
        self._write_header()
        self._file.close()
        self.path.with_suffix(".ids.json").write_text(json.dumps(self._ids), encoding="utf-8")

    def _write_header(self) -> None:
        shape = (len(self._ids), self._dim)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    @staticmethod
    def read(path: Path) -> tuple[list[str], Vectors]:
        ids = json.loads(path.with_suffix(".ids.json").read_text(encoding="utf-8"))
        return ids, np.load(path)


class _Jsonl(Sink):
    def __init__(self, path: Path, dim: int) -> None:
        import orjson

        super().__init__(path, dim)
        self._file, self._dumps = path.open("wb"), orjson.dumps
        self._options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE

    def write(self, ids: Sequence[str], vectors: Vectors) -> None:
        rows = np.ascontiguousarray(vectors, dtype=np.float32)
        for identity, row in zip(ids, rows, strict=True):
            line = {"id": identity, "vector": row}
            self._file.write(self._dumps(line, option=self._options))

    def close(self) -> None:
        self._file.close()

    @staticmethod
    def read(path: Path) -> tuple[list[str], Vectors]:
        import orjson

        with path.open("rb") as handle:
            found = [(line["id"], line["vector"]) for line in map(orjson.loads, handle)]
        return [name for name, _ in found], _stacked([row for _, row in found])


SINKS: dict[str, type[Sink]] = {
    **{"parquet": _Parquet, "lmdb": _Lmdb},
    **{"npy": _Npy, "jsonl": _Jsonl},
}


def sync_folder(folder: Path) -> None:
    """Wait until every file of a closed sink's folder, and the folder itself, is on the disk."""
    for path in [*sorted(folder.iterdir()), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make(name: str, folder: Path, dim: int) -> Sink:
    """Open `folder/vectors.<name>` for writing; an unknown name is a `UserError`."""
    return SINKS[check_name(name, SINKS, "sink")](folder / f"vectors.{name}", dim)


def read(path: Path) -> tuple[list[str], Vectors]:
    """Ids and (n, dim) float32 vectors of a closed sink's file, by its name's suffix."""
    return SINKS[path.suffix[1:]].read(path)


def read_vectors(path: Path) -> Vectors:
    """The (n, dim) float32 vectors alone."""
    return _Parquet.read_vectors(path) if path.suffix == ".parquet" else read(path)[1]
