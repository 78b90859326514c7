"""Protocol `serialization`: vectors into a sink, batch by batch as a job would, and back.

The vectors are made up (seeded, standard normal): how long they take to write depends on their
number and size only, no format here compresses noise.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
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

Batch = tuple[list[str], Vectors]


def serialization(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Write `params.n_vectors` vectors of `params.dim`, close, and with `params.fsync` wait for the disk.

    Samples: `write`, the whole of it; `fsync`, the wait in it. Values: the bytes written, and whether
    ids and vectors read back exactly.
    """
    sink_name, fsync = cell.recipe.sink, bool(cell.params["fsync"])
    ids, vectors = made_up(
        int(cell.params["n_vectors"]), int(cell.params["dim"]), int(cell.params["seed"])
    )
    batches = _split(ids, vectors, cell.recipe.batch_size)
    # The first file pays for the library's imports and first allocations.
    _write(sink_name, _empty(work / "warm-up"), vectors.shape[1], batches[:2], fsync)
    shutil.rmtree(work / "warm-up")
    folder = _empty(work / "timed")
    os.sync()  # what others left unwritten would compete with ours for the disk
    progress(0)
    path, write_ns, fsync_ns = _write(sink_name, folder, vectors.shape[1], batches, fsync)
    progress(len(ids))
    values = {
        "n_vectors": len(ids),
        "dim": vectors.shape[1],
        "read_back": _reads_back(sink_name, path, ids, vectors),
        "size_mib": folder_bytes(folder) / _MIB,
        "peak_memory_mib": peak_memory_mib(),
    }
    return Measurement({"write": [write_ns], "fsync": [fsync_ns] if fsync else []}, values)


def made_up(n: int, dim: int, seed: int) -> tuple[list[str], Vectors]:
    """`n` ids like ABO's, and as many float32 vectors; the same for the same seed."""
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((n, dim), dtype=np.float32)
    letters = _ALPHABET[generator.integers(len(_ALPHABET), size=(n, _ID_CHARACTERS))]
    return ["".join(row) for row in letters], vectors


def folder_bytes(folder: Path) -> int:
    """Bytes of a closed sink's files, ids included; of a sparse file, those that are on the disk."""
    sinks.sync_folder(folder)  # a file system may allot blocks only when it writes them
    found = [path.stat() for path in folder.iterdir()]
    return sum(min(entry.st_size, entry.st_blocks * 512) for entry in found)


def _split(ids: Sequence[str], vectors: Vectors, size: int) -> list[Batch]:
    return [(list(ids[at : at + size]), vectors[at : at + size]) for at in range(0, len(ids), size)]


def _write(
    name: str, folder: Path, dim: int, batches: Sequence[Batch], fsync: bool
) -> tuple[Path, int, int]:
    """The sink's file, the nanoseconds from the first batch to the end, and those of the wait for the disk."""
    sink = sinks.make(name, folder, dim)
    with gc_disabled():
        began = perf_counter_ns()
        for ids, vectors in batches:
            sink.write(ids, vectors)
        sink.close()
        closed = perf_counter_ns()
        if fsync:
            sinks.sync_folder(folder)
        done = perf_counter_ns()
    return sink.path, done - began, done - closed


def _reads_back(name: str, path: Path, ids: Sequence[str], vectors: Vectors) -> bool:
    """Whether the file gives the same ids and, bit for bit, the same vectors."""
    found_ids, found = sinks.READERS[name](path)
    return (
        found_ids == list(ids)
        and found.dtype == vectors.dtype
        and found.tobytes() == vectors.tobytes()
    )


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
