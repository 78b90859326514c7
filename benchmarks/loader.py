"""What each feature of the loader costs: data/benchmarks/loader.csv, with its provenance.

`open_images` over a list is 1. It is compared with the loader that reuses its batches, with items
that have labels, a stream of the same items, float32 normalized by the workers, grey, and a
transform that returns its input (of arrays, and with a generator). Beside them are DataLoaders with
as many workers as cores: Pillow (decoded in full), `wallclock.decode`, and the same libraries by
hand (simplejpeg at reduced scale, torch's antialiased resize). Each DataLoader copies a batch of
uint8 from shared memory. Files lie in the page cache. In each round every loader takes one pass,
forwards and backwards in turn; a pass is timed from its first batch on. A row has the images per
second (median of the rounds) and the ratio to `open_images` in the same round.

    python -m benchmarks.loader [--folder DIR] [--n N] [--rounds N] [--seconds S]
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import simplejpeg
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import wallclock
from benchmarks._common import PX, arguments, image_sets, in_turn, save, spread
from harness.measures import median
from wallclock import Augment, Output, open_images
from wallclock.fetch.sources import Source
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.loader.order import Order
from wallclock.preprocess import denominator_for
from wallclock.recipe import FAST
from wallclock.stages import decode

BATCH = 32
Paths = Sequence[str]


class Decoded(Dataset[Any]):
    """A DataLoader's dataset: one image per item, uint8 (h, w, 3)."""

    def __init__(self, paths: Paths, load: Callable[[str], Any]) -> None:
        self._paths, self._load = paths, load

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Any:
        return self._load(self._paths[index])


def by_pillow(path: str) -> Any:
    """As in most programs: decoded in full by Pillow."""
    image = Image.open(path).convert("RGB").resize((PX, PX), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image))


def by_wallclock(path: str) -> Any:
    """By `wallclock.decode`."""
    return torch.from_numpy(wallclock.decode(path, PX))


def by_hand(path: str) -> Any:
    """simplejpeg at the smallest scale that suffices, then torch's resize."""
    data = Path(path).read_bytes()
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    scale = denominator_for(height, width, _SIDE, _SIDE)
    pixels = _DECODE(data, scale, (width, height))
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(
        tensor, (PX, PX), mode="bilinear", antialias=True, align_corners=False
    )
    return resized[0].permute(1, 2, 0)


_SIDE, _DECODE = PX * FAST.dct_margin, decode.make("simplejpeg", scales=True)


def dataloader(load: Callable[[str], Any], paths: Paths) -> Iterable[Any]:
    """Worker processes, one per core."""
    return DataLoader(Decoded(paths, load), BATCH, num_workers=os.cpu_count() or 1)


def reused(paths: Paths) -> Iterator[Any]:
    """The loader of a job: a batch is overwritten once the next one is requested."""
    sources = [Source(path, path) for path in paths]
    batches = Order(len(paths), BATCH, False, 0, 0, 1, False).batches(0, -(-len(paths) // BATCH))
    with open_loader(sources, batches, LoaderOptions.of(PX)) as loader:
        yield from loader


def opened(items: Any, **options: Any) -> Iterator[Any]:
    """`open_images`."""
    with open_images(items, PX, BATCH, **options) as batches:
        yield from batches


def labelled(paths: Paths) -> Iterator[Any]:
    """Dicts with a label, which is read."""
    for batch in opened([{"image": path, "label": at} for at, path in enumerate(paths)]):
        assert len(batch.labels) == len(batch.ids)
        yield batch


def unchanged_with_rng(pixels: Any, rng: np.random.Generator) -> Any:
    """A transform that draws one random number."""
    rng.random()
    return pixels


UNCHANGED = Augment(transform=lambda pixels: pixels, random=False)
UNCHANGED_WITH_RNG = Augment(transform=unchanged_with_rng)
LOADERS: dict[str, Callable[[Paths], Iterable[Any]]] = {
    "open_images, a list": opened,
    "the same, batches reused": reused,
    "dicts with labels": labelled,
    "a stream of the same items": lambda paths: opened(iter(paths)),
    "float32, normalized by the workers": lambda paths: opened(paths, output=Output("float32")),
    "grey": lambda paths: opened(paths, output="L"),
    "a transform": lambda paths: opened(paths, augment=UNCHANGED),
    "a transform with a generator": lambda paths: opened(paths, augment=UNCHANGED_WITH_RNG),
    "DataLoader, Pillow": lambda paths: dataloader(by_pillow, paths),
    "DataLoader, wallclock.decode": lambda paths: dataloader(by_wallclock, paths),
    "DataLoader, the same libraries by hand": lambda paths: dataloader(by_hand, paths),
}
FIRST = next(iter(LOADERS))


def main() -> None:
    """Measure, write the table, print it."""
    choices = arguments(__doc__).parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as work:
        for name, paths in image_sets(choices, Path(work)):
            files = [str(path) for path in paths]
            rates = measure(files, choices.rounds, choices.seconds)
            rows += [make_row(name, loader, len(paths), rates) for loader in LOADERS]
    save("loader", rows)


def measure(paths: Paths, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Images per second of each loader, by round."""
    n, took_s = take_pass(LOADERS[FIRST], [*paths] * 2)
    repeated = [*paths] * max(2, round(seconds * n / took_s / len(paths)))

    def rate(name: str) -> float:
        n, took_s = take_pass(LOADERS[name], repeated)
        return n / took_s

    return in_turn(rate, LOADERS, rounds)


def take_pass(open_batches: Callable[[Any], Iterable[Any]], where: Any) -> tuple[int, float]:
    """Images and seconds, from the first batch on."""
    n, began = 0, 0.0
    for batch in open_batches(where):
        if began:
            n += len(getattr(batch, "ids", batch))
        else:
            began = perf_counter()
    return n, perf_counter() - began


def make_row(name: str, loader: str, n: int, rates: dict[str, list[float]]) -> dict[str, object]:
    """One row of the table."""
    pairs = zip(rates[loader], rates[FIRST], strict=True)
    ratios = [rate / first for rate, first in pairs]
    return {
        "images": name,
        "loader": loader,
        "n_images": n,
        "rounds": len(ratios),
        "img_per_s": median(rates[loader]),
        **spread("vs_open_images", ratios),
        "origin": "measured",
    }


if __name__ == "__main__":
    main()
