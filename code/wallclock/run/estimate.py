"""How long a run will take: from earlier records of this machine, else from the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wallclock import records
from wallclock.spec import Cell

#: Process start, imports and model load, in seconds, with and without torch.
_START_S = {True: 5.0, False: 1.0}

#: Seconds an image, from the paper: decode + resize by image set, and the forward pass of a T4. A
#: CPU's forward is the paper's 1.3 img/s on one thread.
_LOAD_S = {"small_256": 0.0025, "original": 0.046}
_FORWARD_S = {"cuda": 1 / 264, "cpu": 1 / 1.3}

#: Protocols that run the model.
_EMBEDS = frozenset({"serial", "fidelity", "profiler", "throughput", "runtime", "layers"})


class Estimator:
    """Estimates a cell's seconds, from the records of similar cells where there are any."""

    def __init__(self, runs: Path, cores: int) -> None:
        self._known = {
            _similarity_key(cell): (_images(cell), seconds)
            for cell, seconds in records.durations(runs)
        }
        self._cores = max(cores, 1)

    def seconds(self, cell: Cell) -> float:
        """Expected wall time of one cell, its process included."""
        known = self._known.get(_similarity_key(cell))
        if known is None:
            return self._from_paper(cell)
        known_n, known_s = known
        fixed = min(_START_S[True], known_s)
        return fixed + (known_s - fixed) * (_images(cell) / known_n if known_n else 1)

    def total(self, cells: Sequence[Cell]) -> float:
        """Expected wall time of all cells, which run sequentially."""
        return sum(self.seconds(cell) for cell in cells)

    def _from_paper(self, cell: Cell) -> float:
        embeds, n = cell.protocol in _EMBEDS, _images(cell)
        load = _LOAD_S[cell.corpus.image_set] if cell.corpus else 0.0
        if cell.protocol == "throughput":
            # At least one batch is measured, and up to half as many warm up.
            n = max(n, cell.recipe.batch_size) * 3 // 2
        return _START_S[embeds] + n * (load + (self._forward(cell) if embeds else 0.0))

    def _forward(self, cell: Cell) -> float:
        recipe, model = cell.recipe, cell.model
        if model.weights == "none":
            return (model.service_ms / recipe.batch_size + model.service_ms_per_image) / 1e3
        one_core = recipe.device == "cuda" or recipe.torch_threads == 1
        slow_type = 4 if (recipe.device, recipe.dtype) == ("cpu", "fp16") else 1
        return _FORWARD_S[recipe.device] * slow_type / (1 if one_core else self._cores)


def _images(cell: Cell) -> int:
    return cell.corpus.n if cell.corpus else 0


def _similarity_key(cell: Cell) -> tuple[Any, ...]:
    image_set = cell.corpus.image_set if cell.corpus else ""
    measured = (cell.experiment, cell.protocol, cell.label, image_set)
    return (*measured, cell.model.weights, cell.recipe.device, cell.recipe.torch_threads)


def format_duration(seconds: float) -> str:
    """'45 s', '12 min', '3.4 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
