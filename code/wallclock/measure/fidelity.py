"""Protocol `fidelity`: how far a recipe's pixels and vectors are from the reference recipe's.

The reference is Pillow's decode and Pillow's antialiased bilinear resize. PSNR and the largest
difference of a channel are taken after the resize, image by image; the cosine between the model's
vectors, after the forward pass. Nothing here is timed.

Some photos are hard for every filter, so each image also has two measures of its own: what full decode
and OpenCV's area average reach on it, and what the paper's recipe does. A recipe's loss against the first
and its margin over the second are the worst of any image.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from wallclock.corpus import readers
from wallclock.corpus.manifest import Manifest
from wallclock.engines.pipeline import scaling_of
from wallclock.errors import ImageError, Unavailable, UserError, describe
from wallclock.measure.protocol import Measurement, Progress, open_corpus
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import assemble, decode, forward, normalize, resize, transfer
from wallclock.stages.pixels import Pixels
from wallclock.summary import cosine, median, psnr_db
from wallclock.thread_counts import set_threads

#: Two equal images have an infinite PSNR, which JSON and a plot cannot carry.
_CEILING_DB = 99.0

#: Resized pictures by image id.
Pictures: TypeAlias = dict[str, Pixels]


def fidelity(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Compare each recipe in `params.recipes` with the cell's own, which is the reference.

    Values: for each recipe `psnr_db` (median), `psnr_db_min`, `max_abs_diff` (0 to 255, of any image),
    `psnr_loss_vs_area_db` (the most that an image lies below full decode + INTER_AREA), `psnr_gain_vs_paper_db` (the least that
    one lies above the paper's recipe), `cosine` (median), `cosine_min`; or why it is not here.
    """
    reference, model = cell.recipe, cell.model
    set_threads(reference, uses_torch=model.weights != "none")
    manifest = open_corpus(cell)
    failures: dict[str, dict[str, str]] = {}
    truth = pictures_of(reference, model, manifest, failures)
    if not truth:
        raise UserError(f"every image failed; the first, {describe(next(iter(failures.values())))}")
    peers = decibels_of_peers(reference, model, manifest, truth)
    truth_vectors = dict(zip(truth, embedder(model, reference)(list(truth.values())), strict=True))
    found: dict[str, Any] = {}
    for done, choice in enumerate(cell.params["recipes"], 1):
        recipe = replace(reference, **choice)
        try:
            pixels = pictures_of(recipe, model, manifest, failures)
        except Unavailable as error:
            found[recipe.name] = {"unavailable": str(error)}
            continue
        both = [name for name in truth if name in pixels]
        if not both:
            found[recipe.name] = {"unavailable": "every image failed in it"}
            continue
        found[recipe.name] = compared(pixels, truth, both, peers)
        if model.weights != "none":
            vectors = embedder(model, recipe)([pixels[name] for name in both])
            similar = [
                float(value)
                for value in cosine(vectors, np.stack([truth_vectors[name] for name in both]))
            ]
            found[recipe.name] |= {"cosine": median(similar), "cosine_min": min(similar)}
        progress(done * len(truth))
    return Measurement(
        values={"fidelity": found, "n_compared": len(truth)}, failures=list(failures.values())
    )


def compared(
    pixels: Pictures,
    truth: Pictures,
    names: Sequence[str],
    peers: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
    """What a recipe's pictures are worth: over all images, and against the peers image by image."""
    decibels = {name: _decibels(pixels[name], truth[name]) for name in names}
    largest = max(
        int(np.max(np.abs(pixels[name].astype(np.int16) - truth[name]))) for name in names
    )
    found = {
        "psnr_db": median(list(decibels.values())),
        "psnr_db_min": min(decibels.values()),
        "max_abs_diff": largest,
    }
    for column, peer, sign in (
        ("psnr_loss_vs_area_db", "area", -1),
        ("psnr_gain_vs_paper_db", "paper", 1),
    ):
        apart = [
            sign * (decibels[name] - peers[peer][name]) for name in names if name in peers[peer]
        ]
        if apart:
            found[column] = max(apart) if sign < 0 else min(apart)
    return found


def decibels_of_peers(
    reference: Recipe, model: ModelSpec, manifest: Manifest, truth: Pictures
) -> dict[str, dict[str, float]]:
    """PSNR of each image by full decode + INTER_AREA, and by the paper's recipe.

    Both decode to Pillow's pixels (`agreement` checks that), so Pillow decodes for them: no library
    needs to be here that the recipes in question do not need.
    """
    found = {}
    for name, interpolation in (("area", "area"), ("paper", "linear")):
        recipe = replace(reference, name=name, resizer="opencv", interpolation=interpolation)
        pictures = pictures_of(recipe, model, manifest, {})
        found[name] = {
            each: _decibels(pixels, truth[each])
            for each, pixels in pictures.items()
            if each in truth
        }
    return found


def _decibels(picture: Pixels, truth: Pixels) -> float:
    return min(psnr_db(picture, truth), _CEILING_DB)


def pictures_of(
    recipe: Recipe, model: ModelSpec, manifest: Manifest, failures: dict[str, dict[str, str]]
) -> Pictures:
    """The recipe's resized pictures by image id; an image that fails in it goes to `failures`."""
    decoder = decode.make(recipe.decoder, scaling_of(recipe, model.input_px))
    resizer = resize.make(recipe.resizer, recipe.interpolation, model.input_px).resize
    reader = readers.make(manifest.root)
    reader.expect(manifest.valid)
    pictures = {}
    for item in manifest.valid:
        try:
            data = reader(item)
            pixels = decoder(data) if item.plain_jpeg else decode.decode_other(data)
            pictures[item.id] = resizer(pixels, (item.height, item.width))
        except ImageError as error:
            failures[item.id] = {"id": item.id, "stage": error.stage, "reason": error.reason}
    return pictures


@lru_cache(maxsize=1)
def _network(model: ModelSpec, recipe: Recipe) -> forward.Network:
    return forward.make(model, recipe, None, Path(tempfile.gettempdir()) / "wallclock-onnx")


def embedder(model: ModelSpec, recipe: Recipe) -> Any:
    """A function that takes pictures of one size to vectors, float32 (n, dim), in the recipe's precision."""
    move = transfer.make(recipe.device if model.weights != "none" else "null")
    precision = Recipe(
        "", dtype=recipe.dtype, device=recipe.device, runtime=recipe.runtime, batch_size=32
    )
    network = _network(model, precision)
    to_float_chw = normalize.make(*model.statistics)

    def embed(pictures: Sequence[Pixels]) -> Any:
        parts = []
        for start in range(0, len(pictures), recipe.batch_size):
            images = [
                to_float_chw(picture) for picture in pictures[start : start + recipe.batch_size]
            ]
            parts.append(move.d2h(network.run(move.h2d(assemble.stack(images)))))
        vectors = np.concatenate(parts)
        if not math.isfinite(float(np.abs(vectors).max())):
            raise FloatingPointError("the model returned vectors that are not finite")
        return vectors

    return embed
