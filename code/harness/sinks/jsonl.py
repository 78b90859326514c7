"""Sink `jsonl`: a line `{"id": …, "vector": […]}` an image.

Numbers have the shortest digits that read back as the same float32. JSON has no NaN and no
infinity: both are null, and NaN when read.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness.sinks.sink import Sink, Vectors, stack_rows


class Jsonl(Sink):
    """A text file in UTF-8."""

    def __init__(self, path: Path, dim: int) -> None:
        import orjson

        super().__init__(path, dim)
        self._file, self._dumps = path.open("wb"), orjson.dumps
        self._options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE

    def write(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Append a line for each image."""
        rows = np.ascontiguousarray(vectors, dtype=np.float32)
        for identity, row in zip(ids, rows, strict=True):
            line = {"id": identity, "vector": row}
            self._file.write(self._dumps(line, option=self._options))

    def close(self) -> None:
        """Flush the file."""
        self._file.close()

    @staticmethod
    def read(path: Path) -> tuple[list[str], Vectors]:
        """Ids and vectors."""
        import orjson

        with path.open("rb") as file:
            lines = [orjson.loads(line) for line in file]
        return [line["id"] for line in lines], stack_rows([line["vector"] for line in lines])


SINK = Jsonl
