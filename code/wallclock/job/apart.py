"""A Parquet or Arrow file from outside, read by a process of its own, which may die of it.

A few KB may stand for any number of values: by a dictionary, by runs, by pages that are packed. The
process has limits for memory and time, and where a file ends it, that is an error like any other.
"""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

#: Of the process: bytes of memory, and as many times the file's; seconds, and the file's bytes of
#: another one.
_BYTES, _TIMES = 1 << 28, 64
_SECONDS, _BYTES_A_SECOND = 30, 1 << 22
#: Rows that a byte of a file stands for at most: each has a place of its own.
_ROWS_A_BYTE = 4
_REASON = 1 << 12
PARQUET, ARROW, STREAM = "parquet", "arrow", "stream"
#: A column without values: one with images was left out.
IMAGES = "\0images"


def read_table(file: BinaryIO, kind: str, limit: int | None, images: Sequence[str]) -> Any:
    """The first `limit` rows of a file as an Arrow table; `kind`: PARQUET, ARROW or STREAM.

    `images`: names of columns that are left out where they have bytes of images, or structs of
    `bytes`; the table then has the column `IMAGES`.

    Raises ValueError: it cannot be read.
    """
    program = [sys.executable, "-P", __file__, kind, "" if limit is None else str(limit), *images]
    table = None
    with TemporaryFile("w+", errors="replace") as said:
        pipes: Any = {"stdin": file, "stdout": subprocess.PIPE, "stderr": said}
        reading = suppress(pa.ArrowException, OSError)  # the process says why
        with subprocess.Popen(program, **pipes) as reader, reading:
            table = pa.ipc.open_stream(reader.stdout).read_all()
        said.seek(0)
        reason = said.read(_REASON)
    if reader.returncode < 0:
        reason = f"Arrow ended by {signal.Signals(-reader.returncode).name}"
    if reader.returncode or table is None:
        raise ValueError(reason)
    return table


def _read(kind: str, file: Any, images: Sequence[str]) -> Any:
    if kind == PARQUET:
        names = _without_images(pq.read_schema(file), images)
        checks: dict[str, Any] = {"page_checksum_verification": True, "use_threads": False}
        table = pq.read_table(file, columns=names, **checks)
    else:
        reader = (pa.ipc.open_file if kind == ARROW else pa.ipc.open_stream)(file)
        names = _without_images(reader.schema, images)
        table = reader.read_all() if names is None else _columns(reader, names)
        table.validate(full=True)  # Arrow trusts what it reads, which has no checksums
    if names is not None:
        table = table.append_column(IMAGES, pa.nulls(len(table)))
    if len(table) > _ROWS_A_BYTE * file.size():
        raise ValueError(f"{len(table):,} rows in {file.size():,} bytes")
    for column in table.columns:  # what there is no memory for here is not for the job either
        if pa.types.is_dictionary(column.type):
            column.cast(column.type.value_type)
    return table


def _without_images(schema: Any, images: Sequence[str]) -> list[str] | None:
    """The names of the other columns; None: there is no column of images."""
    others = [field.name for field in schema if not _has_images(field, images)]
    return None if len(others) == len(schema) else others


def _has_images(field: Any, images: Sequence[str]) -> bool:
    kind = field.type
    is_struct = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
    return field.name.strip().lower() in images and (is_struct or "binary" in str(kind))


def _columns(reader: Any, names: list[str]) -> Any:
    """Columns of an Arrow file or stream, of which one record batch is held at a time."""
    batches = reader
    if hasattr(reader, "get_batch"):
        batches = map(reader.get_batch, range(reader.num_record_batches))
    schema = pa.schema([reader.schema.field(name) for name in names])
    return pa.Table.from_batches((batch.select(names) for batch in batches), schema)


def _write(kind: str, limit: int | None, images: Sequence[str]) -> None:
    size = os.fstat(0).st_size
    memory, seconds = _BYTES + _TIMES * size, _SECONDS + size // _BYTES_A_SECOND
    pa.set_cpu_count(1)  # each thread has a stack
    pa.set_io_thread_count(1)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, seconds)
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        held = int(file.read().split()[5]) * resource.getpagesize()
        _limit(resource.RLIMIT_DATA, held + memory)
    try:
        table = _read(kind, pa.OSFile("/dev/fd/0"), images)
        with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as sink:
            sink.write_table(table[:limit])
    except MemoryError as error:
        raise SystemExit(f"it takes more than {memory:,} bytes of memory") from error
    except Exception as error:
        raise SystemExit(f"{error}" or type(error).__name__) from error


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard < 0 else min(most, hard), hard))


if __name__ == "__main__":
    _write(sys.argv[1], int(sys.argv[2]) if sys.argv[2] else None, sys.argv[3:])
