"""What every protocol takes and gives, and the steps that they share."""

from __future__ import annotations

import resource
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wallclock.clock import STAGES
from wallclock.corpus import manifest as manifests
from wallclock.corpus import page_cache, readers
from wallclock.corpus.manifest import Item, Manifest
from wallclock.errors import UserError
from wallclock.spec import Cell

#: Called with the number of images (or calls) done so far.
Progress = Callable[[int], None]


@dataclass
class Measurement:
    """What a protocol measured: durations in ns, other values by name, failed images, files to keep.

    `spans`: (lane, stage, batch, start in ns, duration in ns) of a stretch of the pass.
    """

    samples: Mapping[str, Sequence[int]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    failures: Sequence[Mapping[str, str]] = ()
    keep: Sequence[Path] = ()
    spans: Sequence[tuple[str, str, int, int, int]] = ()


@dataclass
class Pass:
    """What the batches of an end-to-end pass left. `samples` in ns by stage; `spans` as a `Measurement` has them."""

    samples: dict[str, array[int]] = field(
        default_factory=lambda: {name: array("q") for name in (*STAGES, "wait", "batch")}
    )
    spans: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    embedded: int = 0
    batches: int = 0
    wall_ns: int = 0


Protocol = Callable[[Cell, Path, Progress], Measurement]


def open_corpus(cell: Cell) -> Manifest:
    """Load the manifest that a cell names and make sure that it still lists the same images.

    Raises:
        UserError: the corpus changed, or the cell has none.
    """
    if cell.corpus is None:
        raise UserError(f"the cell {cell.label} of {cell.experiment} needs a corpus")
    manifest = manifests.load(Path(cell.corpus.manifest)).first(cell.corpus.n)
    if manifest.digest() != cell.corpus.digest:
        raise UserError("the corpus changed while the run was going on; run the same command again")
    return manifest


def set_page_cache(cell: Cell, manifest: Manifest, items: Sequence[Item]) -> str:
    """Warm or evict the files as the cell asks; return the state, for the record; `none` without files."""
    state = str(cell.params.get("page_cache", "warm"))
    files = readers.stored(manifest.root, items)
    if state == "cold":
        readers.release(manifest.root)
    act = page_cache.evict if state == "cold" else page_cache.warm
    act(files)
    return state if files else "none"


def peak_memory_mib() -> float:
    """The most memory that this process has had resident, in MiB (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
