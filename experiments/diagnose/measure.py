"""Protocols `copies` and `image_stats`: what thumbnails cost and leave; how the images are."""

from array import array
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import Any

import numpy as np
from PIL import Image

from harness.corpora import image_stats as corpus_stats
from harness.corpora import readers
from harness.corpora.copies import replaced, thumbnail
from harness.corpora.manifest import failure_rows
from harness.measures import median, psnr_db
from harness.processes import gc_disabled, set_threads
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from wallclock.errors import ImageError
from wallclock.stages.decode.pil import make_image


def copies(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Make thumbnails in memory, by one thread, for `params.seconds` at most.

    Samples: `encode`, CPU nanoseconds of each. Values: `share` of the images that are replaced;
    `mean_bytes` and `mean_bytes_before` of those made; `psnr_db`, median over them of both pictures
    at the network's size (Pillow, bilinear). Failures: images that stay as they are.
    """
    manifest = protocol.open_corpus(cell)
    set_threads(cell.recipe, uses_torch=False)
    read, decode = readers.make(manifest), make_image()
    size = (cell.model.input_px, cell.model.input_px)

    def at_network_size(data: bytes) -> Any:
        return np.asarray(decode(data).resize(size, Image.Resampling.BILINEAR))

    items = replaced(manifest.valid)
    spent = array("q")
    sizes: list[tuple[int, int]] = []
    decibels: list[float] = []
    failed = []
    deadline = perf_counter_ns() + int(float(cell.params["seconds"]) * 1e9)
    with gc_disabled():
        for item in items:
            try:
                data = read(item)
                began = thread_time_ns()
                copy = thumbnail(data)
            except ImageError as error:
                failed.append(item.with_failure(error))
                continue
            spent.append(thread_time_ns() - began)
            sizes.append((len(copy), len(data)))
            decibels.append(psnr_db(at_network_size(copy), at_network_size(data)))
            progress(len(spent))
            if perf_counter_ns() > deadline:
                break
    if not spent:
        raise protocol.all_failed(failure_rows(failed))
    copied, before = (float(numbers.mean()) for numbers in np.array(sizes).T)
    values = {
        "share": len(items) / len(manifest.valid),
        "mean_bytes": copied,
        "mean_bytes_before": before,
        "psnr_db": median(decibels),
    }
    return Measurement({"encode": spent}, values, failure_rows(failed))


def image_stats(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Median and p90 of each measure of an image, and how many there are of each format."""
    manifest = protocol.open_corpus(cell)
    stats = corpus_stats.measure(manifest)
    values: dict[str, Any] = manifest.size_stats()
    values |= {"image_stats": stats.summary(), "formats": stats.formats}
    failures = [*failure_rows(manifest.items), *map(dict, stats.failures)]
    return Measurement(values=values, failures=failures)
