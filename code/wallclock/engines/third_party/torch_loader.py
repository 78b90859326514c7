"""DataLoader processes around one decoder each: Pillow, Pillow's draft mode, and those that imread-benchmark ranks.

As https://docs.pytorch.org/docs/stable/data.html describes a map-style dataset with its own batches:
one worker a core, two batches ahead each, workers kept. Workers ship uint8, a quarter of what a
recipe that normalizes in them ships, so this is the kinder form of each.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from wallclock.engines.third_party import Batch, Job, Peer, cycle, require, version

#: Bytes of a JPEG → uint8 (px, px, 3).
Load = Callable[[bytes], npt.NDArray[np.uint8]]
#: The side of the square → the function, made in the process that calls it.
Make = Callable[[int], Load]

_PREFETCH = 2


class Images:
    """A map-style dataset that answers a list of positions with one batch."""

    def __init__(self, job: Job, make: Make) -> None:
        self._job = job
        self._make = make
        self._load: Load | None = None

    def __len__(self) -> int:
        return len(self._job.files)

    def __getitems__(self, positions: Sequence[int]) -> tuple[list[int], Any]:
        """Positions and a uint8 tensor (n, px, px, 3)."""
        import torch

        if self._load is None:
            self._load = self._make(self._job.input_px)
        px = self._job.input_px
        images = np.empty((len(positions), px, px, 3), dtype=np.uint8)
        for row, position in enumerate(positions):
            images[row] = self._load(Path(self._job.files[position]).read_bytes())
        return list(positions), torch.from_numpy(images)


def _one_opencv_thread(worker: int) -> None:
    import cv2

    cv2.setNumThreads(1)


def _as_it_is(batch: Any) -> Any:
    return batch


@contextmanager
def _open(job: Job, make: Make, library: str, settings: str) -> Iterator[Peer]:
    from torch.utils.data import DataLoader

    loader: Any = DataLoader(
        Images(job, make),  # type: ignore[arg-type]
        batch_sampler=cycle(len(job.files), job.batch_size),
        num_workers=job.cores,
        prefetch_factor=_PREFETCH,
        persistent_workers=True,
        collate_fn=_as_it_is,
        worker_init_fn=_one_opencv_thread,
        multiprocessing_context="fork",
    )
    batches = iter(loader)
    words = f"DataLoader, {job.cores} workers, {_PREFETCH} batches ahead each; {settings}"
    try:
        yield Peer(library, words, job.cores * _PREFETCH, _to_numpy(batches), job.cores)
    finally:
        batches._shutdown_workers()


def _to_numpy(batches: Iterator[Any]) -> Iterator[Batch]:
    for positions, images in batches:
        yield positions, images.numpy()


@contextmanager
def pil(job: Job) -> Iterator[Peer]:
    """What a first version does: `Image.open`, `convert`, `resize` with Pillow's antialiased bilinear filter."""
    with _open(
        job, _make_pil, version("pillow"), "Image.open, convert, resize(BILINEAR), uint8"
    ) as peer:
        yield peer


def _make_pil(px: int) -> Load:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None

    def load(data: bytes) -> npt.NDArray[np.uint8]:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        return np.asarray(image.resize((px, px), Image.Resampling.BILINEAR))

    return load


@contextmanager
def pil_draft(job: Job) -> Iterator[Peer]:
    """The same behind `Image.draft`: libjpeg's scaled decoding, never below the size that is asked for.

    https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.Image.draft
    """
    with _open(
        job, _make_pil_draft, version("pillow"), "draft, convert, resize(BILINEAR), uint8"
    ) as peer:
        yield peer


def _make_pil_draft(px: int) -> Load:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None

    def load(data: bytes) -> npt.NDArray[np.uint8]:
        image = Image.open(io.BytesIO(data))
        image.draft("RGB", (px, px))
        return np.asarray(image.convert("RGB").resize((px, px), Image.Resampling.BILINEAR))

    return load


@contextmanager
def imagecodecs(job: Job) -> Iterator[Peer]:
    """imagecodecs' libjpeg-turbo binding; it resizes nothing, so OpenCV does, as in the paper's recipe.

    https://github.com/cgohlke/imagecodecs#readme: `jpeg8_decode` takes bytes and gives an array.
    """
    require("imagecodecs")
    with _open(
        job, _make_imagecodecs, version("imagecodecs"), "jpeg8_decode, cv2 INTER_LINEAR, uint8"
    ) as peer:
        yield peer


def _make_imagecodecs(px: int) -> Load:
    import cv2

    codecs = require("imagecodecs")

    def load(data: bytes) -> npt.NDArray[np.uint8]:
        pixels = codecs.jpeg8_decode(data, outcolorspace="RGB")
        return np.asarray(cv2.resize(pixels, (px, px), interpolation=cv2.INTER_LINEAR))

    return load


@contextmanager
def kornia(job: Job) -> Iterator[Peer]:
    """kornia-rs: its libjpeg-turbo decoder and its own SIMD resize.

    https://pypi.org/project/kornia-rs/: `decode_image_jpegturbo` from bytes, `imgproc.resize`.
    """
    require("kornia_rs")
    settings = "decode_image_jpegturbo, resize bilinear, uint8"
    with _open(job, _make_kornia, version("kornia-rs"), settings) as peer:
        yield peer


def _make_kornia(px: int) -> Load:
    library = require("kornia_rs")

    def load(data: bytes) -> npt.NDArray[np.uint8]:
        pixels = library.io.decode_image_jpegturbo(data, "rgb")
        return np.asarray(library.imgproc.resize(pixels, (px, px), "bilinear"))

    return load


@contextmanager
def pyvips(job: Job) -> Iterator[Peer]:
    """libvips' thumbnail, which shrinks while it loads; one libvips thread a worker, no operation cache.

    https://www.libvips.org/API/current/Developer-checklist.html: `thumbnail` rather than `resize`.
    """
    library = require("pyvips")
    vips = ".".join(str(library.version(i)) for i in range(3))
    settings = "thumbnail_buffer (shrink on load), VIPS_CONCURRENCY=1, uint8"
    with _open(job, _make_pyvips, f"{version('pyvips')} on libvips {vips}", settings) as peer:
        yield peer


def _make_pyvips(px: int) -> Load:
    os.environ["VIPS_CONCURRENCY"] = "1"
    library = require("pyvips")
    library.cache_set_max(0)

    def load(data: bytes) -> npt.NDArray[np.uint8]:
        image = library.Image.thumbnail_buffer(data, px, height=px, size="force", no_rotate=True)
        return np.asarray((image if image.bands == 3 else image.colourspace("srgb")).numpy())

    return load


@contextmanager
def torchvision(job: Job) -> Iterator[Peer]:
    """torchvision's `decode_jpeg` and `resize` on uint8 tensors, one torch thread a worker.

    https://docs.pytorch.org/vision/stable/transforms.html: uint8 tensors resize faster than floats.
    """
    require("torchvision", hint="its wheel is built for a CUDA build of torch")
    settings = "decode_jpeg, v2.functional.resize(antialias), uint8"
    with _open(job, _make_torchvision, version("torchvision"), settings) as peer:
        yield peer


def _make_torchvision(px: int) -> Load:
    import torch

    decoding, functional = (
        require("torchvision.io"),
        require("torchvision.transforms.v2.functional"),
    )

    def load(data: bytes) -> npt.NDArray[np.uint8]:
        encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        pixels = functional.resize(
            decoding.decode_jpeg(encoded, mode=decoding.ImageReadMode.RGB), [px, px]
        )
        found: npt.NDArray[np.uint8] = pixels.permute(1, 2, 0).numpy()
        return found

    return load
