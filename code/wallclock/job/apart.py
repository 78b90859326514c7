"""A Parquet or Arrow file from outside, read by a process of its own, which may die of it.

A few KB may stand for any number of values: by a dictionary, by runs, by pages that are packed. The
process has limits for memory and time, and where a file ends it, that is an error like any other.
"""

import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

#: Of the process: bytes of memory, and as many times the file's; seconds, and the file's bytes of
#: another one.
_BYTES, _TIMES = 1 << 29, 64
_SECONDS, _BYTES_A_SECOND = 30, 1 << 22
_REASON = 1 << 12
PARQUET, ARROW, STREAM = "parquet", "arrow", "stream"


def read_table(file: BinaryIO, kind: str, limit: int | None) -> Any:
    """The first `limit` rows of a file as an Arrow table; `kind`: PARQUET, ARROW or STREAM.

    Raises ValueError: it cannot be read.
    """
    program = [sys.executable, "-P", __file__, kind, *([] if limit is None else [str(limit)])]
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


def _read(kind: str, file: Any) -> Any:
    if kind == PARQUET:
        return pq.read_table(file, page_checksum_verification=True, use_threads=False)
    table = (pa.ipc.open_file if kind == ARROW else pa.ipc.open_stream)(file).read_all()
    table.validate(full=True)  # Arrow trusts what it reads, which has no checksums
    return table


def _write(kind: str, limit: int | None) -> None:
    size = os.fstat(0).st_size
    for limit_of, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, _BYTES + _TIMES * size),
        (resource.RLIMIT_CPU, _SECONDS + size // _BYTES_A_SECOND),
    ):
        hard = resource.getrlimit(limit_of)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit_of, (most, hard))
    try:
        table = _read(kind, pa.OSFile("/dev/fd/0"))
        with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as sink:
            sink.write_table(table[:limit])
    except Exception as error:
        raise SystemExit(f"{error}" or type(error).__name__) from error


if __name__ == "__main__":
    _write(sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else None)
