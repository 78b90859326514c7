"""How far pictures that a loader handed over are from what Pillow makes of the same files.

The measures are those of protocol `fidelity`; the pictures are the loader's own, not made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from wallclock.corpus.manifest import Item, Manifest
from wallclock.errors import UserError, describe
from wallclock.measure import fidelity
from wallclock.spec import ModelSpec, Recipe
from wallclock.stages.pixels import Pixels
from wallclock.summary import cosine, median


def compare(
    pictures: Mapping[int, Pixels],
    items: Sequence[Item],
    root: Path,
    model: ModelSpec,
    device: str,
    n_vectors: int,
) -> dict[str, float]:
    """What `fidelity` says of a recipe: PSNR, largest difference, loss and margin, cosine where there is a network.

    Args:
        pictures: uint8 (px, px, 3) by position in `items`.
        n_vectors: how many of them go through the network.

    Raises:
        UserError: Pillow cannot read an image that was vetted.
    """
    chosen = [items[position] for position in sorted(pictures)]
    ours = {items[position].id: picture for position, picture in pictures.items()}
    manifest = Manifest("", "", root, tuple(chosen))
    reference = Recipe("reference", device=device, batch_size=max(n_vectors, 1))
    failures: dict[str, dict[str, str]] = {}
    truth = fidelity.pictures_of(reference, model, manifest, failures)
    if failures:
        raise UserError(
            f"an image that was vetted failed: {describe(next(iter(failures.values())))}"
        )
    names = [item.id for item in chosen]
    found = fidelity.compared(
        ours, truth, names, fidelity.decibels_of_peers(reference, model, manifest, truth)
    )
    if model.weights != "none" and n_vectors:
        embed = fidelity.embedder(model, reference)
        some = names[:n_vectors]
        similar = cosine(
            *(np.asarray(embed([made[name] for name in some])) for made in (ours, truth))
        )
        found |= {
            "cosine": median([float(value) for value in similar]),
            "cosine_min": float(similar.min()),
        }
    return found
