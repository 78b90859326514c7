"""Other formats than JPEG: data/benchmarks/formats.csv, with its provenance.

CPU time per image, to 224 px, of `open_images` and of the pool that an expert would write: threads,
a task a batch, a library's decoder, torch's antialiased resize into the batch. Files lie in the
page cache. `array` and `Pillow image` are pixels in memory; `resize alone` is the native module's
of arrays, in one thread. In each round every loader takes one pass, forwards and backwards in turn.
A pool whose library is not installed has no row.

    python -m benchmarks.formats [--n N] [--rounds N] [--seconds S]
"""

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image

from benchmarks._common import PX, arguments, in_turn, save, spread
from harness.corpora import render
from harness.engines.third_party.dataloader_scaled import resize_exactly
from harness.measures import psnr_db
from harness.peers import import_or_unavailable
from wallclock import open_images
from wallclock.errors import Unavailable
from wallclock.machine import usable_cores
from wallclock.stages import resize
from wallclock.stages.decode import PixelArray

BATCH = 32
FORMATS = ("PNG", "WebP", "TIFF", "BMP", "GIF", "AVIF")
SIZES = {"1,000 px": (1000, 750), "2,560 px": (2560, 1920)}
#: What open_images loads, and the passes over it, by name of a loader.
Items = Sequence[Any]
Loaders = Mapping[str, Callable[[Items], Iterator[PixelArray]]]
Decode = Callable[[bytes], PixelArray]


def by_opencv(data: bytes) -> PixelArray:
    """As it reads any format."""
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), flags), np.uint8)


def by_pillow(data: bytes) -> PixelArray:
    """As most programs do."""
    return np.array(Image.open(io.BytesIO(data)).convert("RGB"))


def by_imagecodecs() -> Decode:
    """PNG and WebP: https://github.com/cgohlke/imagecodecs#readme."""
    codecs = import_or_unavailable("imagecodecs")

    def decode(data: bytes) -> PixelArray:
        read = codecs.webp_decode if data[8:12] == b"WEBP" else codecs.png_decode
        return np.ascontiguousarray(read(data)[..., :3])

    return decode


def by_pyspng() -> Decode:
    """PNG: https://github.com/nurpax/pyspng#readme."""
    load = import_or_unavailable("pyspng").load
    return lambda data: np.ascontiguousarray(load(data)[..., :3])


#: The pools of some formats alone: name, what makes the decoder, formats.
SPECIAL = (("imagecodecs", by_imagecodecs, ("PNG", "WebP")), ("pyspng", by_pyspng, ("PNG",)))


def pooled(decode: Decode, paths: Items) -> Iterator[PixelArray]:
    """The batches of a pool with a task a batch."""
    into = resize_exactly("bilinear")

    def load(part: Items) -> PixelArray:
        images = np.empty((len(part), PX, PX, 3), np.uint8)
        for path, row in zip(part, images, strict=True):
            pixels = decode(Path(path).read_bytes())
            into(pixels, pixels.shape[:2], 1, row)
        return images

    with ThreadPoolExecutor(usable_cores()) as pool:
        yield from pool.map(load, list(_parts(paths)))


def opened(items: Items) -> Iterator[PixelArray]:
    """`open_images`."""
    with open_images(items, PX, BATCH) as batches:
        for batch in batches:
            yield batch.images


def resized(items: Items) -> Iterator[PixelArray]:
    """The resize alone, of pixels in memory, one thread."""
    resizer = resize.make("native", "bilinear", PX)
    for part in _parts(items):
        yield np.stack([resizer.resize(pixels) for pixels in part])


def _parts(items: Items) -> Iterator[Items]:
    for at in range(0, len(items), BATCH):
        yield items[at : at + BATCH]


def cpu_s(loaders: Loaders, items: Items, name: str) -> float:
    """CPU seconds of this process for a pass."""
    began = process_time()
    for _ in loaders[name](items):
        pass
    return process_time() - began


def loaders_of(format: str) -> Loaders:
    """All that read a format; the pool around Pillow has the pixels to compare with."""
    made: dict[str, Callable[[Items], Iterator[PixelArray]]] = {
        "open_images": opened,
        "pool, OpenCV": partial(pooled, by_opencv),
        "pool, Pillow": partial(pooled, by_pillow),
    }
    for name, make, formats in SPECIAL:
        if format in formats:
            try:
                made[f"pool, {name}"] = partial(pooled, make())
            except Unavailable as error:
                print(error)
    return made


def compare(
    images: str, items: Items, loaders: Loaders, exact: str, rounds: int, seconds: float
) -> Iterator[dict[str, object]]:
    """A row for each loader; `exact`: the one with the pixels to compare with."""
    made = {name: np.concatenate([*load(items)]) for name, load in loaders.items()}
    repeated = [*items] * max(1, round(seconds / max(cpu_s(loaders, items, "open_images"), 1e-3)))
    taken = in_turn(partial(cpu_s, loaders, repeated), loaders, rounds)
    for name, times in taken.items():
        ratios = [mine / ours for mine, ours in zip(times, taken["open_images"], strict=True)]
        yield {
            "images": images,
            "loader": name,
            "n_images": len(repeated),
            "rounds": rounds,
            **spread("cpu_us", [1e6 * each / len(repeated) for each in times]),
            **spread("over_open_images", ratios),
            "least_psnr_db": min(map(psnr_db, made[name], made[exact])),
        }


def rows(n: int, rounds: int, seconds: float) -> Iterator[dict[str, object]]:
    """Of every format and size, and of pixels in memory."""
    for size, format in product(SIZES, FORMATS):
        pictures = [render.picture(1, index, *SIZES[size]) for index in range(n)]
        with tempfile.TemporaryDirectory() as work:
            paths = [f"{work}/{index:04}.{format.lower()}" for index in range(n)]
            for path, picture in zip(paths, pictures, strict=True):
                picture.save(path, format)
            made = loaders_of(format)
            yield from compare(f"{format}, {size}", paths, made, "pool, Pillow", rounds, seconds)
    for size in SIZES:
        pictures = [render.picture(1, index, *SIZES[size]) for index in range(n)]
        arrays, made = [np.asarray(each) for each in pictures], {"open_images": opened}
        yield from compare(f"Pillow image, {size}", pictures, made, "open_images", rounds, seconds)
        made |= {"resize alone": resized}
        yield from compare(f"array, {size}", arrays, made, "resize alone", rounds, seconds)


def main() -> None:
    """Measure, write the table, and print it."""
    parser = arguments(__doc__)
    parser.set_defaults(n=32)
    choices = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    save("formats", [*rows(choices.n, choices.rounds, choices.seconds)])


if __name__ == "__main__":
    main()
