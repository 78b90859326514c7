"""Sink `parquet`: columns id (string) and vector (fixed-size list of float32), snappy.

Row groups of 4,096 are written as they fill; each page has a checksum, which is read, too.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.sinks.sink import ROW_GROUP, Sink, Vectors


class Parquet(Sink):
    """A Parquet file."""

    def __init__(self, path: Path, dim: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        super().__init__(path, dim)
        self._pa: Any = pa
        # The first array imports pandas where it is installed, 0.3 s: here, not behind a batch.
        pa.array([""])
        vector = pa.list_(pa.field("element", pa.float32(), nullable=False), dim)
        self._schema = pa.schema([pa.field("id", pa.string()), pa.field("vector", vector)])
        self._writer: Any = pq.ParquetWriter(
            path, self._schema, compression="snappy", write_page_checksum=True
        )
        self._chunks: list[Vectors] = []

    def write(self, ids: Sequence[str], vectors: Vectors) -> None:
        """Collect rows, and write a group of them."""
        self._ids.extend(ids)
        # A copy: a view would keep its batch alive until the row group is full.
        self._chunks.append(np.array(vectors, dtype=np.float32))
        if len(self._ids) >= ROW_GROUP:
            self._flush()

    def close(self) -> None:
        """Write the last group and the footer."""
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
        """Ids and vectors."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        table = pq.read_table(path, page_checksum_verification=True)
        column = table["vector"].combine_chunks()
        lengths = pc.list_value_length(column).unique().to_pylist()
        if len(lengths) > 1 or None in lengths:
            raise ValueError(f"vectors of {len(lengths)} lengths")
        flat = column.flatten().to_numpy(zero_copy_only=False)
        dim = lengths[0] if lengths else getattr(column.type, "list_size", 0)
        return table["id"].to_pylist(), np.asarray(flat, dtype=np.float32).reshape(-1, dim)


SINK = Parquet
