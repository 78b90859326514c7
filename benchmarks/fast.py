"""What `recipe=fast` was chosen from: two tables under data/, each with its provenance.

`margin` → dct-margin.csv: how far may decode scale an image down before its pixels suffer? For each
margin, every image is decoded to the smallest scale at or above margin × 224 px and resized as
`recipe=fast` does; its PSNR against Pillow's antialiased resize is compared with that of full
decode + INTER_AREA and of the paper's recipe on the same image. A scaled image rarely fills its
last row and column: `squeezed_loss_db` is the loss of resizing those as if it did, on the images
where it does not. Nothing is timed.

`parts` → fast-parts.csv: scales, bindings, shortcuts, resizers, and (`buffer`) where the rows begin
that the decoder writes and the resizer reads. Every choice gets the same seeded images in memory,
on one thread, alternately, round by round; a row is the median round's milliseconds per image.
Where a choice changes pixels, the row has the PSNR against the choice that does not.

    python -m benchmarks.fast margin [--n N] [--folder DIR]
    python -m benchmarks.fast parts [--rounds N]
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import simplejpeg
import turbojpeg

from harness import native, provenance
from harness.corpora import render
from harness.measures import psnr_db
from paper.csvfile import write_table
from wallclock.clock import gc_disabled
from wallclock.errors import ImageError
from wallclock.files import pretty_json, write_text
from wallclock.machine import set_threads
from wallclock.recipe import Recipe
from wallclock.stages import decode, resize
from wallclock.stages.decode.decoder import Scaling
from wallclock.stages.pixels import PixelArray
from wallclock.summary import median

PX = 224
#: Of the synthetic originals: the gates' images are of seed 0, and must not be those tuned on.
SEED = 1
#: Bytes of a decoded image, at most.
_LARGEST = 1 << 26
MARGINS = (1.0, 1.1, 1.25, 1.5, 2.0, 2.5)
#: Image set → its images, the scales in eighths, the denominators at which shortcuts are timed.
_SETS = {"original": (8, (1, 2, 3, 4, 5, 6, 8), (1, 2, 4)), "small_256": (64, (8,), (1,))}

#: The code that the tables depend on.
TIMED = (
    "harness.corpora.render",
    "harness.decoders",
    "wallclock.errors",
    "wallclock.stages.decode",
    "wallclock.stages.resize",
)

#: When this process began to measure.
_STARTED = provenance.utc()

_Run = Callable[[Any], PixelArray]
_Row = dict[str, object]


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", choices=("margin", "parts"))
    parser.add_argument("--n", type=int, default=300, help="margin: synthetic originals")
    parser.add_argument("--folder", type=Path, help="margin: JPEGs of your own, in addition")
    parser.add_argument("--rounds", type=int, default=15, help="parts: how often each is timed")
    choices = parser.parse_args()
    if choices.table == "margin":
        name = "dct-margin"
        rows = _margin_rows("synthetic originals", range(choices.n))
        if choices.folder:
            rows += _margin_rows("folder", sorted(choices.folder.rglob("*.jp*g")))
    else:
        set_threads(Recipe("parts", torch_threads=1), uses_torch=True)
        alternatives = [choice for images in _SETS for choice in _choices(images)]
        name = "fast-parts"
        rows = _part_rows(alternatives, choices.rounds)
    save(name, rows, TIMED)


def save(
    name: str,
    rows: Sequence[_Row],
    timed: tuple[str, ...],
    samples: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Write data/<name>.csv and its provenance, and print the rows.

    Args:
        name: of the table.
        rows: of which all have the first one's columns.
        timed: the modules and packages that the rows depend on.
        samples: every value that the rows were computed from, by what it is of; written to
            data/<name>.samples.json.
    """
    data = provenance.ROOT / "data"
    write_table(data / f"{name}.csv", tuple(rows[0]), rows)
    git = provenance.git_state()
    about = {
        "command": sys.argv[1:],
        "commits": [git["commit"]] if git else [],
        "modified": bool(git.get("modified")),
        "measured": [_STARTED, provenance.utc()],
        **provenance.identity(timed),
    }
    write_text(data / f"{name}.meta.json", pretty_json(about))
    if samples is not None:
        lists = {key: [float(f"{value:.6g}") for value in samples[key]] for key in samples}
        write_text(data / f"{name}.samples.json", pretty_json(lists))
    for row in rows:
        cells = (f"{value:.4g}" if isinstance(value, float) else value for value in row.values())
        print(*cells, sep="  ")


def _margin_rows(name: str, sources: Iterable[int | Path]) -> list[_Row]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(_decibels, sources, chunksize=4)
        table = np.array([decibels for decibels in results if decibels])
    area, paper, exact, squeezed = np.split(table, (1, 2, 2 + len(MARGINS)), axis=1)
    rows: list[_Row] = []
    for margin, ours, without_extent in zip(MARGINS, exact.T, squeezed.T, strict=True):
        loss = (ours - without_extent)[ours != without_extent]
        rows.append(
            {
                "images": name,
                "n_images": len(table),
                "dct_margin": margin,
                "psnr_db": float(np.median(ours)),
                "psnr_db_min": float(ours.min()),
                "n_below_area_by_1_db": int((ours < area[:, 0] - 1).sum()),
                "n_below_paper": int((ours < paper[:, 0]).sum()),
                "area_psnr_db": float(np.median(area)),
                "paper_psnr_db": float(np.median(paper)),
                "n_squeezed": loss.size,
                "squeezed_loss_db": float(np.median(loss)) if loss.size else None,
                "squeezed_loss_db_max": float(loss.max()) if loss.size else None,
                "origin": "measured",
            }
        )
    return rows


def _decibels(source: int | Path) -> list[float]:
    """PSNR of area, of the paper's recipe, of the margins, and of them squeezed; or nothing.

    An empty list: the image does not decode.
    """
    if isinstance(source, int):
        data = render.render(SEED, "original", source, 0.0)
    else:
        data = source.read_bytes()
    try:
        full = decode.make("simplejpeg")(data)
    except ImageError:
        return []
    truth = resize.make("pil", "bilinear", PX).resize(full)
    opencv = [resize.make("opencv", name, PX).resize(full) for name in ("area", "linear")]
    ours = resize.make("torch", "bilinear", PX)
    size = (full.shape[0], full.shape[1])
    scales = [Scaling(PX, margin).denominator(size[1], size[0]) for margin in MARGINS]
    scaled = [decode.make("simplejpeg", scales=True)(data, scale) for scale in scales]
    exact = [ours.resize(pixels, size) for pixels in scaled]
    squeezed = [ours.resize(pixels) for pixels in scaled]
    return [psnr_db(pixels, truth) for pixels in (*opencv, *exact, *squeezed)]


class _Choice(NamedTuple):
    """One way to do a part of the work. `exact`: the one that its pixels are compared with."""

    part: str
    images: str
    name: str
    run: _Run
    sources: Sequence[Any]
    exact: _Run | None = None


def _choices(images: str) -> Iterator[_Choice]:
    n_images, eighths_of, denominators = _SETS[images]
    files = [render.render(0, images, index, 0.0) for index in range(n_images)]
    library = turbojpeg.TurboJPEG(native.find_libturbojpeg())
    full = decode.make("simplejpeg")
    pillow = resize.make("pil", "bilinear", PX).resize
    for eighths in eighths_of:
        yield _Choice("scale", images, f"{eighths}/8", _scaled(library, eighths), files)
    reused = decode.make("simplejpeg", reuse=True)
    yield _Choice("binding", images, "simplejpeg", full, files)
    yield _Choice("binding", images, "simplejpeg, a buffer used again", reused, files)
    yield _Choice("binding", images, "PyTurboJPEG", decode.make("turbojpeg"), files)
    for n in denominators:
        exact, fast = _shortcut(n), _shortcut(n, fastdct=True)
        both = _shortcut(n, fastdct=True, fastupsample=True)
        yield _Choice("shortcut", images, f"1/{n}, none", exact, files)
        yield _Choice("shortcut", images, f"1/{n}, fast DCT", fast, files, exact)
        yield _Choice("shortcut", images, f"1/{n}, fast DCT and upsampling", both, files, exact)
    for name, first in (("a multiple of 32", 0), ("an odd address", 1)):
        yield _Choice("buffer", images, f"rows at {name}", _through(first), files)
    decoded = [full(data) for data in files]
    yield _Choice("resize", images, "pil bilinear", pillow, decoded)
    for name in ("torch bilinear", "opencv area", "opencv linear"):
        resizer, interpolation = name.split()
        run = resize.make(resizer, interpolation, PX).resize
        yield _Choice("resize", images, name, run, decoded, pillow)


def _scaled(library: Any, eighths: int) -> _Run:
    divisor = next(n for n in (8, 4, 2, 1) if eighths % n == 0)
    factor = None if eighths == 8 else (eighths // divisor, 8 // divisor)
    return lambda data: library.decode(data, turbojpeg.TJPF_RGB, factor)


def _shortcut(n: int, **flags: bool) -> _Run:
    def run(data: bytes) -> PixelArray:
        height, width = simplejpeg.decode_jpeg_header(data)[:2]
        least = {} if n == 1 else {"min_height": -(-height // n), "min_width": -(-width // n)}
        pixels: PixelArray = simplejpeg.decode_jpeg(data, "RGB", **flags, **least)
        return pixels

    return run


def _through(first: int) -> _Run:
    """Decode and resize as `recipe=fast` does, through a buffer `first` bytes behind a multiple."""
    memory = np.empty(_LARGEST + 32, np.uint8)
    start = (first - memory.ctypes.data) % 32
    buffer = memory[start : start + _LARGEST]
    resizer = resize.make("torch", "bilinear", PX)
    scaling = Scaling(PX, Recipe("parts").dct_margin)

    def run(data: bytes) -> PixelArray:
        size = simplejpeg.decode_jpeg_header(data)[:2]
        n = scaling.denominator(size[1], size[0])
        least = {} if n == 1 else {"min_height": -(-size[0] // n), "min_width": -(-size[1] // n)}
        pixels = simplejpeg.decode_jpeg(data, "RGB", buffer=buffer, **least)
        return resizer.resize(pixels, (size[0], size[1]))

    return run


def _part_rows(choices: Sequence[_Choice], rounds: int) -> list[_Row]:
    durations: list[list[float]] = [[] for _ in choices]
    with gc_disabled():
        # The first round warms up.
        for number in range(rounds + 1):
            for choice, times in zip(choices, durations, strict=True):
                began = perf_counter_ns()
                for source in choice.sources:
                    choice.run(source)
                if number:
                    times.append((perf_counter_ns() - began) / 1e6 / len(choice.sources))
    cpu = provenance.machine()["cpu"]
    return [
        {
            "part": choice.part,
            "images": choice.images,
            "n_images": len(choice.sources),
            "choice": choice.name,
            "rounds": rounds,
            "ms": median(times),
            "ms_min": min(times),
            "ms_max": max(times),
            "psnr_db": _loss(choice),
            "cpu": cpu,
            "origin": "measured",
        }
        for choice, times in zip(choices, durations, strict=True)
    ]


def _loss(choice: _Choice) -> float | None:
    if choice.exact is None:
        return None
    pairs = ((choice.run(source), choice.exact(source)) for source in choice.sources)
    return float(np.median([psnr_db(*pair) for pair in pairs]))


if __name__ == "__main__":
    main()
