"""Protocols `decode` and `agreement`: decoders alone, on bytes in memory; and whether they agree."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from wallclock.clock import collector_paused
from wallclock.corpus.manifest import Item, Manifest
from wallclock.engines.libraries import set_threads
from wallclock.errors import ImageError, Unavailable, UserError
from wallclock.measure.protocol import Measurement, Progress, open_corpus, peak_memory_mib
from wallclock.measure.serial import parts
from wallclock.spec import Cell
from wallclock.stages import decode as stage
from wallclock.stages.read import read_file

_WARM_UP_BUFFERS = 8


def decode(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """JPEG bytes in memory → RGB array, one sample a buffer.

    Only what every decoder reads takes part: sound JPEGs of one or three components.
    """
    recipe, _ = parts(cell)
    threads = set_threads(recipe, uses_torch=False)
    decoder = stage.make(recipe.decoder)
    manifest = open_corpus(cell)
    items = _common(manifest)
    samples = array("q")
    failures: list[dict[str, str]] = []
    for item in items[:_WARM_UP_BUFFERS]:
        decoder(read_file(manifest.root, item.path, item.bytes))
    with collector_paused():
        for done, item in enumerate(items, 1):
            # Bytes are read just before, outside the clock: thousands of originals need not fit
            # into memory, and the decoder meets them warm, as it does behind `read`.
            data = read_file(manifest.root, item.path, item.bytes)
            try:
                began = perf_counter_ns()
                pixels = decoder(data)
                samples.append(perf_counter_ns() - began)
            except ImageError as error:
                failures.append({"id": item.id, "stage": error.stage, "reason": error.reason})
                continue
            del pixels
            progress(done)
    values = {**threads, **manifest.shape(), "n_buffers": len(samples), "peak_memory_mib": peak_memory_mib()}
    values["megapixels"] = sum(item.width * item.height for item in items) / 1e6
    return Measurement({"decode": samples}, values, failures)


def agreement(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Compare every decoder's pixels with Pillow's, image by image.

    Values: for each decoder `max_abs_diff` (0 to 255, over all images), or why it is not here.
    """
    manifest = open_corpus(cell)
    items = _common(manifest)
    reference = stage.make("pil")
    found: dict[str, Any] = {}
    for name in stage.DECODERS:
        try:
            found[name] = {"max_abs_diff": _difference(stage.make(name), reference, manifest, items)}
        except Unavailable as error:
            found[name] = {"unavailable": str(error)}
    return Measurement(values={"agreement": found, "n_compared": len(items)})


def _difference(decoder: stage.Decode, reference: stage.Decode, manifest: Manifest, items: Sequence[Item]) -> int:
    worst = 0
    for item in items:
        data = read_file(manifest.root, item.path, item.bytes)
        ours, theirs = decoder(data), reference(data)
        if ours.shape != theirs.shape:
            return 255
        worst = max(worst, int(np.max(np.maximum(ours, theirs) - np.minimum(ours, theirs))))
    return worst


def _common(manifest: Manifest) -> list[Item]:
    items = [item for item in manifest.sound if item.plain_jpeg]
    if not items:
        raise UserError("the corpus holds no JPEG of one or three components: the decoders have nothing to compare")
    return items
