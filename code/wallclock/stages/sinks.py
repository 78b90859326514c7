"""Stage `serialize`: ids and vectors into a file, in three formats that read back exactly.

- `parquet`: columns id (string) and vector (fixed-size list of float32), snappy, in row groups of
  4,096, written as they fill.
- `lmdb`: key = position (8 bytes, big-endian, so that iteration keeps the order and no id is too
  long for a key); value = length of the id (4 bytes, little-endian), id, float32 vector.
- `npy`: rows appended to a .npy file whose header is rewritten on close; ids in `<name>.ids.json`.
"""

import errno
import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.errors import check_name

Vectors = npt.NDArray[np.float32]

#: Rows that `parquet` collects before it writes them.
ROW_GROUP = 4096
_LMDB_MAP_BYTES = 1 << 40  # a sparse map: address space, not disk


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

        table = pq.read_table(path)
        column = table.column("vector").combine_chunks()
        flat = column.flatten().to_numpy(zero_copy_only=False)
        vectors = np.asarray(flat, dtype=np.float32).reshape(-1, column.type.list_size)
        return table.column("id").to_pylist(), vectors


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
                    name = identity.encode()
                    value = struct.pack("<I", len(name)) + name + row.tobytes()
                    transaction.put(struct.pack(">Q", self._position), value, append=True)
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

        ids, rows = [], []
        environment = lmdb.open(str(path), subdir=False, readonly=True, lock=False)
        with environment, environment.begin() as view:
            for _, value in view.cursor():
                end = 4 + struct.unpack_from("<I", value)[0]
                ids.append(bytes(value[4:end]).decode())
                rows.append(np.frombuffer(bytes(value[end:]), dtype=np.float32))
        # An empty file does not know its width.
        return ids, np.stack(rows) if rows else np.empty((0, 0), np.float32)


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


SINKS: dict[str, type[Sink]] = {"parquet": _Parquet, "lmdb": _Lmdb, "npy": _Npy}


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
