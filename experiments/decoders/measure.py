"""Protocols `decode` and `agreement`: one decoder, image by image; all against Pillow's pixels."""

from array import array
from contextlib import suppress
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import perf_counter_ns
from typing import Any

import numpy as np

from harness import decoders
from harness.corpora import readers
from harness.corpora.manifest import Item, failure_rows
from harness.processes import gc_disabled, set_threads
from harness.protocols import protocol
from harness.protocols.fidelity import Failures, of_each
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from wallclock.errors import ImageError, Unavailable
from wallclock.fetch.sources import Reader
from wallclock.stages import decode as decode_stage

#: With whose pixels those of the others are compared.
_REFERENCE_DECODER = "pil"


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


def agreement(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Compare every decoder's pixels with Pillow's, image by image.

    Values: for each decoder `max_abs_diff` (0 to 255, over all images), or why it is unavailable:
    its library is missing, or every image failed in it. Raises UserError: in Pillow, too.
    """
    manifest = protocol.open_corpus(cell)
    items = protocol.plain_jpegs(manifest)
    reader = readers.make(manifest)
    reference = decode_stage.make(_REFERENCE_DECODER)
    results: dict[str, Any] = {}
    failures: Failures = {}
    for name in decoders.NAMES:
        try:
            decoder = decode_stage.make(name)
        except Unavailable as error:
            results[name] = {"unavailable": str(error)}
            continue
        own_failures: Failures = {}
        difference = partial(_difference, reader, reference, decoder)
        differences = of_each(items, own_failures, difference)
        if differences:
            results[name] = {"max_abs_diff": max(differences.values())}
            failures |= own_failures
        elif name == _REFERENCE_DECODER:
            raise protocol.all_failed([*own_failures.values()])
        else:
            # The decoder is at fault, not the images: what the others' pixels are like stands.
            reason = str(protocol.all_failed([*own_failures.values()]))
            results[name] = {"unavailable": reason}
    values = {"agreement": results, "n_compared": len(items) - len(failures)}
    return Measurement(values=values, failures=list(failures.values()))


def _difference(
    reader: Reader, reference: decode_stage.Decode, decoder: decode_stage.Decode, item: Item
) -> int:
    """The largest difference of any channel of any pixel; 255 where the shapes differ."""
    data = reader(item)
    ours, theirs = decoder(data), reference(data)
    if ours.shape != theirs.shape:
        return 255
    return int(np.max(np.maximum(ours, theirs) - np.minimum(ours, theirs)))
