"""What every protocol takes and returns, and the steps that protocols share."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from wallclock.corpus import manifest as manifests
from wallclock.corpus import readers
from wallclock.corpus.manifest import Manifest
from wallclock.errors import UserError
from wallclock.spec import Cell

#: Called with the number of images (or calls) done so far.
Progress = Callable[[int], None]


def no_progress(done: int) -> None:
    """A `Progress` that reports nothing."""


@dataclass
class Measurement:
    """Durations in ns, other values by name, failed images, files to keep with the record.

    `spans`: (lane, stage, batch, start in ns, duration in ns) of a stretch of the pass.
    """

    samples: Mapping[str, Sequence[int]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    failures: Sequence[Mapping[str, str]] = ()
    keep: Sequence[Path] = ()
    spans: Sequence[tuple[str, str, int, int, int]] = ()


MeasureFunction = Callable[[Cell, Path, Progress], Measurement]


def open_corpus(cell: Cell, subset: str = "") -> Manifest:
    """Load the manifest that a cell names and verify that it still lists the same images.

    Args:
        subset: of its valid images: empty for all; `jpeg` for those that every decoder reads;
            `baseline` or `progressive` for such JPEGs of one process.

    Raises:
        UserError: the corpus changed, the cell has none, or the subset is empty.
    """
    if cell.corpus is None:
        raise UserError(f"the cell {cell.label} of {cell.experiment} needs a corpus")
    manifest = manifests.load(Path(cell.corpus.manifest)).head(cell.corpus.n)
    if manifest.digest() != cell.corpus.digest:
        raise UserError("the corpus changed during the run; run the same command again")
    if not subset:
        return manifest
    items = [item for item in manifest.valid if item.plain_jpeg]
    if subset != "jpeg":
        items = [item for item in items if item.process == subset]
    if not items:
        name = "" if subset == "jpeg" else f"{subset} "
        raise UserError(f"the corpus holds no {name}JPEG of one or three components")
    return replace(manifest, items=tuple(items))


def set_page_cache(cell: Cell, manifest: Manifest) -> dict[str, Any]:
    """Warm or evict the valid files as the cell asks.

    Returns:
        For the record: `page_cache`, the state, `none` without files; and the images' sizes.
    """
    state = str(cell.params.get("page_cache", "warm"))
    files = readers.stored(manifest.root, manifest.valid)
    if state == "cold":
        readers.evict(manifest.root, files)
    else:
        readers.warm(files)
    return {"page_cache": state if files else "none", **manifest.size_stats()}


def peak_memory_mib() -> float:
    """The largest resident set of this process so far, in MiB (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def noise_batch(n: int, input_px: int, *, uint8: bool) -> Any:
    """A batch as a loader delivers it: uint8 (n, h, w, 3), or normalized float32 (n, 3, h, w)."""
    rng = np.random.default_rng(0)
    if uint8:
        return rng.integers(0, 256, (n, input_px, input_px, 3), dtype=np.uint8)
    return rng.standard_normal((n, 3, input_px, input_px), dtype=np.float32)
