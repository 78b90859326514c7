"""Protocol `formats`: the same pictures in files of several formats, read by one decoder.

The corpus's pictures are decoded and encoded anew, once, into a folder beside its manifest. Three
rows and columns are cut off before: on its own 8 × 8 grid, a JPEG would become its own copy.
"""

import io
import math
import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import PIL
from PIL import Image

from harness.corpora import readers
from harness.corpora.manifest import Item, failure_rows
from harness.digests import digest_of
from harness.measures import median, psnr_db
from harness.processes import gc_disabled, set_threads
from harness.protocols import protocol
from harness.protocols.protocol import Measurement, Progress
from harness.spec import Cell
from wallclock.errors import ImageError, image_errors
from wallclock.fetch.sources import Reader
from wallclock.files import write_bytes
from wallclock.preprocess import denominator_for
from wallclock.stages import decode
from wallclock.stages.decode import PixelArray

#: Name → Pillow's format and options. AVIF by one thread, so that files do not depend on the cores.
ENCODINGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "jpeg_baseline": ("JPEG", {"subsampling": "4:2:0"}),
    "jpeg_progressive": ("JPEG", {"subsampling": "4:2:0", "progressive": True}),
    "jpeg_444": ("JPEG", {"subsampling": "4:4:4"}),
    "png": ("PNG", {}),
    "webp_lossy": ("WEBP", {}),
    "webp_lossless": ("WEBP", {"lossless": True}),
    "avif": ("AVIF", {"max_threads": 1, "speed": 8}),
}
#: Pictures decoded before the timer runs: a library's first calls load and allocate.
_WARM_UP = 2
#: Rows and columns that are cut off before a picture is encoded anew.
_CROP_PX = 3


class _File(NamedTuple):
    """One picture in one encoding; PSNR of what Pillow decodes from it; the scale to decode at."""

    path: Path
    kb: float
    psnr_db: float
    scale: int


def formats(cell: Cell, work: Path, progress: Progress) -> Measurement:
    """Decode each file from memory, picture by picture.

    `params.encodings`: names of `ENCODINGS`, with a quality behind a hyphen. Samples: ns a file, by
    encoding. Values by encoding: `kb` and `psnr_db`, medians; `unavailable`, why there is no time.
    """
    recipe = cell.recipe
    threads = set_threads(recipe, uses_torch=False)
    Image.init()
    if "AVIF" in Image.SAVE:
        from PIL import AvifImagePlugin

        # Of all formats, Pillow would decode this one with a thread a core.
        AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    scaled = recipe.dct_scale == "auto"
    side = cell.model.input_px * recipe.dct_margin if scaled else math.inf
    decoder = decode.make(recipe.decoder, scales=scaled)
    manifest = protocol.open_corpus(cell)
    unavailable: dict[str, str] = {}
    for key in cell.params["encodings"]:
        format, _ = ENCODINGS[key.partition("-")[0]]
        if format not in Image.SAVE:
            unavailable[key] = f"Pillow {PIL.__version__} is built without {format}"
    encodings = [key for key in cell.params["encodings"] if key not in unavailable]
    version = digest_of([PIL.__version__, ENCODINGS])[:12]
    folder = Path(cell.images.manifest).parent / f"formats-{version}"
    encode = partial(_encode, folder, encodings, readers.make(manifest), side)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = dict(zip(manifest.valid, pool.map(encode, manifest.valid), strict=True))
    pictures = {item.id: files for item, files in made.items() if isinstance(files, dict)}
    failed = [item.with_failure(e) for item, e in made.items() if isinstance(e, ImageError)]
    failures = failure_rows((*manifest.items, *failed))
    if not pictures:
        raise protocol.all_failed(failures)
    values: dict[str, Any] = threads | manifest.size_stats()
    values["n_images"] = len(pictures)
    for name in ("kb", "psnr_db"):
        of_each = {k: [getattr(files[k], name) for files in pictures.values()] for k in encodings}
        values[name] = {key: median(numbers) for key, numbers in of_each.items()}
    samples: dict[str, Any] = {}
    for key in encodings:
        try:
            for files in [*pictures.values()][:_WARM_UP]:
                decoder(files[key].path.read_bytes(), files[key].scale)
            samples[key] = array("q")
        except ImageError as error:
            unavailable[key] = f"{recipe.decoder}: {error.reason}"
    _time(decoder, pictures, samples, progress)
    values["unavailable"] = unavailable
    return Measurement(samples, values, failures)


def _time(
    decoder: decode.Decode,
    pictures: Mapping[str, Any],
    samples: Mapping[str, Any],
    progress: Progress,
) -> None:
    keys = [*samples]
    with gc_disabled():
        for done, (name, files) in enumerate(pictures.items(), 1):
            sizes = set()
            turn = done % max(1, len(keys))
            # Each picture begins with another file, so that none always follows the same one.
            for key in keys[turn:] + keys[:turn]:
                data = files[key].path.read_bytes()
                began = perf_counter_ns()
                pixels = decoder(data, files[key].scale)
                samples[key].append(perf_counter_ns() - began)
                sizes.add(pixels.shape)
            if len(sizes) > 1:
                raise ValueError(f"{name} has several sizes: {sizes}")
            progress(done)


def _encode(
    folder: Path, encodings: Sequence[str], read: Reader, side: float, item: Item
) -> dict[str, _File] | ImageError:
    """The picture's files, of which those that are missing are written; or what went wrong."""
    decoder = decode.make("pil")
    pixels = None
    files = {}
    width, height = item.width - _CROP_PX, item.height - _CROP_PX
    scale = denominator_for(height, width, side, side)
    try:
        for key in encodings:
            path = folder / f"{item.sha256}-{key}"
            psnr = path.with_name(path.name + ".psnr_db")
            # Written last: with it, both are complete.
            if not psnr.exists():
                if pixels is None:
                    pixels = np.ascontiguousarray(decoder(read(item))[_CROP_PX:, _CROP_PX:])
                data = _file(pixels, key)
                write_bytes(path, data, sync=False)
                decibels = psnr_db(decoder(data), pixels)
                write_bytes(psnr, str(decibels).encode(), sync=False)
            files[key] = _File(path, path.stat().st_size / 1e3, float(psnr.read_text()), scale)
    except ImageError as error:
        return error
    return files


def _file(pixels: PixelArray, key: str) -> bytes:
    name, _, quality = key.partition("-")
    file = io.BytesIO()
    format, encoding = ENCODINGS[name]
    options = dict(encoding)
    if quality:
        options["quality"] = int(quality)
    save: Callable[..., None] = image_errors("encode", "Pillow", Image.fromarray(pixels).save)
    save(file, format, **options)
    return file.getvalue()
