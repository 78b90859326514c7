"""Loading for training, and a pool that an expert would write: data/benchmarks/training.csv.

Each image is a random resized crop of 224 px, flipped with probability 0.5, decoded at the scale
that the crop needs; as uint8 (h, w, 3), or as normalized float32 (3, h, w). `open_images` is
compared with a thread pool around simplejpeg and OpenCV's crop, resize and flip, with a task a
batch. OpenCV's linear resize does not antialias, which the loader's does. Files lie in the page
cache, and there are as many threads as cores. In each round every loader takes one pass, forwards
and backwards in turn; a pass is timed from its first batch on. A row has the images per second of
the median round, and `over_pool`, the ratio of the loader's to the pool's in the same round: the
median, the least and the greatest.

    python -m benchmarks.training [--folder DIR] [--n N] [--rounds N] [--seconds S]
"""

import math
import os
import random
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from threading import local
from typing import Any

import cv2
import numpy as np
import simplejpeg

from benchmarks._common import PX, arguments, image_sets, in_turn, save, spread
from benchmarks.loader import BATCH, Paths, opened, take_pass
from harness.measures import median
from wallclock import Augment, Output
from wallclock.preprocess import denominator_for
from wallclock.recipe import FAST, IMAGENET_MEAN, IMAGENET_STD

_SIDE, _CORES = PX * FAST.dct_margin, os.cpu_count() or 1
_STD = np.array(IMAGENET_STD, np.float32)[:, None, None]
_FACTOR, _OFFSET = 1 / (255 * _STD), np.array(IMAGENET_MEAN, np.float32)[:, None, None] / _STD


class Load:
    """What one thread does with an image. Arrays are used again."""

    def __init__(self, dtype: str) -> None:
        self._is_float = dtype == "float32"
        self._random = random.Random(0)
        self._decoded = np.empty(0, np.uint8)
        self._resized, self._pixels = np.empty((2, PX, PX, 3), np.uint8)
        self._planes = np.empty((3, PX, PX), np.uint8)

    def __call__(self, path: str, row: Any) -> None:
        """Write the image into its row."""
        with FileIO(path) as file:
            crop = self._crop(file.readall())
        pixels = self._pixels if self._is_float else row
        if self._random.random() < 0.5:
            cv2.flip(cv2.resize(crop, (PX, PX), dst=self._resized), 1, dst=pixels)
        else:
            cv2.resize(crop, (PX, PX), dst=pixels)
        if self._is_float:
            cv2.split(pixels, [*self._planes])
            np.multiply(self._planes, _FACTOR, out=row)
            np.subtract(row, _OFFSET, out=row)

    def _crop(self, data: bytes) -> Any:
        height, width = simplejpeg.decode_jpeg_header(data)[:2]
        left, top, w, h = self._draw(width, height)
        n = denominator_for(h, w, _SIDE, _SIDE)
        rows, columns = -(-height // n), -(-width // n)
        if self._decoded.size < rows * columns * 3:
            self._decoded = np.empty(rows * columns * 3, np.uint8)
        pixels = simplejpeg.decode_jpeg(
            data, min_height=rows, min_width=columns, buffer=self._decoded
        )
        first_row, first_column = top // n, left // n
        last_row, last_column = (top + h) // n, (left + w) // n
        return pixels[
            first_row : max(last_row, first_row + 1),
            first_column : max(last_column, first_column + 1),
        ]

    def _draw(self, width: int, height: int) -> tuple[int, int, int, int]:
        """A random resized crop, as torchvision draws it: left, top, width, height."""
        draw = self._random
        for _ in range(10):
            area = width * height * draw.uniform(0.08, 1)
            ratio = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                return draw.randint(0, width - w), draw.randint(0, height - h), w, h
        return 0, 0, width, height


def pool(paths: Paths, dtype: str) -> Iterator[Any]:
    """Batches of a thread pool; each batch is an array of its own."""
    cv2.setNumThreads(1)
    of_thread = local()
    shape = (3, PX, PX) if dtype == "float32" else (PX, PX, 3)

    def prepare() -> None:
        of_thread.load = Load(dtype)

    def fill(taken: Sequence[str], images: Any) -> Any:
        for path, row in zip(taken, images, strict=True):
            of_thread.load(path, row)
        return images

    with ThreadPoolExecutor(_CORES, initializer=prepare) as threads:
        begun: deque[Any] = deque()
        for first in range(0, len(paths), BATCH):
            taken = paths[first : first + BATCH]
            images = np.empty((len(taken), *shape), dtype)
            begun.append(threads.submit(fill, taken, images))
            if len(begun) > _CORES + 1:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def ours(paths: Paths, dtype: str) -> Iterator[Any]:
    """The same by `open_images`."""
    for batch in opened(paths, augment=Augment(jitter=0), output=Output(dtype)):
        yield batch.images


LOADERS: dict[str, Callable[[Paths, str], Iterator[Any]]] = {"open_images": ours, "pool": pool}
DTYPES = ("uint8", "float32")


def main() -> None:
    """Measure, write the table, print it."""
    choices = arguments(__doc__).parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as work:
        for images, paths in image_sets(choices, Path(work)):
            files = [str(path) for path in paths]
            for dtype in DTYPES:
                rates = measure(files, dtype, choices.rounds, choices.seconds)
                about: dict[str, object] = {"images": images, "n_images": len(files)}
                rows += [about | row for row in make_rows(dtype, rates)]
    save("training", rows)


def measure(paths: Paths, dtype: str, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Images per second of each loader, by round."""
    n, took_s = take_pass(lambda files: ours(files, dtype), [*paths] * 2)
    repeated = [*paths] * max(2, round(seconds * n / took_s / len(paths)))

    def rate(name: str) -> float:
        n, took_s = take_pass(lambda files: LOADERS[name](files, dtype), repeated)
        return n / took_s

    return in_turn(rate, LOADERS, rounds)


def make_rows(dtype: str, rates: dict[str, list[float]]) -> Iterator[dict[str, object]]:
    """A row for each loader."""
    for name, of in rates.items():
        ratios = [rate / base for rate, base in zip(of, rates["pool"], strict=True)]
        yield {
            "dtype": dtype,
            "loader": name,
            "rounds": len(of),
            "img_per_s": median(of),
            **spread("over_pool", ratios),
            "origin": "measured",
        }


if __name__ == "__main__":
    main()
