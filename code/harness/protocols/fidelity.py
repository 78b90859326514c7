"""Protocol `fidelity`: how near pixels and vectors are to the reference's; nothing is timed.

The reference is Pillow's decode and Pillow's antialiased bilinear resize, of a loader
that crops Pillow's resize of all of the image with the crop's filter, cut out afterwards. PSNR and
the largest difference of a channel are taken after the resize, image by image. A second PSNR is
against Pillow's antialiased bicubic resize to the same size: the filter of DINOv2's own processor,
whose crop the paper's jobs do not make. The cosine is between pretrained models'
vectors: random weights give different pictures vectors of nearly one direction.

Some photos are hard for every filter, so each image has two baselines of its own: what full decode
and OpenCV's area average reach on it, and what the paper's recipe does. A recipe's loss against the
first and its gain over the second are the worst of any image.
"""

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from harness import runtimes
from harness.corpora.manifest import Item, Manifest
from harness.engines.pipeline import load_stages
from harness.measures import median, psnr_db, quantile
from harness.processes import set_threads
from harness.protocols.protocol import Measurement, Progress, all_failed, open_corpus
from harness.spec import Cell, Recipe
from wallclock.errors import ImageError, Unavailable, UserError, describe, image_errors
from wallclock.preprocess import Preprocess, preprocess_of
from wallclock.recipe import ModelSpec
from wallclock.stages import normalize, resize, transfer
from wallclock.stages.decode import PixelArray
from wallclock.stages.forward import Network
from wallclock.summary import cosine

#: Resized images, uint8 (px, px, 3), by image id.
_Images: TypeAlias = Mapping[str, PixelArray]
Failures: TypeAlias = dict[str, dict[str, str]]
#: `truth`, the reference pictures, and those of each of `_OTHERS`.
Truths: TypeAlias = Mapping[str, _Images]

#: What a full decode is also resized with: resizer and interpolation.
_OTHERS = {"area": ("opencv", "area"), "paper": ("opencv", "linear"), "bicubic": ("pil", "bicubic")}
#: Threads that make the references: full-size pictures of a hundred megapixels are in flight.
_THREADS = 4


def of_each(
    items: Sequence[Item],
    failures: Failures,
    function: Callable[[Item], Any],
    mapping: Callable[..., Iterable[Any]] = map,
) -> dict[str, Any]:
    """A function's results by image id; an image that fails in it goes to `failures`."""

    def attempt(item: Item) -> Any:
        try:
            return function(item)
        except ImageError as error:
            return error

    results = {}
    for item, result in zip(items, mapping(attempt, items), strict=True):
        if isinstance(result, ImageError):
            failures[item.id] = {"id": item.id, "stage": result.stage, "reason": result.reason}
        else:
            results[item.id] = result
    return results


def fidelity(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Compare each recipe in `params.recipes` with the cell's own, which is the reference.

    Values: for each recipe `n_compared` images, `psnr_db` (median), `psnr_db_p5`, `psnr_db_min`,
    `psnr_db_bicubic` (median), `max_abs_diff` (0 to 255, of any image), `psnr_loss_vs_area_db` (the
    most that an image lies below full decode + INTER_AREA), `psnr_gain_vs_paper_db` (the least that
    one lies above the paper's recipe); of a pretrained model and the first `params.vectors` images,
    all if it is absent, `cosine` (median), `cosine_min`; or why the recipe is not here.
    """
    reference, model = cell.recipe, cell.model
    set_threads(reference, uses_torch=model.weights != "none")
    manifest = open_corpus(cell)
    failures: Failures = {}
    truths = _truths(reference, model, manifest, failures)
    truth = truths["truth"]
    if not truth:
        raise all_failed([*failures.values()])
    n_vectors = int(cell.params.get("vectors", len(truth)))
    results: dict[str, Any] = {}
    for done, choice in enumerate(cell.params["recipes"], 1):
        recipe = replace(reference, **choice)
        try:
            images = resized(recipe, model, manifest, failures)
        except Unavailable as error:
            results[recipe.name] = {"unavailable": str(error)}
            continue
        common = [name for name in truth if name in images][:n_vectors]
        result = _compare_pixels(images, truths) or {"unavailable": "every image failed in it"}
        result |= _compare_vectors(model, common, (recipe, images), (reference, truth))
        results[recipe.name] = result
        progress(done * len(truth))
    values = {"fidelity": results, "n_compared": len(truth)}
    return Measurement(values=values, failures=list(failures.values()))


def compare_loader_output(
    images: Mapping[int, PixelArray],
    manifest: Manifest,
    model: ModelSpec,
    device: str,
    n_vectors: int,
    preprocess: str = Recipe.preprocess,
) -> dict[str, float]:
    """The same measures of images that a loader delivered, which are not made again.

    `images`: uint8 (px, px, 3) by position in `manifest.valid`, of which `n_vectors` go through the
    network. `preprocess`: the loader's geometry, which the references have too. Raises `UserError`
    where Pillow cannot read an image that passed validation.
    """
    items = [manifest.valid[position] for position in sorted(images)]
    ours = {manifest.valid[position].id: images[position] for position in sorted(images)}
    size = max(n_vectors, 1)
    reference = Recipe("reference", device=device, batch_size=size, preprocess=preprocess)
    chosen = replace(manifest, items=tuple(items))
    failures: Failures = {}
    truths = _truths(reference, model, chosen, failures)
    for failure in failures.values():
        raise UserError(f"an image that passed validation failed: {describe(failure)}")
    result = _compare_pixels(ours, truths)
    names = list(ours)[:n_vectors]
    return result | _compare_vectors(model, names, (reference, ours), (reference, truths["truth"]))


def _compare_pixels(images: _Images, truths: Truths) -> dict[str, Any]:
    """The images that are in both; nothing if none is."""
    truth = truths["truth"]
    decibels = _decibels(images, truth)
    if not decibels:
        return {}
    area, paper = (_decibels(truths[name], truth) for name in ("area", "paper"))
    differences = (np.abs(images[name].astype(np.int16) - truth[name]) for name in decibels)
    result: dict[str, Any] = {
        "n_compared": len(decibels),
        "psnr_db": median([*decibels.values()]),
        "psnr_db_p5": quantile([*decibels.values()], 0.05),
        "psnr_db_min": min(decibels.values()),
        "psnr_db_bicubic": median([*_decibels(images, truths["bicubic"]).values()]),
        "max_abs_diff": max(int(np.max(difference)) for difference in differences),
    }
    losses = [area[name] - decibels[name] for name in decibels if name in area]
    if losses:
        result["psnr_loss_vs_area_db"] = max(losses)
    gains = [decibels[name] - paper[name] for name in decibels if name in paper]
    if gains:
        result["psnr_gain_vs_paper_db"] = min(gains)
    return result


def _decibels(images: _Images, truth: _Images) -> dict[str, float]:
    """PSNR of the images that are in both."""
    return {name: psnr_db(images[name], truth[name]) for name in truth if name in images}


def _compare_vectors(
    model: ModelSpec, names: Sequence[str], *sides: tuple[Recipe, _Images]
) -> dict[str, float]:
    """The cosines of those images' vectors on two sides; nothing for random weights."""
    if model.weights != "pretrained" or not names:
        return {}
    vectors = (embed(model, recipe, [images[name] for name in names]) for recipe, images in sides)
    similarities = cosine(*vectors).tolist()
    return {"cosine": median(similarities), "cosine_min": min(similarities)}


def _truths(reference: Recipe, model: ModelSpec, manifest: Manifest, failures: Failures) -> Truths:
    """Each image decoded in full by the reference recipe, once, and resized in four ways.

    An image that a resizer of `_OTHERS` refuses (OpenCV, for a side above 32,767) lacks that one.
    """
    stages = load_stages(reference, model, manifest)
    geometry = preprocess_of(reference, model.input_px)
    resize_truth = _resizing("truth", geometry, reference.resizer, geometry.interpolation)
    others = {name: _resizing(name, geometry, *how) for name, how in _OTHERS.items()}

    def resize_in_all_ways(item: Item) -> dict[str, PixelArray]:
        pixels = stages.decode(item, stages.read(item))
        pictures = {"truth": resize_truth(pixels)}
        for name, resize_picture in others.items():
            with suppress(ImageError):
                pictures[name] = resize_picture(pixels)
        return pictures

    with ThreadPoolExecutor(min(_THREADS, len(os.sched_getaffinity(0)))) as pool:
        made = of_each(manifest.valid, failures, resize_in_all_ways, pool.map)
    return {
        kind: {name: pictures[kind] for name, pictures in made.items() if kind in pictures}
        for kind in ("truth", *_OTHERS)
    }


def resize_whole(
    pixels: PixelArray, preprocess: Preprocess, resizer: str, interpolation: str
) -> PixelArray:
    """All of an image resized, then cut out or padded with black: no window, no reduced scale.

    Args:
        pixels: decoded in full and upright, uint8 (h, w, 3).
        preprocess: only its sizes matter.
        interpolation: of the resizer, in the place of that of `preprocess`.

    Returns:
        uint8 (*preprocess.canvas, 3).

    Raises ImageError: the resizer refuses the image.
    """
    rows, columns = preprocess.resized(*pixels.shape[:2])
    resized = resize.make(resizer, interpolation, (rows, columns)).resize(pixels)
    height, width = preprocess.canvas
    top, left = (rows - height) // 2, (columns - width) // 2
    window = Image.fromarray(resized).crop((left, top, left + width, top + height))
    return np.asarray(window)


def _resizing(
    name: str, geometry: Preprocess, resizer: str, interpolation: str
) -> Callable[[PixelArray], PixelArray]:
    """`resize_whole` in this way; an error names it."""
    resize_picture = partial(
        resize_whole, preprocess=geometry, resizer=resizer, interpolation=interpolation
    )
    return image_errors("resize", name, resize_picture)


def resized(
    recipe: Recipe, model: ModelSpec, manifest: Manifest, failures: Failures
) -> dict[str, PixelArray]:
    """The valid images as the recipe's decoder and resizer make them, serially, by id.

    An image that fails goes to `failures` instead.
    """
    stages = load_stages(recipe, model, manifest)
    return of_each(manifest.valid, failures, stages.load_pixels)


@lru_cache(maxsize=2)
def _network(model: ModelSpec, dtype: str, device: str, runtime: str) -> Network:
    recipe = Recipe("", dtype=dtype, device=device, runtime=runtime, batch_size=32)
    cache = Path(tempfile.gettempdir()) / "wallclock-onnx"
    return runtimes.make(model, recipe, None, cache=cache)


def embed(model: ModelSpec, recipe: Recipe, images: Sequence[PixelArray]) -> Any:
    """Images of one size to vectors, float32 (n, dim), in the recipe's precision.

    Normalized on the host, one batch after the other; only the mock model takes pixels as they are
    where the recipe leaves normalization to the device. Raises FloatingPointError: a vector is not
    finite.
    """
    is_mock = model.weights == "none"
    move = transfer.make("null" if is_mock else recipe.device)
    network = _network(model, recipe.dtype, recipe.device, recipe.runtime)
    prepare: Callable[[PixelArray], Any] = normalize.make(*model.statistics)
    if is_mock and recipe.normalize_on == "device":
        prepare = np.asarray
    batches = []
    size = recipe.batch_size
    for start in range(0, len(images), size):
        batch = [prepare(image) for image in images[start : start + size]]
        batches.append(move.d2h(network.run(move.h2d(np.stack(batch)))))
    vectors = np.concatenate(batches).astype(np.float32)
    if not math.isfinite(float(np.abs(vectors).max())):
        raise FloatingPointError("the model returned vectors that are not finite")
    return vectors
