"""How far pictures that a loader handed over are from what Pillow makes of the same files.

The reference is Pillow's decode and antialiased bilinear resize. Two others stand beside it, because
some photos are hard for every filter: full decode with OpenCV's INTER_AREA, and the paper's recipe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wallclock.corpus.manifest import Item
from wallclock.measure.fidelity import _embedder
from wallclock.spec import ModelSpec, Recipe
from wallclock.stages import decode, read, resize
from wallclock.stages.pixels import Pixels
from wallclock.summary import cosine, median, psnr_db

#: Two equal images have an infinite PSNR, which JSON and a plot cannot carry.
_CEILING_DB = 99.0


def compare(
    pictures: Mapping[int, Pixels],
    items: Sequence[Item],
    root: Path,
    model: ModelSpec,
    recipe: Recipe,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """PSNR (median, worst), largest error, margins over the two other resizers, cosine where there is a network.

    Args:
        pictures: uint8 (px, px, 3) by position in `items`.
        options: `vectors`: how many of them go through the network.
    """
    reader = read.make(root)
    chosen = [items[position] for position in sorted(pictures)]
    reader.expect(chosen)
    data = [reader(item) for item in chosen]
    ours = [pictures[position] for position in sorted(pictures)]
    truth = _made(data, "pil", "pil", "bilinear", model.input_px)
    decibels = _decibels(ours, truth)
    area = _decibels(_made(data, "simplejpeg", "opencv", "area", model.input_px), truth)
    paper = _decibels(_made(data, "simplejpeg", "opencv", "linear", model.input_px), truth)
    found: dict[str, Any] = {
        "psnr_db": median(decibels),
        "psnr_db_min": min(decibels),
        "max_abs_diff": max(int(np.abs(a.astype(np.int16) - b).max()) for a, b in zip(ours, truth, strict=True)),
        "below_area_db": max(b - a for a, b in zip(decibels, area, strict=True)),
        "below_paper_db": max(b - a for a, b in zip(decibels, paper, strict=True)),
        "n_compared": len(ours),
    }
    n_vectors = min(int(options["vectors"]), len(ours))
    if model.weights != "none" and n_vectors:
        embed = _embedder(model, replace(recipe, dtype="fp32", batch_size=n_vectors))
        similar = cosine(embed(ours[:n_vectors]), embed(truth[:n_vectors]))
        found |= {"cosine": median([float(value) for value in similar]), "cosine_min": float(similar.min())}
    return found


def _made(data: Sequence[bytes], decoder: str, resizer: str, interpolation: str, px: int) -> list[Pixels]:
    decoding, resizing = decode.make(decoder), resize.make(resizer, interpolation, px).resize
    return [resizing(decoding(encoded)) for encoded in data]


def _decibels(pictures: Sequence[Pixels], truth: Sequence[Pixels]) -> list[float]:
    return [min(psnr_db(picture, true), _CEILING_DB) for picture, true in zip(pictures, truth, strict=True)]
