"""libvips' thumbnail, which shrinks while it loads; one libvips thread a worker, no operation
cache.

https://www.libvips.org/API/current/Developer-checklist.html: `thumbnail` rather than `resize`.
"""

from __future__ import annotations

import os

import numpy as np

from wallclock.engines.third_party._interface import import_or_unavailable, version
from wallclock.engines.third_party._torch import Load, dataloader
from wallclock.stages.pixels import Pixels


def _make(px: int) -> Load:
    os.environ["VIPS_CONCURRENCY"] = "1"
    library = import_or_unavailable("pyvips")
    library.cache_set_max(0)

    def load(data: bytes) -> Pixels:
        image = library.Image.thumbnail_buffer(data, px, height=px, size="force", no_rotate=True)
        return np.asarray((image if image.bands == 3 else image.colourspace("srgb")).numpy())

    return load


def _library() -> str:
    vips = import_or_unavailable("pyvips").version
    return f"{version('pyvips')} on libvips {vips(0)}.{vips(1)}.{vips(2)}"


SETTINGS = "thumbnail_buffer (shrink on load), VIPS_CONCURRENCY=1, uint8"
LABEL = "DataLoader + pyvips"
LOADER = dataloader("pyvips", LABEL, _make, SETTINGS, _library, "pyvips", "pyvips-binary")
