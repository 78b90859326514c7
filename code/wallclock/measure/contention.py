"""Protocol `contention`: what it costs to load an image, alone and with as many others loading beside it.

No model, no hand-over, no end-to-end pass: processes read, decode, resize, normalize and assemble the cell's
images over and over for a fixed time, each on its own.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

from wallclock.clock import gc_disabled
from wallclock.corpus.manifest import Manifest
from wallclock.engines.dataloader import IMAGE_STAGES, Images
from wallclock.errors import UserError
from wallclock.measure.protocol import Measurement, Progress, open_corpus, set_page_cache
from wallclock.spec import Cell, Recipe
from wallclock.thread_counts import set_threads

#: One process's pass: images loaded, nanoseconds of the clock and of its processor, each call of each stage.
_Pass = tuple[int, int, int, dict[str, list[int]]]


def contention(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Load for `params.seconds` with 1, 2, 4 … processes up to the cores, and with twice as many as cores.

    Samples: each stage's calls of one process alone. Values, by the number of processes: `rates`, images a
    second of all together, and `cpu_s`, processor seconds of an image, which a neighbour that takes a
    core away does not lengthen; `mean_bytes` of an image.
    """
    recipe, model = cell.recipe, cell.model
    manifest = open_corpus(cell)
    items = manifest.valid
    if not items:
        raise UserError("the corpus holds no sound image to load")
    cache = set_page_cache(cell, manifest, items)
    seconds, n_alone = float(cell.params["seconds"]), 0
    rates: dict[str, float] = {}
    cpu_s: dict[str, float] = {}
    samples: dict[str, list[int]] = {}
    for count in process_counts(len(os.sched_getaffinity(0))):
        passes = _side_by_side(manifest, recipe, model.input_px, count, seconds)
        loaded = sum(done for done, *_ in passes)
        rates[str(count)] = sum(done / took * 1e9 for done, took, _, _ in passes)
        cpu_s[str(count)] = sum(spent for _, _, spent, _ in passes) / 1e9 / loaded
        if count == 1:
            n_alone, samples = loaded, passes[0][3]
        progress(loaded)
    values: dict[str, Any] = {**manifest.size_stats(), "page_cache": cache, "n_embedded": n_alone}
    values |= {"rates": rates, "cpu_s": cpu_s}
    values["mean_bytes"] = sum(item.bytes for item in items) / len(items)
    return Measurement(samples, values)


def process_counts(cores: int) -> list[int]:
    """1, 2, 4 … below the cores, the cores, and twice as many."""
    return [
        *(2**power for power in range(cores.bit_length()) if 2**power < cores),
        cores,
        2 * cores,
    ]


def _side_by_side(
    manifest: Manifest, recipe: Recipe, input_px: int, count: int, seconds: float
) -> list[_Pass]:
    """Passes of `count` processes that begin together."""
    context = multiprocessing.get_context("fork")
    together = context.Barrier(count)
    started = []
    for number in range(count):
        ours, theirs = context.Pipe(duplex=False)
        arguments = (manifest, recipe, input_px, number / count, seconds, together, theirs)
        process = context.Process(target=_child, args=arguments, daemon=True)
        process.start()
        theirs.close()
        started.append((process, ours))
    found: list[_Pass] = []
    for process, ours in started:
        try:
            found.append(ours.recv())
        except EOFError as error:
            process.join()
            raise RuntimeError(f"a loading process ended with status {process.exitcode}") from error
        process.join()
    return found


def _child(
    manifest: Manifest,
    recipe: Recipe,
    input_px: int,
    offset: float,
    seconds: float,
    together: Barrier,
    answer: Connection,
) -> None:
    set_threads(recipe, uses_torch=False)
    images = Images(manifest.valid, manifest.root, recipe, input_px)
    size, position = recipe.batch_size, int(offset * len(manifest.valid))
    images.__getitems__(range(position, position + size))
    together.wait()
    samples: dict[str, list[int]] = {name: [] for name in (*IMAGE_STAGES, "assemble")}
    done = 0
    with gc_disabled():
        began, spent = perf_counter_ns(), process_time_ns()
        while perf_counter_ns() - began < seconds * 1e9:
            batch = images.__getitems__(range(position, position + size))
            position, done = position + size, done + len(batch.ids)
            _add(samples, batch.marks.tolist(), batch.assembled)
        took, spent = perf_counter_ns() - began, process_time_ns() - spent
    answer.send((done, took, spent, samples))


def _add(
    samples: dict[str, list[int]], marks: Sequence[Sequence[int]], assembled: tuple[int, int]
) -> None:
    for times in marks:
        for name, start, end in zip(IMAGE_STAGES, times, times[1:], strict=False):
            samples[name].append(end - start)
    samples["assemble"].append(assembled[1] - assembled[0])
