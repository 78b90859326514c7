"""What decoding and resizing one image takes: data/benchmarks/decode.csv, with its provenance.

Part `decode`: generated images in memory, encoded again by process and sampling, to the scales that
the loader takes. Those of 12 megapixels are enlarged ones, with noise. `simplejpeg` and `native`
decode into buffers that are used again; `over_native` is the ratio of their times, round by round.
Where the native module was not compiled, or leaves such files to simplejpeg, its row says so.
PyTurboJPEG has the scales between.

Part `resize`: Pillow, torch, OpenCV and the native module from full size to 224 px, with the PSNR
against Pillow.

One thread does all of it, and its CPU time counts. The choices run in turn, round by round; a row
has the milliseconds per image of the median round, the fastest and the slowest.

    python -m benchmarks.decode [--rounds N]
"""

import argparse
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from time import thread_time_ns
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import turbojpeg
from PIL import Image

from benchmarks._common import PX, save, spread
from harness import native as libraries
from harness import provenance
from harness.corpora import render
from harness.measures import psnr_db
from harness.processes import gc_disabled
from harness.spec import IMAGE_SETS
from wallclock import native
from wallclock.machine import set_threads
from wallclock.recipe import Recipe
from wallclock.stages import decode, resize
from wallclock.stages.decode.native import fallbacks
from wallclock.stages.pixels import PixelArray

#: Pillow's number of a chroma subsampling.
_SAMPLINGS = {"4:2:0": 2, "4:2:2": 1, "4:4:4": 0, "gray": None}
_SCALES = (1, 2, 4, 8)
#: Image set → how many images, their samplings, and the denominators of their scales.
_SETS = {
    "original": (8, tuple(_SAMPLINGS), _SCALES),
    "small_256": (64, ("4:2:0", "4:4:4"), (1,)),
    "12 MP, quality 90": (2, ("4:2:0",), _SCALES),
    "12 MP, quality 95": (2, ("4:2:0",), _SCALES),
}
_LARGE, _NOISE = (4000, 3000), 12
#: In eighths, of baseline originals.
_BETWEEN = (3, 5, 6)

_Run: TypeAlias = Callable[[Any], PixelArray]


class Choice(NamedTuple):
    """One way to do a part of the work; `reason`: why it is not to be had."""

    name: str
    run: _Run
    reason: str = ""


class Work(NamedTuple):
    """The same images for several choices. `about`: process, sampling and scale of JPEGs."""

    part: str
    images: str
    sources: Sequence[Any]
    choices: Sequence[Choice]
    about: Sequence[str] = ("", "", "")


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    set_threads(Recipe("decode", torch_threads=1), uses_torch=True)
    save("decode", [row for work in (*decodes(), *resizes()) for row in measure(work, rounds)])


def decodes() -> Iterator[Work]:
    """The decoders, of every kind of file at every scale."""
    library = turbojpeg.TurboJPEG(libraries.find_libturbojpeg())
    for images, (n, samplings, scales) in _SETS.items():
        pictures = [picture(images, index) for index in range(n)]
        for process, sampling in product(("baseline", "progressive"), samplings):
            files = [encode(*each, process, sampling) for each in pictures]
            for scale in scales:
                run = _decoder("native", scale)
                choices = [
                    Choice("simplejpeg", _decoder("simplejpeg", scale)),
                    Choice("native", run, _reason(run, files[0])),
                ]
                yield Work("decode", images, files, choices, (process, sampling, f"1/{scale}"))
    files = [render.render(0, "original", index) for index in range(8)]
    for eighths in _BETWEEN:
        divisor = 2 if eighths == 6 else 1
        factor = (eighths // divisor, 8 // divisor)
        run = partial(library.decode, pixel_format=turbojpeg.TJPF_RGB, scaling_factor=factor)
        about = ("baseline", "4:2:0", f"{eighths}/8")
        yield Work("decode", "original", files, [Choice("PyTurboJPEG", run)], about)


def picture(images: str, index: int) -> tuple[Image.Image, int]:
    """A generated picture, and the quality to encode it with."""
    if images in IMAGE_SETS:
        return Image.open(io.BytesIO(render.render(0, images, index))).convert("RGB"), 85
    original = Image.open(io.BytesIO(render.render(0, "original", index))).convert("RGB")
    enlarged = np.asarray(original.resize(_LARGE, Image.Resampling.BICUBIC), np.int16)
    noise = np.random.default_rng(index).integers(-_NOISE, _NOISE + 1, enlarged.shape, np.int16)
    noisy = (enlarged + noise).clip(0, 255).astype(np.uint8)
    return Image.fromarray(noisy), int(images.rpartition(" ")[2])


def encode(image: Image.Image, quality: int, process: str, sampling: str) -> bytes:
    """As a JPEG of this kind."""
    file, options = io.BytesIO(), {"progressive": process == "progressive", "quality": quality}
    subsampling = _SAMPLINGS[sampling]
    if subsampling is None:
        image.convert("L").save(file, "JPEG", **options)
    else:
        image.save(file, "JPEG", subsampling=subsampling, **options)
    return file.getvalue()


def _reason(run: _Run, data: bytes) -> str:
    """Why the native module does not decode this; empty: it does."""
    if native.find() is None:
        return native.described()
    before = fallbacks()
    run(data)
    return "falls back" if fallbacks() > before else ""


def _decoder(name: str, scale: int) -> _Run:
    return partial(decode.make(name, scales=True, reuse=True), scale=scale)


def resizes() -> Iterator[Work]:
    """The resizers, from full size."""
    full = decode.make("simplejpeg")
    for images, n in (("original", 8), ("small_256", 64)):
        decoded = [full(render.render(0, images, index)) for index in range(n)]
        names = ["pil bilinear", "torch bilinear", "opencv area", "opencv linear"]
        choices = [Choice(name, _resizer(name)) for name in names]
        reason = "" if native.find() else native.described()
        choices.append(Choice("native bilinear", _resizer("native bilinear"), reason))
        yield Work("resize", images, decoded, choices)


def _resizer(name: str) -> _Run:
    resizer, interpolation = name.split()
    return resize.make(resizer, interpolation, PX).resize


def measure(work: Work, rounds: int) -> list[dict[str, object]]:
    """A row for each choice."""
    durations: list[list[float]] = [[] for _ in work.choices]
    with gc_disabled():
        # The first round warms up.
        for number in range(rounds + 1):
            for choice, times in zip(work.choices, durations, strict=True):
                if choice.reason:
                    continue
                began = thread_time_ns()
                for source in work.sources:
                    choice.run(source)
                if number:
                    times.append((thread_time_ns() - began) / 1e6 / len(work.sources))
    cpu = provenance.machine()["cpu"]
    return [
        {
            "part": work.part,
            "images": work.images,
            "n_images": len(work.sources),
            **dict(zip(("process", "sampling", "scale"), work.about, strict=True)),
            "choice": choice.name,
            "rounds": rounds,
            **spread("ms", times),
            **_over_native(choice, durations),
            "psnr_db": _psnr_db(work, choice),
            "cpu": cpu,
            "origin": "measured",
            "reason": choice.reason,
        }
        for choice, times in zip(work.choices, durations, strict=True)
    ]


def _over_native(choice: Choice, durations: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """Of simplejpeg; empty for others."""
    times, native_times = durations[0], durations[-1]
    ratios = [a / b for a, b in zip(times, native_times, strict=False)]
    return spread("over_native", ratios if choice.name == "simplejpeg" else [])


def _psnr_db(work: Work, choice: Choice) -> float | None:
    """Of the median image, against the first choice's."""
    exact = work.choices[0].run
    if work.part != "resize" or choice is work.choices[0] or choice.reason:
        return None
    return float(np.median([psnr_db(choice.run(each), exact(each)) for each in work.sources]))


if __name__ == "__main__":
    main()
