"""Protocol `serialization`: vectors into a sink, batch by batch as a job would, and back.

The vectors are synthetic (seeded, standard normal): the time to write them depends on their number
and size only, because none of the formats compresses noise.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from wallclock.clock import gc_disabled
from wallclock.measure.protocol import Measurement, Progress, peak_memory_mib
from wallclock.spec import Cell
from wallclock.stages import sinks
from wallclock.stages.sinks import Vectors

_MIB = 2**20

#: An ABO image id: eleven characters of these.
_ALPHABET = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"))
_ID_CHARACTERS = 11


def serialization(
    cell: Cell, work: Path, progress: Progress, clock: Callable[[], int] = perf_counter_ns
) -> Measurement:
    """Write `params.n_vectors` vectors of `params.dim`, close; with `params.fsync` sync to disk.

    Samples: `write`, the complete time; `fsync`, the part of it that waits for the disk. Values:
    the bytes written, and whether ids and vectors read back exactly.
    """
    name, params = cell.recipe.sink, cell.params
    ids, vectors = synthetic_vectors(
        int(params["n_vectors"]), int(params["dim"]), int(params["seed"])
    )
    size, dim, fsync = cell.recipe.batch_size, vectors.shape[1], bool(params["fsync"])
    batches = [(ids[at : at + size], vectors[at : at + size]) for at in range(0, len(ids), size)]
    # The first file pays for the library's imports and first allocations.
    warm_up, folder = _empty(work / "warm-up"), _empty(work / "timed")
    _write(sinks.make(name, warm_up, dim), batches[:2], fsync, clock)
    shutil.rmtree(warm_up)
    os.sync()  # dirty pages of other processes would compete for the disk
    progress(0)
    sink = sinks.make(name, folder, dim)
    write_ns, fsync_ns = _write(sink, batches, fsync, clock)
    progress(len(ids))
    values = {
        "n_vectors": len(ids),
        "dim": dim,
        "read_back": _reads_back(name, sink.path, ids, vectors),
        "size_mib": folder_bytes(folder) / _MIB,
        "peak_memory_mib": peak_memory_mib(),
    }
    return Measurement({"write": [write_ns], "fsync": [fsync_ns] if fsync else []}, values)


def synthetic_vectors(n: int, dim: int, seed: int) -> tuple[list[str], Vectors]:
    """`n` ids like ABO's and (n, dim) float32 vectors; the same for the same seed."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, dim), dtype=np.float32)
    letters = _ALPHABET[rng.integers(len(_ALPHABET), size=(n, _ID_CHARACTERS))]
    return ["".join(row) for row in letters], vectors


def folder_bytes(folder: Path) -> int:
    """Bytes of a closed sink's files, ids included; of a sparse file, the allocated blocks."""
    sinks.sync_folder(folder)  # a file system may allocate blocks only when it writes them
    files = [path.stat() for path in folder.iterdir()]
    return sum(min(file.st_size, file.st_blocks * 512) for file in files)


def _write(
    sink: sinks.Sink,
    batches: Sequence[tuple[list[str], Vectors]],
    fsync: bool,
    clock: Callable[[], int],
) -> tuple[int, int]:
    """Nanoseconds from the first batch to the end, and those of the sync to disk."""
    with gc_disabled():
        began = clock()
        for ids, vectors in batches:
            sink.write(ids, vectors)
        sink.close()
        closed = clock()
        if fsync:
            sinks.sync_folder(sink.path.parent)
        done = clock()
    return done - began, done - closed


def _reads_back(name: str, path: Path, ids: Sequence[str], vectors: Vectors) -> bool:
    """Whether the file holds the same ids and, bit for bit, the same vectors."""
    read_ids, read = sinks.READERS[name](path)
    same = read.dtype == vectors.dtype and read.tobytes() == vectors.tobytes()
    return read_ids == list(ids) and same


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
