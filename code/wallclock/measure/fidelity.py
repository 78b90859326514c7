"""Protocol `fidelity`: how far a recipe's pixels and vectors are from the reference recipe's.

The reference is Pillow's decode and Pillow's antialiased bilinear resize. PSNR and the largest
difference of a channel are taken after the resize, image by image; the cosine between the model's
vectors, after the forward pass. Nothing here is timed.

Some photos are hard for every filter, so each image has two baselines of its own: what full decode
and OpenCV's area average reach on it, and what the paper's recipe does. A recipe's loss against the
first and its gain over the second are the worst of any image.
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

from wallclock.corpus.manifest import Manifest
from wallclock.engines.pipeline import load_stages
from wallclock.errors import ImageError, Unavailable, UserError, describe
from wallclock.measure.protocol import Measurement, Progress, open_corpus
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import assemble, forward, normalize, transfer
from wallclock.stages.pixels import Pixels
from wallclock.summary import PSNR_CEILING_DB, cosine, median, psnr_db
from wallclock.thread_counts import set_threads

#: Resized images, uint8 (px, px, 3), by image id.
Images: TypeAlias = dict[str, Pixels]
Failures: TypeAlias = dict[str, dict[str, str]]
Baselines: TypeAlias = Mapping[str, Mapping[str, float]]


def fidelity(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Compare each recipe in `params.recipes` with the cell's own, which is the reference.

    Values: for each recipe `psnr_db` (median), `psnr_db_min`, `max_abs_diff` (0 to 255, of any
    image), `psnr_loss_vs_area_db` (the most that an image lies below full decode + INTER_AREA),
    `psnr_gain_vs_paper_db` (the least that one lies above the paper's recipe), `cosine` (median),
    `cosine_min`; or why it is not here.
    """
    reference, model = cell.recipe, cell.model
    set_threads(reference, uses_torch=model.weights != "none")
    manifest = open_corpus(cell)
    failures: Failures = {}
    truth = resized_images(reference, model, manifest, failures)
    if not truth:
        raise UserError(f"every image failed; the first, {describe(next(iter(failures.values())))}")
    baselines = _baselines_db(reference, model, manifest, truth)
    truth_vectors = dict(zip(truth, _embed(model, reference, list(truth.values())), strict=True))
    results: dict[str, Any] = {}
    for done, choice in enumerate(cell.params["recipes"], 1):
        recipe = replace(reference, **choice)
        try:
            images = resized_images(recipe, model, manifest, failures)
        except Unavailable as error:
            results[recipe.name] = {"unavailable": str(error)}
            continue
        common = [name for name in truth if name in images]
        if not common:
            results[recipe.name] = {"unavailable": "every image failed in it"}
            continue
        results[recipe.name] = _compare_pixels(images, truth, common, baselines)
        if model.weights != "none":
            vectors = _embed(model, recipe, [images[name] for name in common])
            reference_vectors = np.stack([truth_vectors[name] for name in common])
            results[recipe.name] |= _compare_vectors(vectors, reference_vectors)
        progress(done * len(truth))
    values = {"fidelity": results, "n_compared": len(truth)}
    return Measurement(values=values, failures=list(failures.values()))


def compare_loader_output(
    images: Mapping[int, Pixels], manifest: Manifest, model: ModelSpec, device: str, n_vectors: int
) -> dict[str, float]:
    """The same measures of images that a loader delivered, which are not made again.

    Args:
        images: uint8 (px, px, 3) by position in `manifest.valid`.
        n_vectors: how many of them go through the network.

    Raises:
        UserError: Pillow cannot read an image that passed validation.
    """
    items = [manifest.valid[position] for position in sorted(images)]
    ours = {manifest.valid[position].id: image for position, image in images.items()}
    compared = replace(manifest, items=tuple(items))
    reference = Recipe("reference", device=device, batch_size=max(n_vectors, 1))
    failures: Failures = {}
    truth = resized_images(reference, model, compared, failures)
    if failures:
        first = describe(next(iter(failures.values())))
        raise UserError(f"an image that passed validation failed: {first}")
    names = [item.id for item in items]
    baselines = _baselines_db(reference, model, compared, truth)
    result = _compare_pixels(ours, truth, names, baselines)
    if model.weights != "none" and n_vectors:
        embedded = names[:n_vectors]
        vectors = _embed(model, reference, [ours[name] for name in embedded])
        result |= _compare_vectors(vectors, _embed(model, reference, [truth[n] for n in embedded]))
    return result


def _compare_pixels(
    images: Images, truth: Images, names: Sequence[str], baselines: Baselines
) -> dict[str, float]:
    decibels = {name: _psnr_db(images[name], truth[name]) for name in names}
    result = {"psnr_db": median(list(decibels.values())), "psnr_db_min": min(decibels.values())}
    differences = (np.abs(images[name].astype(np.int16) - truth[name]) for name in names)
    result["max_abs_diff"] = max(int(np.max(difference)) for difference in differences)
    area, paper = baselines["area"], baselines["paper"]
    if losses := [area[name] - decibels[name] for name in names if name in area]:
        result["psnr_loss_vs_area_db"] = max(losses)
    if gains := [decibels[name] - paper[name] for name in names if name in paper]:
        result["psnr_gain_vs_paper_db"] = min(gains)
    return result


def _compare_vectors(vectors: Any, reference: Any) -> dict[str, float]:
    similarities = [float(value) for value in cosine(vectors, reference)]
    return {"cosine": median(similarities), "cosine_min": min(similarities)}


def _baselines_db(
    reference: Recipe, model: ModelSpec, manifest: Manifest, truth: Images
) -> Baselines:
    """PSNR of each image by full decode + INTER_AREA, and by the paper's recipe.

    Both decode to Pillow's pixels (`agreement` checks that), so Pillow decodes for them: no library
    needs to be here that the compared recipes do not need.
    """
    baselines = {}
    for name, interpolation in (("area", "area"), ("paper", "linear")):
        recipe = replace(reference, name=name, resizer="opencv", interpolation=interpolation)
        images = resized_images(recipe, model, manifest, {})
        baselines[name] = {
            image_id: _psnr_db(image, truth[image_id])
            for image_id, image in images.items()
            if image_id in truth
        }
    return baselines


def _psnr_db(image: Pixels, truth: Pixels) -> float:
    return min(psnr_db(image, truth), PSNR_CEILING_DB)


def resized_images(
    recipe: Recipe, model: ModelSpec, manifest: Manifest, failures: Failures
) -> Images:
    """The recipe's resized images by id; an image that fails in it goes to `failures`."""
    stages = load_stages(recipe, model, manifest.root)
    stages.prefetch(manifest.valid)
    images = {}
    for item in manifest.valid:
        try:
            images[item.id] = stages.resize(item, stages.decode(item, stages.read(item)))
        except ImageError as error:
            failures[item.id] = {"id": item.id, "stage": error.stage, "reason": error.reason}
    return images


@lru_cache(maxsize=1)
def _network(model: ModelSpec, dtype: str, device: str, runtime: str) -> forward.Network:
    recipe = Recipe("", dtype=dtype, device=device, runtime=runtime, batch_size=32)
    return forward.make(model, recipe, None, Path(tempfile.gettempdir()) / "wallclock-onnx")


def _embed(model: ModelSpec, recipe: Recipe, images: Sequence[Pixels]) -> Any:
    """Images of one size to vectors, float32 (n, dim), in the recipe's precision."""
    move = transfer.make(recipe.device if model.weights != "none" else "null")
    network = _network(model, recipe.dtype, recipe.device, recipe.runtime)
    to_float_chw, size = normalize.make(*model.statistics), recipe.batch_size
    batches = []
    for start in range(0, len(images), size):
        batch = [to_float_chw(image) for image in images[start : start + size]]
        batches.append(move.d2h(network.run(move.h2d(assemble.stack(batch)))))
    vectors = np.concatenate(batches)
    if not math.isfinite(float(np.abs(vectors).max())):
        raise FloatingPointError("the model returned vectors that are not finite")
    return vectors
