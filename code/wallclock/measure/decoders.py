"""Protocols `decode` and `agreement`: decoders alone, on bytes in memory; whether they agree."""

from __future__ import annotations

from array import array
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from wallclock.clock import gc_disabled
from wallclock.corpus import readers
from wallclock.corpus.manifest import Item, Manifest, failure_rows
from wallclock.errors import ImageError, Unavailable, UserError, describe
from wallclock.measure.protocol import Measurement, Progress, open_corpus, peak_memory_mib
from wallclock.spec import Cell
from wallclock.stages import decode as stage
from wallclock.thread_counts import set_threads

_WARM_UP_BUFFERS = 8


def decode(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """JPEG bytes in memory → RGB array, one sample for each buffer.

    Only valid JPEGs of one or three components take part, which every decoder reads.
    """
    threads = set_threads(cell.recipe, uses_torch=False)
    decoder = stage.make(cell.recipe.decoder)
    manifest = open_corpus(cell)
    items = _plain_jpegs(manifest)
    reader = readers.make(manifest.root)
    reader.prefetch(items)
    samples = array("q")
    failures: list[dict[str, str]] = []
    megapixels = 0.0
    for item in items[:_WARM_UP_BUFFERS]:
        # The timed pass meets the same failure, and lists it.
        with suppress(ImageError):
            decoder(reader(item))
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
        raise UserError(f"every image failed; the first, {describe(failures[0])}")
    values = {**threads, **manifest.size_stats(), "n_buffers": len(samples)}
    values |= {"peak_memory_mib": peak_memory_mib(), "megapixels": megapixels}
    return Measurement({"decode": samples}, values, [*failure_rows(manifest.items), *failures])


def agreement(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Compare every decoder's pixels with Pillow's, image by image.

    Values: for each decoder `max_abs_diff` (0 to 255, over all images), or why it is unavailable.
    """
    manifest = open_corpus(cell)
    items = _plain_jpegs(manifest)
    reference = stage.make("pil")
    reader = readers.make(manifest.root)
    results: dict[str, Any] = {}
    failures: dict[str, dict[str, str]] = {}
    for name in stage.CPU_DECODERS:
        try:
            decoder = stage.make(name)
        except Unavailable as error:
            results[name] = {"unavailable": str(error)}
            continue
        differences = []
        for item in items:
            try:
                differences.append(_difference(decoder, reference, reader(item)))
            except ImageError as error:
                failures[item.id] = {"id": item.id, "stage": error.stage, "reason": error.reason}
        failed = {"unavailable": "every image failed in it"}
        results[name] = {"max_abs_diff": max(differences)} if differences else failed
    compared = len(items) - len(failures)
    if not compared:
        raise UserError(f"every image failed; the first, {describe(next(iter(failures.values())))}")
    values = {"agreement": results, "n_compared": compared}
    return Measurement(values=values, failures=list(failures.values()))


def _difference(decoder: stage.Decode, reference: stage.Decode, data: bytes) -> int:
    """The largest difference of any channel of any pixel; 255 where the shapes differ."""
    ours, theirs = decoder(data), reference(data)
    if ours.shape != theirs.shape:
        return 255
    return int(np.max(np.maximum(ours, theirs) - np.minimum(ours, theirs)))


def _plain_jpegs(manifest: Manifest) -> list[Item]:
    items = [item for item in manifest.valid if item.plain_jpeg]
    if not items:
        raise UserError("the corpus holds no JPEG of one or three components: nothing to compare")
    return items
