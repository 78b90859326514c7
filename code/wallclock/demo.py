"""`wallclock demo`: how long a model as fast as a T4's waits for images on this machine.

The model is a pause as long as a T4 computes DINOv2-small: no GPU and no weights are needed.
"""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from torch import from_numpy
from torch.utils.data import DataLoader

from wallclock.errors import UserError
from wallclock.loader.images import open_images
from wallclock.machine import usable_cores
from wallclock.progress import format_rate
from wallclock.words import percent

#: The paper's rate of a T4 in FP32, as seconds an image.
MODEL_S = 1 / 264
N_IMAGES, BATCH, SIDE_PX = 100, 20, 224
#: Images → their width and height in pixels, and how often each is read.
SETS = {"thumbnails": ((256, 192), 5), "photos": ((2592, 1944), 1)}
PAGE = "wallclock-demo.html"
_MARKS, _WIDTH = {"decode": "░", "resize": "▒", "forward": "█"}, 32
_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>wallclock demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{css}</style>
<main><section><h1 class="verdict">{verdict}</h1>"""


class Bar(NamedTuple):
    """A pass: images per second, and the shares of its time, waits by what the model waited for."""

    title: str
    rate: float
    shares: dict[str, float]

    def __str__(self) -> str:
        drawn = "".join(mark * round(self.shares[name] * _WIDTH) for name, mark in _MARKS.items())
        return f"{self.title:<32}{drawn:<{_WIDTH + 2}}{format_rate(self.rate)}"


def demo() -> None:
    """Measure, print the bars, and write them as a page. Raises UserError: it cannot be written."""
    print(f"{N_IMAGES} generated photos; for a model, a pause of {MODEL_S * 1e3:.1f} ms an image\n")
    bars = []
    with TemporaryDirectory(prefix="wallclock-demo-") as folder:
        for name, (size, epochs) in SETS.items():
            paths = make_images(Path(folder, name), size) * epochs
            for run in (run_dataloader, run_wallclock):
                bars.append(run(name, paths))
                print(bars[-1])
    small, _, photos, ours = bars
    verdict = (
        f"The model works {percent(small.shares['forward'])} of the time on thumbnails and"
        f" {percent(photos.shares['forward'])} on photos; otherwise it waits for images.\n"
        f"With open_images, photos load {ours.rate / photos.rate:.1f} times as fast."
    )
    print(f"\n░ waits for decode, ▒ for resize, █ the model\n\n{verdict}")
    try:
        Path(PAGE).write_text(page_of(bars, verdict), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{PAGE}: {error.strerror}; change to a folder you can write to") from error
    print(f"As a page: {PAGE}. Your own program: wallclock trace script.py")


def make_images(folder: Path, size: tuple[int, int]) -> list[str]:
    """Write JPEGs of blurred colours with grain; their paths."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (N_IMAGES, 18, 24, 3), dtype=np.uint8)
    grain = rng.normal(0, 2, (size[1], size[0], 1)).astype(np.float32)

    def write(number: int) -> str:
        blurred = Image.fromarray(colours[number]).resize(size, Image.Resampling.BICUBIC)
        pixels = np.clip(np.asarray(blurred) + np.roll(grain, number, axis=1), 0, 255)
        path = str(folder / f"{number}.jpg")
        Image.fromarray(pixels.astype(np.uint8)).save(path, quality=80)
        return path

    with ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(write, range(N_IMAGES)))


def run_dataloader(name: str, paths: Any) -> Bar:
    """Torch's DataLoader with Pillow, in a worker for each core."""
    batches = DataLoader(paths, BATCH, num_workers=usable_cores(), collate_fn=_load)
    busy_s = np.zeros(2)

    def sizes() -> Iterable[int]:
        for images, seconds in batches:
            busy_s[:] += seconds
            yield len(images)

    return _run(f"{name}, DataLoader + Pillow", sizes(), busy_s)


def _load(paths: Sequence[str]) -> tuple[Any, Any]:
    """In a worker: images as uint8 (n, h, w, 3), and the seconds of decode and of resize."""
    seconds, rows = np.zeros(2), []
    for path in paths:
        times = [time.perf_counter()]
        decoded = Image.open(path).convert("RGB")
        times.append(time.perf_counter())
        rows.append(np.asarray(decoded.resize((SIDE_PX, SIDE_PX), Image.Resampling.BILINEAR)))
        seconds += np.diff([*times, time.perf_counter()])
    return from_numpy(np.stack(rows)), seconds


def run_wallclock(name: str, paths: list[str]) -> Bar:
    """`open_images`; its one wait, for decode and resize, counts as decode."""
    with open_images(paths, SIDE_PX, BATCH) as batches:
        sizes = (len(batch.ids) for batch in batches)
        return _run(f"{name}, open_images", sizes, np.array([1.0, 0.0]))


def _run(title: str, sizes: Iterable[int], busy_s: Any) -> Bar:
    """A pass of the model. `busy_s`: of decode and resize, by which its wait is divided."""
    began, model_s, n = time.perf_counter(), 0.0, 0
    for size in sizes:
        before = time.perf_counter()
        time.sleep(size * MODEL_S)
        model_s += time.perf_counter() - before
        n += size
    wall_s = time.perf_counter() - began
    decode, resize = (1 - model_s / wall_s) * busy_s / busy_s.sum()
    shares = {"decode": decode, "resize": resize, "forward": model_s / wall_s}
    return Bar(title, n / wall_s, shares)


def page_of(bars: Sequence[Bar], verdict: str) -> str:
    """The bars as a page of HTML."""
    styles = files("wallclock.trace")
    css = "".join(styles.joinpath(name).read_text("utf-8") for name in ("report.css", "trace.css"))
    page = _HEAD.format(css=css, verdict=verdict)
    for bar in bars:
        labels = parts = ""
        for name in _MARKS:
            labels += f' <i class="swatch stage-{name}"></i>{name} {percent(bar.shares[name])}'
            parts += f'<a class="stage-{name}" style="flex-grow:{bar.shares[name]}"></a>'
        page += f"<h3>{bar.title}: {format_rate(bar.rate)}</h3>{labels}"
        page += f'<div class="bar">{parts}</div>\n'
    return f"{page}</section></main></html>\n"
