"""Sink `lmdb`: key = the id in UTF-8, so that `get(id.encode())` finds a vector.

Value = position (8 bytes, little-endian), length of the id (4), id, float32 vector: its last
4 × dim bytes. An id longer than 400 bytes, or empty, has the key "sha256:" and its digest: LMDB
ends keys at 511 bytes. An image written again keeps its first vector's key; the others' have "\\0"
and the position behind.
"""

import errno
import hashlib
import os
import struct
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

import lmdb
import numpy as np

from harness.sinks.sink import Sink, Vectors, stack_rows

_MAP_BYTES = 1 << 40  # a sparse map: address space, not disk
_ID_BYTES = 400
_HEAD = struct.Struct("<QI")


class Lmdb(Sink):
    """A file of LMDB; one transaction a batch."""

    def __init__(self, path: Path, dim: int) -> None:
        super().__init__(path, dim)
        self._environment = lmdb.open(
            str(path), subdir=False, map_size=_MAP_BYTES, sync=False, lock=False
        )
        self._position = 0

    def write(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Commit a batch. Raises OSError: the disk is full, or the file over the limit of one."""
        try:
            with self._environment.begin(write=True) as transaction:
                for identity, row in zip(ids, np.asarray(vectors, np.float32), strict=True):
                    name, key = identity.encode(), key_of(identity)
                    head = _HEAD.pack(self._position, len(name))
                    value = head + name + row.tobytes()
                    if not transaction.put(key, value, overwrite=False):
                        transaction.put(b"%b\0%d" % (key, self._position), value)
                    self._position += 1
        except lmdb.Error as error:
            if os.strerror(errno.EFBIG) in str(error):
                raise OSError(errno.EFBIG, str(error), str(self.path)) from error
            # LMDB reports a full disk as an input/output error.
            disk = os.statvfs(self.path.parent)
            if disk.f_bavail * disk.f_frsize > vectors.nbytes:
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path)) from error

    def close(self) -> None:
        """Close the file; every batch is committed already."""
        self._environment.close()

    @staticmethod
    def read(path: Path) -> tuple[list[str], Vectors]:
        """Ids and vectors, in the order in which they were written.

        Raises ValueError: the file is damaged.
        """
        rows: list[tuple[int, str, Vectors]] = []
        try:
            environment = lmdb.open(str(path), subdir=False, readonly=True, lock=False)
            with environment, environment.begin() as view:
                for _, value in view.cursor():
                    position, length = _HEAD.unpack_from(value)
                    end = _HEAD.size + length
                    name = value[_HEAD.size : end].decode()
                    rows.append((position, name, np.frombuffer(value[end:], dtype=np.float32)))
        except lmdb.Error as error:
            raise ValueError(str(error)) from error
        rows.sort(key=itemgetter(0))
        return [name for _, name, _ in rows], stack_rows([vector for _, _, vector in rows])


def key_of(identity: str) -> bytes:
    """The key of an image's (first) vector."""
    name = identity.encode()
    if 0 < len(name) <= _ID_BYTES:
        return name
    return b"sha256:" + hashlib.sha256(name).hexdigest().encode()


SINK = Lmdb
