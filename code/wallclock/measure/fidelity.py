"""Protocols `fidelity`, `agreement` and `image_stats`: what pixels are like; nothing is timed.

The reference of `fidelity` is Pillow's decode and Pillow's antialiased bilinear resize. PSNR and
the largest difference of a channel are taken after the resize, image by image; the cosine between
the model's vectors, after the forward pass.

Some photos are hard for every filter, so each image has two baselines of its own: what full decode
and OpenCV's area average reach on it, and what the paper's recipe does. A recipe's loss against the
first and its gain over the second are the worst of any image.
"""

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from wallclock.corpus import image_stats as corpus_stats
from wallclock.corpus import readers
from wallclock.corpus.manifest import Item, Manifest, failure_rows
from wallclock.engines.pipeline import load_stages
from wallclock.errors import ImageError, Unavailable, UserError, describe
from wallclock.measure.protocol import Measurement, Progress, all_failed, open_corpus, plain_jpegs
from wallclock.spec import Cell, ModelSpec, Recipe
from wallclock.stages import decode, forward, normalize, transfer
from wallclock.stages.pixels import Pixels
from wallclock.summary import PSNR_CEILING_DB, cosine, median, psnr_db
from wallclock.thread_counts import set_threads

#: Resized images, uint8 (px, px, 3), by image id.
Images: TypeAlias = Mapping[str, Pixels]
Failures: TypeAlias = dict[str, dict[str, str]]
Baselines: TypeAlias = Mapping[str, Mapping[str, float]]


def image_stats(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Median and p90 of each measure of an image, and how many there are of each format."""
    manifest = open_corpus(cell)
    stats = corpus_stats.measure(manifest)
    values = {**manifest.size_stats(), "image_stats": stats.summary(), "formats": stats.formats}
    failures = [*failure_rows(manifest.items), *map(dict, stats.failures)]
    return Measurement(values=values, failures=failures)


def agreement(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Compare every decoder's pixels with Pillow's, image by image.

    Values: for each decoder `max_abs_diff` (0 to 255, over all images), or why it is unavailable.
    """
    manifest = open_corpus(cell)
    items, reader, reference = (plain_jpegs(manifest), readers.make(manifest), decode.make("pil"))
    results: dict[str, Any] = {}
    failures: Failures = {}
    for name in decode.CPU_DECODERS:
        try:
            difference = partial(_difference, reader, reference, decode.make(name))
        except Unavailable as error:
            results[name] = {"unavailable": str(error)}
            continue
        differences = _of_each(items, failures, difference)
        failed = {"unavailable": "every image failed in it"}
        worst = max(differences.values(), default=None)
        results[name] = failed if worst is None else {"max_abs_diff": worst}
    compared = len(items) - len(failures)
    if not compared:
        raise all_failed([*failures.values()])
    values = {"agreement": results, "n_compared": compared}
    return Measurement(values=values, failures=list(failures.values()))


def _difference(
    reader: readers.Reader, reference: decode.Decode, decoder: decode.Decode, item: Item
) -> int:
    """The largest difference of any channel of any pixel; 255 where the shapes differ."""
    data = reader(item)
    ours, theirs = decoder(data), reference(data)
    if ours.shape != theirs.shape:
        return 255
    return int(np.max(np.maximum(ours, theirs) - np.minimum(ours, theirs)))


def _of_each(
    items: Sequence[Item], failures: Failures, function: Callable[[Item], Any]
) -> dict[str, Any]:
    """A function's results by image id; an image that fails in it goes to `failures`."""
    results = {}
    for item in items:
        try:
            results[item.id] = function(item)
        except ImageError as error:
            failures[item.id] = {"id": item.id, "stage": error.stage, "reason": error.reason}
    return results


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
    truth = _resized(reference, model, manifest, failures)
    if not truth:
        raise all_failed([*failures.values()])
    baselines = _baselines_db(reference, model, manifest, truth)
    truth_vectors = dict(zip(truth, _embed(model, reference, list(truth.values())), strict=True))
    results: dict[str, Any] = {}
    for done, choice in enumerate(cell.params["recipes"], 1):
        recipe = replace(reference, **choice)
        try:
            images = _resized(recipe, model, manifest, failures)
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

    `images`: uint8 (px, px, 3) by position in `manifest.valid`, of which `n_vectors` go through the
    network. Raises `UserError` where Pillow cannot read an image that passed validation.
    """
    items = [manifest.valid[position] for position in sorted(images)]
    ours = {manifest.valid[position].id: image for position, image in images.items()}
    compared = replace(manifest, items=tuple(items))
    reference = Recipe("reference", device=device, batch_size=max(n_vectors, 1))
    failures: Failures = {}
    truth = _resized(reference, model, compared, failures)
    for failure in failures.values():
        raise UserError(f"an image that passed validation failed: {describe(failure)}")
    names = [item.id for item in items]
    result = _compare_pixels(ours, truth, names, _baselines_db(reference, model, compared, truth))
    if model.weights != "none" and n_vectors:
        ours_and_truth = ([some[name] for name in names[:n_vectors]] for some in (ours, truth))
        result |= _compare_vectors(*(_embed(model, reference, some) for some in ours_and_truth))
    return result


def _compare_pixels(
    images: Images, truth: Images, names: Sequence[str], baselines: Baselines
) -> dict[str, float]:
    decibels = _decibels(images, truth, names)
    result = {"psnr_db": median(list(decibels.values())), "psnr_db_min": min(decibels.values())}
    differences = (np.abs(images[name].astype(np.int16) - truth[name]) for name in names)
    result["max_abs_diff"] = max(int(np.max(difference)) for difference in differences)
    area, paper = baselines["area"], baselines["linear"]
    if losses := [area[name] - decibels[name] for name in names if name in area]:
        result["psnr_loss_vs_area_db"] = max(losses)
    if gains := [decibels[name] - paper[name] for name in names if name in paper]:
        result["psnr_gain_vs_paper_db"] = min(gains)
    return result


def _decibels(images: Images, truth: Images, names: Iterable[str]) -> dict[str, float]:
    return {name: min(psnr_db(images[name], truth[name]), PSNR_CEILING_DB) for name in names}


def _compare_vectors(vectors: Any, reference: Any) -> dict[str, float]:
    similarities = [float(value) for value in cosine(vectors, reference)]
    return {"cosine": median(similarities), "cosine_min": min(similarities)}


def _baselines_db(
    reference: Recipe, model: ModelSpec, manifest: Manifest, truth: Images
) -> Baselines:
    """PSNR of each image by full decode + INTER_AREA, and by the paper's recipe, INTER_LINEAR.

    Both decode to Pillow's pixels (`agreement` checks that), so Pillow decodes for them: no library
    needs to be here that the compared recipes do not need.
    """
    baselines = {}
    for name in ("area", "linear"):
        recipe = replace(reference, name=name, resizer="opencv", interpolation=name)
        images = _resized(recipe, model, manifest, {})
        baselines[name] = _decibels(images, truth, images.keys() & truth.keys())
    return baselines


def _resized(
    recipe: Recipe, model: ModelSpec, manifest: Manifest, failures: Failures
) -> dict[str, Pixels]:
    stages = load_stages(recipe, model, manifest)
    stages.prefetch(manifest.valid)
    return _of_each(
        manifest.valid,
        failures,
        lambda item: stages.resize(item, stages.decode(item, stages.read(item))),
    )


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
        batches.append(move.d2h(network.run(move.h2d(np.stack(batch)))))
    vectors = np.concatenate(batches)
    if not math.isfinite(float(np.abs(vectors).max())):
        raise FloatingPointError("the model returned vectors that are not finite")
    return vectors
