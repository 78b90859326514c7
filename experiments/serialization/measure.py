"""Protocol `serialization`: vectors into a sink, batch by batch as a job would, and back."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from harness import sinks
from harness.processes import gc_disabled
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.sinks import Vectors
from harness.spec import Cell

#: An ABO image id: eleven characters of these.
_ALPHABET = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"))
_ID_CHARACTERS = 11


def serialization(
    cell: Cell, work: Path, progress: Progress, clock: Callable[[], int] = perf_counter_ns
) -> Measurement:
    """Write `params.n_vectors` vectors of `params.dim`, close; with `params.fsync` sync to disk.

    Samples: `write`, the complete time; `fsync`, the part of it that waits for the disk. Values:
    the bytes written, and whether ids and vectors read back exactly. The vectors are synthetic: the
    time to write them depends on number and size only, because no format compresses noise.
    """
    name, size = cell.recipe.sink, cell.recipe.batch_size
    fsync = bool(cell.params["fsync"])
    n, dim, seed = (int(cell.params[key]) for key in ("n_vectors", "dim", "seed"))
    ids, vectors = synthetic_vectors(n, dim, seed)
    batches = [(ids[at : at + size], vectors[at : at + size]) for at in range(0, n, size)]

    def write(folder: Path, batches: Sequence[tuple[list[str], Vectors]]) -> tuple[Path, int, int]:
        """The file, ns from the first batch to the end, and those of the sync to disk."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        sink = sinks.make(name, folder, dim)
        with gc_disabled():
            began = clock()
            for batch in batches:
                sink.write(*batch)
            sink.close()
            closed = clock()
            if fsync:
                sinks.sync_folder(folder)
            done = clock()
        return sink.path, done - began, done - closed

    # The first file pays for the library's imports and first allocations.
    write(work / "warm-up", batches[:2])
    shutil.rmtree(work / "warm-up")
    os.sync()  # dirty pages of other processes would compete for the disk
    progress(0)
    path, write_ns, fsync_ns = write(work / "timed", batches)
    progress(n)
    read_ids, read = sinks.read(path)
    same = read.dtype == vectors.dtype and read.tobytes() == vectors.tobytes()
    values = {
        "n_vectors": n,
        "dim": dim,
        "read_back": read_ids == ids and same,
        "size_mib": folder_bytes(path.parent) / 2**20,
        "peak_memory_mib": protocol.peak_memory_mib(),
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
