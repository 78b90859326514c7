"""Protocols `loading` and `load_n`: a loader alone, files to batches in host memory.

`loading` is the steady state: the clock starts when the batches that were loaded ahead are drained,
and stops at the first batch after so many seconds. `load_n` loads a fixed number of images and
includes the start. No batch is used for anything.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from wallclock.clock import gc_disabled
from wallclock.engines.loaders import CyclicPositions, Loader, cores, open_loader, to_pixels
from wallclock.errors import UserError
from wallclock.measure import fidelity, protocol
from wallclock.measure.loop import run_pass, steady
from wallclock.measure.protocol import Measurement, Progress
from wallclock.spec import Cell, ModelSpec
from wallclock.stages.pixels import Pixels

#: Batches to measure, at least, and bursts: some workers are ahead of others when the clock starts.
_MIN_BATCHES, _MIN_BURSTS = 8, 8
#: Images of a stream that is effectively endless: minutes at any rate measured so far.
_MAX_STREAM_IMAGES = 1_000_000


def loading(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One loader in steady state for `params.seconds`, the images again and again.

    Samples: `batch`, from requesting one to having it, and `wall`. Values: `n_loaded`; in the first
    repeat also how far the first `params.fidelity.images` of the loader's own images are from
    Pillow's.
    """
    subset = str(cell.params.get("subset", "all"))
    manifest = protocol.open_corpus(cell, "jpeg" if subset == "all" else subset)
    values = protocol.set_conditions(cell, manifest, uses_torch=False)
    check = cell.params.get("fidelity") if cell.repeat == 0 else None
    n_checked = min(check["images"], len(manifest.items)) if check else 0
    recipe, model, variant = cell.recipe, cell.model, str(cell.params.get("variant", ""))
    positions = CyclicPositions(len(manifest.items), recipe.batch_size, _MAX_STREAM_IMAGES)
    began = perf_counter_ns()
    with open_loader(manifest, recipe, model, positions, variant) as loader:
        pixels = _warm_up(loader, model, n_checked)
        values["startup_s"] = (perf_counter_ns() - began) / 1e9
        at_least = max(_MIN_BATCHES, loader.prefetched, _MIN_BURSTS * loader.burst)
        until = steady(float(cell.params["seconds"]), at_least, loader.burst)
        progress(0)
        with gc_disabled():
            result = run_pass(loader, until, progress)
        values |= _described(loader, result.images)
    if check:
        values["fidelity"] = fidelity.compare_loader_output(
            pixels, manifest, model, recipe.device, int(check["vectors"])
        )
    return Measurement({"batch": result.samples["wait"], "wall": [result.wall_ns]}, values)


def load_n(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Load `params.n` images, the corpus's again and again; `wall` includes the loader's start."""
    manifest = protocol.open_corpus(cell, "jpeg")
    values = protocol.set_conditions(cell, manifest, uses_torch=False)
    n = int(cell.params["n"])
    positions = CyclicPositions(len(manifest.items), cell.recipe.batch_size, n)
    with gc_disabled():
        start = perf_counter_ns()
        with open_loader(manifest, cell.recipe, cell.model, positions) as loader:
            result = run_pass(loader, None, progress)
        wall = perf_counter_ns() - start
    if result.images != n:
        raise UserError(f"the loader delivered {result.images} images of {n}")
    return Measurement({"wall": [wall]}, values | _described(loader, n))


def _described(loader: Loader, n: int) -> dict[str, Any]:
    about = {"library": loader.version, "settings": loader.settings, "n_loaded": n}
    return {**about, "cores": cores(), "peak_memory_mib": protocol.peak_memory_mib()}


def _warm_up(loader: Loader, model: ModelSpec, n_checked: int) -> dict[int, Pixels]:
    """Drain what was loaded ahead; return the loader's own first images by position."""
    images: dict[int, Pixels] = {}
    drained = 0
    while drained < loader.prefetched or len(images) < n_checked:
        batch = next(loader)
        rows = [row for row, position in enumerate(batch.positions) if position < n_checked]
        if rows:
            pixels = to_pixels(batch.images[rows], model.statistics)
            for row, image in zip(rows, pixels, strict=True):
                images[batch.positions[row]] = np.array(image)
        drained += 1
    return images
