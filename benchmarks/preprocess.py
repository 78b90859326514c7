"""What a model's own geometry costs beside squashing: data/preprocess.csv, with its provenance.

The loader in this process, threads as `open_images` has them, files in the page cache. In each
round every geometry takes one pass over the images, in turn and backwards in turn. A row is a
geometry on one set of images: images per second (median of the rounds), their ratio to `squash` in
the same round (median, least, greatest), and PSNR against Pillow decoding in full and doing the
same steps.

    python -m benchmarks.preprocess [--folder DIR] [--n N] [--rounds N] [--seconds S]
"""

import argparse
import io
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from benchmarks.fast import SEED, save
from harness.corpora import render
from harness.measures import psnr_db
from harness.protocols.fidelity import resize_whole
from wallclock import Preprocess, open_images
from wallclock.clock import gc_disabled
from wallclock.summary import median, quantile

SQUASH = "squash"
#: The paper's squash; DINOv2's processor; CLIP's; DINOv2's with a softer filter.
GEOMETRIES = (
    SQUASH,
    "shortest:256,crop:224x224,bicubic,rotate",
    "shortest:224,crop:224x224,bicubic,rotate",
    "shortest:256,crop:224x224,bilinear,rotate",
)
LEAST_DB = 40.0
TIMED = ("wallclock.loader", "wallclock.stages", "wallclock.preprocess", "wallclock.orientation")


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="photos of your own, in addition")
    parser.add_argument("--n", type=int, default=100, help="synthetic images of each set")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a pass, at least")
    choices = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as work:
        for name, paths in image_sets(choices, Path(work)):
            rates = _rates(paths, choices.rounds, choices.seconds)
            rows += [_row(name, geometry, paths, rates) for geometry in GEOMETRIES]
    save("preprocess", rows, TIMED)


def image_sets(choices: argparse.Namespace, work: Path) -> Iterator[tuple[str, list[Path]]]:
    """Names, and the paths of their images."""
    for kind in ("original", "small_256"):
        paths = []
        for index in range(choices.n):
            path = work / f"{kind}-{index:04}.jpg"
            path.write_bytes(render.render(SEED, kind, index))
            paths.append(path)
        yield f"synthetic {kind}", paths
    if choices.folder:
        yield "folder", sorted(choices.folder.glob("*.jp*g"))


def _rates(paths: Sequence[Path], rounds: int, seconds: float) -> Mapping[str, list[float]]:
    """Images per second of each geometry, by round."""
    epochs = max(1, round(seconds / _pass(paths, SQUASH, 1)[1]))
    rates: dict[str, list[float]] = {geometry: [] for geometry in GEOMETRIES}
    with gc_disabled():
        for number in range(rounds):
            for geometry in GEOMETRIES if number % 2 else reversed(GEOMETRIES):
                n, took_s = _pass(paths, geometry, epochs)
                rates[geometry].append(n / took_s)
    return rates


def _pass(paths: Sequence[Path], geometry: str, epochs: int) -> tuple[int, float]:
    """Images and seconds of so many epochs, from the first batch on."""
    n, began = 0, 0.0
    with open_images(paths, batch=32, preprocess=geometry, epochs=epochs) as batches:
        for batch in batches:
            if began:
                n += len(batch.ids)
            else:
                began = perf_counter()
    return n, perf_counter() - began


def _row(
    name: str, geometry: str, paths: Sequence[Path], rates: Mapping[str, list[float]]
) -> dict[str, object]:
    pairs = zip(rates[geometry], rates[SQUASH], strict=True)
    ratios = [ours / squash for ours, squash in pairs]
    decibels = _decibels(paths, geometry)
    return {
        "images": name,
        "preprocess": geometry,
        "n_images": len(paths),
        "rounds": len(ratios),
        "img_per_s": median(rates[geometry]),
        "vs_squash": median(ratios),
        "vs_squash_min": min(ratios),
        "vs_squash_max": max(ratios),
        "psnr_db": median(decibels),
        "psnr_db_p5": quantile(decibels, 0.05),
        "psnr_db_min": min(decibels),
        "gate": "passed" if min(decibels) >= LEAST_DB else "failed",
        "origin": "measured",
    }


def _decibels(paths: Sequence[Path], geometry: str) -> list[float]:
    preprocess = Preprocess.parse(geometry, 224)
    decibels = []
    with open_images(paths, batch=32, preprocess=geometry) as batches:
        for batch in batches:
            for position, pixels in zip(batch.positions, batch.images, strict=True):
                truth = _by_pillow(paths[position].read_bytes(), preprocess)
                decibels.append(min(psnr_db(pixels, truth), 99.0))
    return decibels


def _by_pillow(data: bytes, preprocess: Preprocess) -> npt.NDArray[np.uint8]:
    """Decoded in full, resized whole, then cut."""
    stored = Image.open(io.BytesIO(data))
    image = (ImageOps.exif_transpose(stored) if preprocess.rotate else stored).convert("RGB")
    return resize_whole(np.asarray(image), preprocess, "pil", preprocess.interpolation)


if __name__ == "__main__":
    main()
