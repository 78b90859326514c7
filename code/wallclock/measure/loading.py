"""Protocols `loading` and `complete`: a loader alone, files to batches in host memory.

`loading` is the steady state: the clock starts when the batches that were made ahead are gone, and stops
at the first batch after so many seconds. `complete` loads a fixed number of images and counts the
start, too. No system does anything with a batch but hand it over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from wallclock.clock import gc_disabled
from wallclock.corpus.manifest import Item, Manifest
from wallclock.engines import loaders
from wallclock.engines.third_party import Batch
from wallclock.errors import UserError
from wallclock.measure import closeness
from wallclock.measure.protocol import (
    Measurement,
    Progress,
    open_corpus,
    peak_memory_mib,
    set_page_cache,
)
from wallclock.spec import Cell
from wallclock.stages.pixels import Pixels
from wallclock.thread_counts import set_threads

#: Batches to measure, at least, and bursts: some workers are ahead of others by a batch or two when the clock starts.
_MIN_BATCHES, _MIN_BURSTS = 8, 8


def loading(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """One loader in steady state for `params.seconds`, the images over and over.

    Samples: `batch`, from asking for one to having it, and `wall`. Values: `n_loaded`; in the first
    repeat also how far the first `params.fidelity.images` of the loader's own pictures are from Pillow's.
    """
    recipe, model = cell.recipe, cell.model
    manifest = open_corpus(cell)
    items = subset(manifest, str(cell.params.get("subset", "all")))
    threads = set_threads(recipe, uses_torch=False)
    cache = set_page_cache(cell, manifest, items)
    judged = cell.params.get("fidelity") if cell.repeat == 0 else None
    began = perf_counter_ns()
    variant = str(cell.params.get("variant", ""))
    with loaders.opened(recipe, items, manifest.root, model.input_px, variant) as system:
        pictures = _warm_up(
            system.batches, system.ahead, min(judged["images"], len(items)) if judged else 0
        )
        startup_s = (perf_counter_ns() - began) / 1e9
        seconds = float(cell.params["seconds"])
        with gc_disabled():
            at_least = max(_MIN_BATCHES, system.ahead, _MIN_BURSTS * system.burst)
            samples, n = _steady(system.batches, seconds, at_least, system.burst, progress)
        values: dict[str, Any] = {"library": system.version, "settings": system.settings}
    values |= {
        **threads,
        **manifest.size_stats(),
        **_sizes(items),
        "page_cache": cache,
        "startup_s": startup_s,
    }
    values |= {
        "n_loaded": n,
        "n_unique": len(items),
        "cores": loaders.cores(),
        "peak_memory_mib": peak_memory_mib(),
    }
    if judged:
        values["fidelity"] = closeness.compare(
            pictures, items, manifest.root, model, recipe.device, int(judged["vectors"])
        )
    return Measurement(samples, values)


def load_n(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Load `params.n` images, the corpus's over and over; `wall` is from before the loader starts to its end."""
    recipe, model = cell.recipe, cell.model
    manifest = open_corpus(cell)
    items = subset(manifest, "all")
    threads = set_threads(recipe, uses_torch=False)
    cache = set_page_cache(cell, manifest, items)
    wanted, n = int(cell.params["n"]), 0
    with gc_disabled():
        start = perf_counter_ns()
        with loaders.opened(recipe, items, manifest.root, model.input_px, n=wanted) as system:
            for positions, _ in system.batches:
                n += len(positions)
                progress(n)
            settings = system.settings
        wall = perf_counter_ns() - start
    if n != wanted:
        raise UserError(f"{n} images came out of {wanted}")
    values = {
        **threads,
        **manifest.size_stats(),
        **_sizes(items),
        "page_cache": cache,
        "settings": settings,
    }
    values |= {
        "n_loaded": n,
        "n_unique": len(items),
        "cores": loaders.cores(),
        "peak_memory_mib": peak_memory_mib(),
    }
    return Measurement({"wall": [wall]}, values)


def subset(manifest: Manifest, name: str) -> list[Item]:
    """The sound JPEGs that every system reads: all, or those of one process (baseline, progressive).

    Raises:
        UserError: there are none.
    """
    plain = [item for item in manifest.valid if item.plain_jpeg]
    found = plain if name == "all" else [item for item in plain if item.process == name]
    if not found:
        raise UserError(
            f"the corpus holds no {'' if name == 'all' else f'{name} '}JPEG of one or three components"
        )
    return found


def _warm_up(batches: Iterator[Batch], ahead: int, n_pictures: int) -> dict[int, Pixels]:
    """Let what was made ahead go by; return the pictures at the first positions, as the loader made them."""
    pictures: dict[int, Pixels] = {}
    count = 0
    while count < ahead or len(pictures) < n_pictures:
        positions, images = next(batches)
        wanted = [row for row, position in enumerate(positions) if position < n_pictures]
        if wanted:
            pixels = loaders.pixels_of(images[wanted])
            pictures |= {
                positions[row]: np.array(picture)
                for row, picture in zip(wanted, pixels, strict=True)
            }
        count += 1
    return pictures


def _steady(
    batches: Iterator[Batch], seconds: float, at_least: int, burst: int, progress: Progress
) -> tuple[dict[str, list[int]], int]:
    taken: list[int] = []
    n = 0
    progress(0)
    start = asked = perf_counter_ns()
    deadline = start + round(seconds * 1e9)
    for positions, _ in batches:
        got = perf_counter_ns()
        taken.append(got - asked)
        n += len(positions)
        # Workers that began together finish together: whole bursts start and end in the same phase.
        if len(taken) >= at_least and got >= deadline and len(taken) % burst == 0:
            break
        progress(n)
        asked = perf_counter_ns()
    return {"batch": taken, "wall": [perf_counter_ns() - start]}, n


def _sizes(items: Sequence[Item]) -> dict[str, float]:
    """The medians of what was loaded, which a subset makes differ from the corpus's."""
    return {
        "median_kb": float(np.median([item.bytes / 1e3 for item in items])),
        "median_megapixels": float(np.median([item.width * item.height / 1e6 for item in items])),
        "progressive_share": sum(item.process == "progressive" for item in items) / len(items),
    }
