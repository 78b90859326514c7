"""Protocol `fidelity`: how far a recipe's pixels and vectors are from the reference recipe's.

The reference is Pillow's decode and Pillow's antialiased bilinear resize. PSNR is taken after the
resize, image by image; the cosine between the model's vectors, after the forward pass. Nothing here
is timed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from wallclock.corpus.manifest import Manifest
from wallclock.engines.libraries import set_threads
from wallclock.errors import ImageError, Unavailable, UserError, describe
from wallclock.measure.protocol import Measurement, Progress, open_corpus
from wallclock.measure.serial import parts
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import assemble, decode, forward, normalize, read, resize, transfer
from wallclock.stages.pixels import Pixels
from wallclock.summary import cosine, median, psnr_db

#: Two equal images have an infinite PSNR, which JSON and a plot cannot carry.
_CEILING_DB = 99.0


def fidelity(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Compare each recipe in `params.recipes` with the cell's own, which is the reference.

    Values: for each recipe `psnr_db` (median), `psnr_db_min`, `cosine` (median), `cosine_min`, or why
    it is not here.
    """
    reference, model = parts(cell)
    set_threads(reference, uses_torch=model.weights != "none")
    manifest = open_corpus(cell)
    failures: dict[str, dict[str, str]] = {}
    truth = _pixels(reference, model, manifest, failures)
    if not truth:
        raise UserError(f"every image failed; the first, {describe(next(iter(failures.values())))}")
    truth_vectors = dict(zip(truth, _embedder(model, reference)(list(truth.values())), strict=True))
    found: dict[str, Any] = {}
    for done, choice in enumerate(cell.params["recipes"], 1):
        recipe = replace(reference, **choice)
        try:
            pixels = _pixels(recipe, model, manifest, failures)
        except Unavailable as error:
            found[recipe.name] = {"unavailable": str(error)}
            continue
        both = [name for name in truth if name in pixels]
        if not both:
            found[recipe.name] = {"unavailable": "every image failed in it"}
            continue
        decibels = [min(psnr_db(pixels[name], truth[name]), _CEILING_DB) for name in both]
        found[recipe.name] = {"psnr_db": median(decibels), "psnr_db_min": min(decibels)}
        if model.weights != "none":
            vectors = _embedder(model, recipe)([pixels[name] for name in both])
            similar = [float(value) for value in cosine(vectors, np.stack([truth_vectors[name] for name in both]))]
            found[recipe.name] |= {"cosine": median(similar), "cosine_min": min(similar)}
        progress(done * len(truth))
    return Measurement(values={"fidelity": found, "n_compared": len(truth)}, failures=list(failures.values()))


def _pixels(
    recipe: Recipe, model: ModelSpec, manifest: Manifest, failures: dict[str, dict[str, str]]
) -> dict[str, Pixels]:
    """The recipe's resized pictures by image id; an image that fails in it goes to `failures`."""
    decoder = decode.make(recipe.decoder)
    resizer = resize.make(recipe.resizer, recipe.interpolation, model.input_px)
    reader = read.make(manifest.root)
    reader.expect(manifest.sound)
    pictures = {}
    for item in manifest.sound:
        try:
            data = reader(item)
            pictures[item.id] = resizer(decoder(data) if item.plain_jpeg else decode.decode_other(data))
        except ImageError as error:
            failures[item.id] = {"id": item.id, "stage": error.stage, "reason": error.reason}
    return pictures


@lru_cache(maxsize=1)
def _network(model: ModelSpec, device: str, dtype: str) -> forward.Forward:
    return forward.make(model, device, dtype)


def _embedder(model: ModelSpec, recipe: Recipe) -> Any:
    move = transfer.make(recipe.device if model.weights != "none" else "null")
    network = _network(model, recipe.device, recipe.dtype)
    to_float_chw = normalize.make(*model.statistics)

    def embed(pictures: Sequence[Pixels]) -> Any:
        parts = []
        for start in range(0, len(pictures), recipe.batch_size):
            images = [to_float_chw(picture) for picture in pictures[start : start + recipe.batch_size]]
            parts.append(move.d2h(network.run(move.h2d(assemble.stack(images)))))
        vectors = np.concatenate(parts)
        if not math.isfinite(float(np.abs(vectors).max())):
            raise FloatingPointError("the model returned vectors that are not finite")
        return vectors

    return embed
