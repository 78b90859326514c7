"""Sink `npy`: rows appended to a .npy file; ids in `<name>.ids.json`.

The header is rewritten on close: numpy pads it so that it can be.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness.sinks.sink import Sink, Vectors


class Npy(Sink):
    """Raw rows behind a .npy header."""

    def __init__(self, path: Path, dim: int) -> None:
        super().__init__(path, dim)
        self._file = path.open("wb")
        self._write_header()

    def write(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Append the rows' bytes."""
        self._ids.extend(ids)
        self._file.write(np.ascontiguousarray(vectors, dtype=np.float32).tobytes())

    def close(self) -> None:
        """Write the header with the number of rows, and the ids."""
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
        """Ids and vectors."""
        ids = json.loads(path.with_suffix(".ids.json").read_text(encoding="utf-8"))
        return ids, np.load(path)


SINK = Npy
