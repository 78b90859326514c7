"""What decoding and resizing one image takes: data/benchmarks/decode.csv, with its provenance.

Part `decode`: generated images in memory, encoded again by process and sampling, to the loader's
scales. Those of 12 megapixels are enlarged ones, with noise. Of a folder's photos those of
4:4:4 are taken as they are. `simplejpeg` and `native` decode into buffers that are used again;
`over_native` is the ratio of their times, round by round. Where the native module was not compiled,
or leaves such files to simplejpeg, its row says so. PyTurboJPEG has the scales between.

Part `resize`: Pillow, torch, OpenCV and the native module from full size to 224 px, with the PSNR
against Pillow.

Each choice has a process of its own: beside another that keeps memory, simplejpeg decodes
progressive files in half the time, because glibc gives less back to the system. CPU time of its one
thread counts. The choices run in turn, round by round; a row has the milliseconds per image of the
median round, the fastest and the slowest.

    python -m benchmarks.decode [--folder DIR] [--rounds N] | --write DIR
"""

import argparse
import io
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
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
from harness.processes import gc_disabled, set_threads
from harness.spec import IMAGE_SETS, Recipe
from wallclock import native
from wallclock.jpeg import read_header
from wallclock.recipe import Limits
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

#: A new process is a copy of one that has only imported these.
_IMPORTED = ["benchmarks._common", "cv2", "simplejpeg", "torch", "turbojpeg"]
_PROCESSES = multiprocessing.get_context("forkserver")

_Run: TypeAlias = Callable[[Any], PixelArray]


class Choice(NamedTuple):
    """One way to do a part of the work; `reason`: why it is not to be had."""

    name: str
    make: Callable[[], _Run]
    reason: str = ""


class Work(NamedTuple):
    """The same files for several choices. `about`: process, sampling and scale of JPEGs."""

    part: str
    images: str
    files: Sequence[bytes]
    choices: Sequence[Choice]
    about: Sequence[str] = ("", "", "")

    @property
    def read(self) -> Callable[[Path], Any]:
        """What a choice takes of a file: its bytes, or the pixels to resize."""
        return Path.read_bytes if self.part == "decode" else _pixels


def main() -> None:
    """Measure, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="photos of your own, in addition")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", type=Path, help="write pictures there for `make frontier`")
    choices = parser.parse_args()
    if choices.write:
        write(choices.write)
        return
    _PROCESSES.set_forkserver_preload(_IMPORTED)
    works = (*decodes(), *photos(choices.folder), *scales_between(), *resizes())
    save("decode", [row for work in works for row in measure(work, choices.rounds)])


def decodes() -> Iterator[Work]:
    """The decoders, of every kind of generated file at every scale."""
    for images, (n, samplings, scales) in _SETS.items():
        pictures = [picture(images, index) for index in range(n)]
        for process, sampling in product(("baseline", "progressive"), samplings):
            files = [encode(*each, process, sampling) for each in pictures]
            yield from _by_scale(images, files, process, sampling, scales)


def photos(folder: Path | None) -> Iterator[Work]:
    """The same of a folder's JPEGs of 4:4:4."""
    files: dict[str, list[bytes]] = {"baseline": [], "progressive": []}
    for path in sorted(folder.glob("*.jp*g")) if folder else ():
        data = path.read_bytes()
        header = read_header(data, Limits())
        if header.sampling == "4:4:4":
            files[header.process].append(data)
    for process in filter(files.get, files):
        yield from _by_scale("folder", files[process], process, "4:4:4", _SCALES)


def _by_scale(
    images: str, files: Sequence[bytes], process: str, sampling: str, scales: Sequence[int]
) -> Iterator[Work]:
    for scale in scales:
        ours = partial(_decoder, "native", scale)
        choices = [
            Choice("simplejpeg", partial(_decoder, "simplejpeg", scale)),
            Choice("native", ours, _reason(ours(), files[0])),
        ]
        yield Work("decode", images, files, choices, (process, sampling, f"1/{scale}"))


def scales_between() -> Iterator[Work]:
    """Those that libjpeg-turbo has beside the loader's."""
    files = [render.render(0, "original", index) for index in range(8)]
    for eighths in _BETWEEN:
        choice = Choice("PyTurboJPEG", partial(_between, eighths))
        yield Work("decode", "original", files, [choice], ("baseline", "4:2:0", f"{eighths}/8"))


def _between(eighths: int) -> _Run:
    divisor = 2 if eighths == 6 else 1
    factor = (eighths // divisor, 8 // divisor)
    library = turbojpeg.TurboJPEG(libraries.find_libturbojpeg())
    return partial(library.decode, pixel_format=turbojpeg.TJPF_RGB, scaling_factor=factor)


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


def write(folder: Path) -> None:
    """Write JPEGs for `make frontier`: progressive originals, and 12-megapixel baseline ones."""
    kinds = (
        ("progressive-originals", "original", "progressive", 96),
        ("12-megapixel", "12 MP, quality 90", "baseline", 48),
    )
    for name, images, process, n in kinds:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(n):
            data = encode(*picture(images, index), process, "4:2:0")
            (folder / name / f"{index:03}.jpg").write_bytes(data)


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
    for images, n in (("original", 8), ("small_256", 64)):
        files = [render.render(0, images, index) for index in range(n)]
        names = ["pil bilinear", "torch bilinear", "opencv area", "opencv linear"]
        choices = [Choice(name, partial(_resizer, name)) for name in names]
        reason = "" if native.find() else native.described()
        choices.append(Choice("native bilinear", partial(_resizer, "native bilinear"), reason))
        yield Work("resize", images, files, choices)


def _resizer(name: str) -> _Run:
    resizer, interpolation = name.split()
    return resize.make(resizer, interpolation, PX).resize


def _pixels(path: Path) -> PixelArray:
    return decode.make("simplejpeg")(path.read_bytes())


@contextmanager
def _process(choice: Choice, work: Work, paths: Sequence[Path]) -> Iterator[Connection]:
    """A process that answers each `True` with the milliseconds of an image."""
    ours, theirs = _PROCESSES.Pipe()
    arguments = (theirs, choice.make, work.read, paths)
    process = _PROCESSES.Process(target=_time_rounds, args=arguments, daemon=True)
    process.start()
    theirs.close()  # or an end of that process goes unnoticed
    yield ours
    ours.send(False)
    process.join()


def _time_rounds(
    connection: Connection,
    make: Callable[[], _Run],
    read: Callable[[Path], Any],
    paths: Sequence[Path],
) -> None:
    set_threads(Recipe("decode", torch_threads=1), uses_torch=True)
    run, sources = make(), [read(path) for path in paths]
    with gc_disabled():
        while connection.recv():
            began = thread_time_ns()
            for source in sources:
                run(source)
            connection.send((thread_time_ns() - began) / 1e6 / len(sources))


def measure(work: Work, rounds: int) -> list[dict[str, object]]:
    """A row for each choice."""
    durations: list[list[float]] = [[] for _ in work.choices]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
        paths = [Path(folder) / str(number) for number in range(len(work.files))]
        for path, data in zip(paths, work.files, strict=True):
            path.write_bytes(data)
        running = [
            (times, processes.enter_context(_process(choice, work, paths)))
            for choice, times in zip(work.choices, durations, strict=True)
            if not choice.reason
        ]
        # The first round warms up.
        for number in range(rounds + 1):
            for times, process in running:
                process.send(True)
                taken = process.recv()
                if number:
                    times.append(taken)
        psnr_db = [_psnr_db(work, choice, paths) for choice in work.choices]
    cpu = provenance.machine()["cpu"]
    return [
        {
            "part": work.part,
            "images": work.images,
            "n_images": len(work.files),
            **dict(zip(("process", "sampling", "scale"), work.about, strict=True)),
            "choice": choice.name,
            "rounds": rounds,
            **spread("ms", times),
            **_over_native(choice, durations),
            "psnr_db": psnr,
            "cpu": cpu,
            "origin": "measured",
            "reason": choice.reason,
        }
        for choice, times, psnr in zip(work.choices, durations, psnr_db, strict=True)
    ]


def _over_native(choice: Choice, durations: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """Of simplejpeg; empty for others."""
    times, native_times = durations[0], durations[-1]
    ratios = [a / b for a, b in zip(times, native_times, strict=False)]
    return spread("over_native", ratios if choice.name == "simplejpeg" else [])


def _psnr_db(work: Work, choice: Choice, paths: Sequence[Path]) -> float | None:
    """Of the median image, against the first choice's."""
    if work.part != "resize" or choice is work.choices[0] or choice.reason:
        return None
    run, exact = choice.make(), work.choices[0].make()
    sources = map(work.read, paths)
    return float(np.median([psnr_db(run(source), exact(source)) for source in sources]))


if __name__ == "__main__":
    main()
