"""Protocol `decode`: one decoder alone, on bytes in memory."""

from __future__ import annotations

from array import array
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns

from wallclock.clock import gc_disabled
from wallclock.corpus import readers
from wallclock.corpus.manifest import failure_rows
from wallclock.errors import ImageError
from wallclock.measure import protocol
from wallclock.measure.protocol import Measurement, Progress
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
    manifest = protocol.open_corpus(cell)
    items = protocol.plain_jpegs(manifest)
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
        raise protocol.all_failed(failures)
    values = {**threads, **manifest.size_stats(), "n_buffers": len(samples)}
    values |= {"peak_memory_mib": protocol.peak_memory_mib(), "megapixels": megapixels}
    return Measurement({"decode": samples}, values, [*failure_rows(manifest.items), *failures])
