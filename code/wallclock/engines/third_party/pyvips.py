"""libvips' thumbnail, which shrinks while it loads; one libvips thread a worker, no operation
cache.

https://www.libvips.org/API/current/Developer-checklist.html: `thumbnail` rather than `resize`.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from wallclock.engines.third_party._interface import (
    LoaderSpec,
    Stream,
    ThirdPartyLoader,
    import_or_unavailable,
    version,
)
from wallclock.engines.third_party._torch import Load, dataloader


def _make(px: int) -> Load:
    os.environ["VIPS_CONCURRENCY"] = "1"
    library = import_or_unavailable("pyvips")
    library.cache_set_max(0)

    def load(data: bytes) -> npt.NDArray[np.uint8]:
        image = library.Image.thumbnail_buffer(data, px, height=px, size="force", no_rotate=True)
        return np.asarray((image if image.bands == 3 else image.colourspace("srgb")).numpy())

    return load


def _open(spec: LoaderSpec) -> AbstractContextManager[Stream]:
    library = import_or_unavailable("pyvips")
    vips = ".".join(str(library.version(i)) for i in range(3))
    settings = "thumbnail_buffer (shrink on load), VIPS_CONCURRENCY=1, uint8"
    return dataloader(spec, _make, f"{version('pyvips')} on libvips {vips}", settings)


LOADER = ThirdPartyLoader("pyvips", "DataLoader + pyvips", _open, ("pyvips", "pyvips-binary"))
