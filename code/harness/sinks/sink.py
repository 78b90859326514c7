"""What a sink is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

#: (n, dim) float32.
Vectors: TypeAlias = npt.NDArray[np.float32]

#: Rows that `parquet` collects before it writes them.
ROW_GROUP = 4096


class Sink:
    """A file of vectors. It is complete after `close`; to survive a power cut, `sync_folder` it."""

    def __init__(self, path: Path, dim: int) -> None:
        self.path, self._dim = path, dim
        self._ids: list[str] = []

    def write(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Append n ids and their (n, dim) float32 vectors; no reference to the array is kept."""
        raise NotImplementedError

    def close(self) -> None:
        """Finish the file."""
        raise NotImplementedError

    @staticmethod
    def read(path: Path) -> tuple[list[str], Vectors]:
        """Ids and (n, dim) float32 vectors of a closed file."""
        raise NotImplementedError


def stack_rows(rows: Sequence[Any]) -> Vectors:
    """(n, dim) float32 of n rows; an empty file does not know its width."""
    return np.array(rows, dtype=np.float32) if rows else np.empty((0, 0), np.float32)
