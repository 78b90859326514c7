"""What images are like: bytes, pixels, format, brightness. What a job's cost follows from, and what drifts."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from wallclock.corpus.manifest import Item, Manifest
from wallclock.errors import ImageError
from wallclock.summary import quantile

#: Measures of an image, each with its unit in its name.
MEASURES = ("kb", "megapixels", "bytes_per_pixel", "longest_px", "brightness")


@dataclass(frozen=True)
class ImageStats:
    """A corpus image by image: `values` has one list a measure, equally long; `formats` counts the images of each.

    `brightness`: mean of the luma, 0 (black) to 1 (white), of the picture at 1/8 scale.
    """

    values: Mapping[str, Sequence[float]]
    formats: Mapping[str, int]

    def summary(self) -> dict[str, float]:
        """Median and 90th percentile of each measure."""
        return {
            f"{name}_{word}": quantile(self.values[name], q)
            for name in MEASURES
            for word, q in (("p50", 0.5), ("p90", 0.9))
        }


def measure(manifest: Manifest) -> ImageStats:
    """Look at every sound image of a corpus that lies on this disk, one file an image."""
    values: dict[str, list[float]] = {name: [] for name in MEASURES}
    formats: Counter[str] = Counter()
    for item in manifest.valid:
        pixels = item.width * item.height
        brightness = _brightness((manifest.root / item.path).read_bytes())
        row = (
            item.bytes / 1e3,
            pixels / 1e6,
            item.bytes / pixels,
            max(item.width, item.height),
            brightness,
        )
        for name, value in zip(MEASURES, row, strict=True):
            values[name].append(float(value))
        formats[format_name(item)] += 1
    return ImageStats(values, dict(sorted(formats.items())))


def format_name(item: Item) -> str:
    """'JPEG baseline', 'JPEG progressive', 'JPEG CMYK', 'PNG', …"""
    if item.format != "jpeg":
        return item.format.upper()
    return f"JPEG {item.process}" if item.plain_jpeg else "JPEG CMYK"


def _brightness(data: bytes) -> float:
    try:
        with Image.open(io.BytesIO(data)) as image:
            # A JPEG decoder can stop at 1/8 scale: 64 times fewer pixels, the same mean.
            image.draft("L", (max(1, image.width // 8), max(1, image.height // 8)))
            return float(np.asarray(image.convert("L"), dtype=np.float32).mean()) / 255
    except (OSError, ValueError, SyntaxError) as error:
        raise ImageError("decode", f"Pillow: {error}") from error
