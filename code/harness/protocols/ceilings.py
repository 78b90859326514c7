"""Protocols `ceiling`, `decode` and `serialization`: one part, and nothing else that limits it.

`decode_files`, `decode_memory`: read, decode and resize in one process a core, pinned to it,
without a loader; bytes from files or from memory. `engine`: the threads engine, which reads the
files, with a decode and a resize that return at once. `forward`: the model alone on a batch on the
device. `h2d`: the copy to the device alone. `synthetic`: everything from h2d to the sink, on a
batch that costs nothing to load. `decode`, a protocol of its own: one decoder, image by image.
`serialization`: vectors into a sink, batch by batch as a job would, and back.
"""

import itertools
import os
import shutil
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import perf_counter_ns
from typing import Any, TypeAlias

import numpy as np

from harness import sinks
from harness.corpora import readers
from harness.corpora.manifest import Item, Manifest, failure_rows
from harness.engines import pipeline
from harness.engines.inference import open_inference
from harness.engines.loaders import open_threads
from harness.engines.positions import CyclicPositions
from harness.engines.writer import open_writer
from harness.processes import gc_disabled
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.sinks import Vectors
from harness.spec import Cell
from wallclock.errors import ImageError, Unavailable, check_name
from wallclock.loader.batch import Batch
from wallclock.loader.prepare import in_place_stages
from wallclock.machine import set_threads, usable_cores
from wallclock.stages import decode as decode_stage
from wallclock.stages import transfer

#: One iteration of a timed loop: processes some images and returns how many.
Step: TypeAlias = Callable[[], int]

_KINDS = ("decode_files", "decode_memory", "engine", "forward", "h2d", "synthetic")
_WARM_UP_STEPS = 3
#: Images enough for minutes of an engine whose stages cost nothing.
_ENDLESS = 10**7

#: An ABO image id: eleven characters of these.
_ALPHABET = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"))
_ID_CHARACTERS = 11


def ceiling(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Run the part that `params.kind` names for `params.seconds`.

    Samples: `wall`. Values: `n_loaded`; of `decode`, the rate of each core too.
    """
    kind = check_name(str(cell.params["kind"]), _KINDS, "ceiling")
    seconds = float(cell.params["seconds"])
    manifest = protocol.open_corpus(cell, "jpeg")
    uses_torch = kind in ("forward", "synthetic")
    values = protocol.set_conditions(cell, manifest, uses_torch=uses_torch)
    progress(0)
    if kind.startswith("decode"):
        items = manifest.items
        tasks = []
        cores = sorted(os.sched_getaffinity(0))[: usable_cores()]
        for number, core in enumerate(cores):
            # Every core starts elsewhere in the list, so that all cores see the same mix.
            start = len(items) * number // len(cores)
            share = [*items[start:], *items[:start]]
            tasks.append(partial(_pinned, core, cell, manifest, share, seconds))
        passes = protocol.in_processes(tasks)
        rates = [n / ns * 1e9 for n, ns in passes]
        n = sum(n for n, _ in passes)
        wall = max(ns for _, ns in passes)
        values |= {"img_per_s": sum(rates), "core_img_per_s": rates}
    else:
        part = _engine(cell, manifest) if kind == "engine" else _device_side(kind, cell, work)
        with part as step:
            n, wall = _timed(step, seconds)
        values["img_per_s"] = n / wall * 1e9
    values |= {"n_loaded": n, "peak_memory_mib": protocol.peak_memory_mib()}
    return Measurement({"wall": [wall]}, values)


def _timed(step: Step, seconds: float) -> tuple[int, int]:
    """Images and nanoseconds of a loop over `step`, after a few steps of warm-up."""
    with gc_disabled():
        for _ in range(_WARM_UP_STEPS):
            step()
        return protocol.repeat_for(seconds, step)


def _pinned(
    core: int, cell: Cell, manifest: Manifest, share: Sequence[Item], seconds: float
) -> Callable[[], tuple[int, int]]:
    """A loop over a share of the images on one core, of which all steps but the first are timed."""
    os.sched_setaffinity(0, {core})
    set_threads(cell.recipe, uses_torch=False)
    step = _decoding(cell, manifest, share)
    step()
    return partial(_timed, step, seconds)


def _decoding(cell: Cell, manifest: Manifest, items: Sequence[Item]) -> Step:
    """One image a step, into a row of the batch that the recipe's loader would deliver."""
    recipe, model = cell.recipe, cell.model
    reader = readers.make(manifest)
    in_memory = {}
    if cell.params["kind"] == "decode_memory":
        in_memory = {item.id: reader(item) for item in items}
    batch = _noise(cell)
    if recipe.engine == "threads":
        in_place = in_place_stages(recipe, model, reader)
        destinations = [in_place.as_destination(row) for row in batch]
    else:
        load = pipeline.load_stages(recipe, model, manifest)
    numbers = itertools.count()

    def step() -> int:
        number = next(numbers)
        item, row = items[number % len(items)], number % recipe.batch_size
        data = in_memory[item.id] if in_memory else reader(item)
        if recipe.engine == "threads":
            in_place.fill(item, data, destinations[row])
        else:
            batch[row] = load.normalize(load.resize(item, load.decode(item, data)))
        return 1

    return step


def _noise(cell: Cell) -> Any:
    uint8 = cell.recipe.normalize_on == "device"
    return protocol.noise_batch(cell.recipe.batch_size, cell.model.input_px, uint8=uint8)


@contextmanager
def _engine(cell: Cell, manifest: Manifest) -> Iterator[Step]:
    """A step of one batch, whose images were read but neither decoded nor resized."""
    recipe, model = cell.recipe, cell.model
    positions = CyclicPositions(len(manifest.items), recipe.batch_size, _ENDLESS)
    with open_threads(manifest, recipe, model, positions, pipeline.free_stages) as loader:
        yield lambda: len(next(loader).ids)


@contextmanager
def _device_side(kind: str, cell: Cell, work: Path) -> Iterator[Step]:
    """A step of one batch of noise, which the recipe's loader would deliver."""
    import torch

    recipe, size = cell.recipe, cell.recipe.batch_size
    if kind == "h2d" and recipe.device != "cuda":
        raise Unavailable("the device is the host: nothing is copied")
    images = torch.from_numpy(_noise(cell))
    if recipe.device == "cuda" and recipe.pin_memory:
        images = images.pin_memory()
    host = images.numpy() if recipe.engine == "threads" else images
    if kind == "h2d":
        move = transfer.make(recipe.device)
        yield _synchronized(lambda: move.h2d(host), move.synchronize, size)
        return
    stages = pipeline.device_stages(recipe, cell.model, work)
    if kind == "forward":
        on_device = stages.h2d(host)
        yield _synchronized(lambda: stages.forward(on_device), stages.synchronize, size)
        return
    batch = Batch([f"synthetic-{i}" for i in range(size)], range(size), host)
    in_thread = recipe.engine == "threads"
    with open_writer(stages.serialize, stages.finish, in_thread=in_thread) as writer:
        inference = open_inference(stages, recipe, writer)
        yield _synchronized(lambda: inference.submit(batch, 0), None, size)
        inference.finish()


def _synchronized(
    run: Callable[[], object], synchronize: Callable[[], object] | None, size: int
) -> Step:
    def step() -> int:
        run()
        if synchronize is not None:
            synchronize()
        return size

    return step


def decode(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """JPEG bytes in memory → RGB array, one sample for each buffer.

    Only valid JPEGs of one or three components take part, which every decoder reads.
    """
    threads = set_threads(cell.recipe, uses_torch=False)
    decoder = decode_stage.make(cell.recipe.decoder)
    manifest = protocol.open_corpus(cell)
    items = protocol.plain_jpegs(manifest)
    reader = readers.make(manifest)
    samples = array("q")
    failures: list[dict[str, str]] = []
    megapixels = 0.0
    for item in items:
        # The timed pass meets the same failure, and lists it.
        with suppress(ImageError):
            decoder(reader(item))
    faults_before = getrusage(RUSAGE_SELF).ru_minflt
    with gc_disabled():
        for done, item in enumerate(items, 1):
            # Bytes are read just before, outside the timer: thousands of originals need not fit
            # into memory, and the decoder finds them in cache, as it does after `read`.
            try:
                data = reader(item)
                began = perf_counter_ns()
                pixels = decoder(data)
                samples.append(perf_counter_ns() - began)
            except ImageError as error:
                failures.append({"id": item.id, "stage": error.stage, "reason": error.reason})
                continue
            # `pixels` lives until the next image replaces it, as in a pipeline: freed here, glibc
            # would return its pages and every decode would fault them in again.
            megapixels += pixels.shape[0] * pixels.shape[1] / 1e6
            progress(done)
    if not samples:
        raise protocol.all_failed(failures)
    faults = getrusage(RUSAGE_SELF).ru_minflt - faults_before
    values = threads | manifest.size_stats()
    values |= {
        "n_buffers": len(samples),
        "peak_memory_mib": protocol.peak_memory_mib(),
        "megapixels": megapixels,
        "page_faults_per_image": faults / len(samples),
    }
    return Measurement({"decode": samples}, values, [*failure_rows(manifest.items), *failures])


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
