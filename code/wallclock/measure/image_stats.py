"""Protocol `image_stats`: what the images of a cell are like; nothing is timed."""

from __future__ import annotations

from pathlib import Path

from wallclock.corpus import image_stats as corpus_stats
from wallclock.corpus import manifest as manifests
from wallclock.measure.protocol import Measurement, Progress, open_corpus
from wallclock.spec import Cell


def image_stats(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Median and p90 of each measure, and how many images there are of each format."""
    manifest = open_corpus(cell)
    stats = corpus_stats.measure(manifest)
    values = {**manifest.size_stats(), "image_stats": stats.summary(), "formats": stats.formats}
    return Measurement(values=values, failures=manifests.failure_rows(manifest.items))
