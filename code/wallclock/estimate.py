"""How long a run will take: from earlier records of this machine, else from the paper's figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from wallclock.spec import Cell

#: Process start, imports and model load, in seconds, with and without torch.
_START_S = {True: 5.0, False: 1.0}

#: Seconds an image, from the paper: decode + resize by decoder and set, and the forward pass of a
#: T4. A CPU's forward is the paper's 1.3 img/s on one thread.
_LOAD_S = {"small_256": 0.0025, "original": 0.046}
_FORWARD_S = {"cuda": 1 / 264, "cpu": 1 / 1.3}

#: Protocols that run the model.
_EMBEDS = frozenset({"serial", "fidelity", "profiler"})


class Estimator:
    """Seconds a cell takes, learnt from what the same kind of cell took before."""

    def __init__(self, runs: Path, cores: int) -> None:
        self._known = dict(_durations(runs))
        self._cores = max(cores, 1)

    def seconds(self, cell: Cell) -> float:
        """Expected wall time of one cell, its process included."""
        kind = _kind(cell)
        n = cell.corpus.n if cell.corpus else 0
        if kind in self._known:
            known_n, known_s = self._known[kind]
            fixed = min(_START_S[True], known_s)
            return fixed + (known_s - fixed) * (n / known_n if known_n else 1)
        return self._guess(cell, n)

    def total(self, cells: Sequence[Cell]) -> float:
        """Expected wall time of all cells, one after the other."""
        return sum(self.seconds(cell) for cell in cells)

    def _guess(self, cell: Cell, n: int) -> float:
        embeds = cell.protocol in _EMBEDS and cell.model is not None and cell.model.weights != "none"
        load = _LOAD_S[cell.corpus.image_set] if cell.corpus else 0.0
        forward = 0.0
        if embeds and cell.recipe is not None:
            one_core = cell.recipe.device == "cuda" or cell.recipe.torch_threads == 1
            forward = _FORWARD_S[cell.recipe.device] / (1 if one_core else self._cores)
        return _START_S[embeds] + n * (load + forward)


def _kind(cell: Cell) -> tuple[Any, ...]:
    recipe = (cell.recipe.device, cell.recipe.torch_threads) if cell.recipe else ()
    weights = cell.model.weights if cell.model else ""
    image_set = cell.corpus.image_set if cell.corpus else ""
    return (cell.experiment, cell.protocol, cell.label, image_set, weights, *recipe)


def _durations(runs: Path) -> Iterable[tuple[tuple[Any, ...], tuple[int, float]]]:
    """(kind, (images, seconds)) of every record on disk; what cannot be read teaches nothing."""
    for path in runs.glob("*/*/record.json"):
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            cell = Cell.from_json(plain["cell"])
            yield _kind(cell), (cell.corpus.n if cell.corpus else 0, float(plain["seconds"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue


def human(seconds: float) -> str:
    """'45 s', '12 min', '3.4 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
