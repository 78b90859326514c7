"""Statistics of images that a job's cost follows from and that drift: size, format, brightness."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from harness.corpora import readers
from harness.corpora.manifest import Item, Manifest
from harness.measures import quantile
from wallclock.errors import ImageError, image_errors

#: Measures of an image, each with its unit in its name.
MEASURES = ("kb", "megapixels", "bytes_per_pixel", "longest_px", "brightness")


@dataclass(frozen=True)
class ImageStats:
    """`values`: one list for each measure, one number an image; `formats`: images by format.

    `brightness`: mean luma, 0 (black) to 1 (white), at 1/8 scale. `failures`: images without one.
    """

    values: Mapping[str, Sequence[float]]
    formats: Mapping[str, int]
    failures: Sequence[Mapping[str, str]] = ()

    def summary(self) -> dict[str, float]:
        """Median and 90th percentile of each measure."""
        pairs = [(name, q) for name in MEASURES for q in (50, 90)]
        return {f"{name}_p{q}": quantile(self.values[name], q / 100) for name, q in pairs}


def measure(manifest: Manifest) -> ImageStats:
    """Statistics of every valid image of a corpus stored as files."""
    rows, failures = [], []
    read = readers.make(manifest)
    brightness = image_errors("decode", "Pillow", _brightness)
    for item in manifest.valid:
        try:
            luma = brightness(read(item))
        except ImageError as error:
            failures.append({"id": item.id, "stage": error.stage, "reason": error.reason})
            continue
        rows.append(
            (
                item.bytes / 1e3,
                item.pixels / 1e6,
                item.bytes / item.pixels,
                float(max(item.width, item.height)),
                luma,
            )
        )
    formats = Counter(_format_name(item) for item in manifest.valid)
    values = {name: [row[i] for row in rows] for i, name in enumerate(MEASURES)}
    return ImageStats(values, dict(sorted(formats.items())), failures)


def _format_name(item: Item) -> str:
    """'JPEG baseline', 'JPEG progressive', 'JPEG CMYK', 'PNG', …"""
    if item.format != "jpeg":
        return item.format.upper()
    return "JPEG CMYK" if item.components == 4 else f"JPEG {item.process}"


def _brightness(data: bytes) -> float:
    with Image.open(io.BytesIO(data)) as image:
        # A JPEG decoder can stop at 1/8 scale: 64 times fewer pixels, the same mean.
        image.draft("L", (max(1, image.width // 8), max(1, image.height // 8)))
        return float(np.asarray(image.convert("L"), dtype=np.float32).mean()) / 255
