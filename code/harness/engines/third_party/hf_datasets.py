"""Hugging Face `datasets`: its Image feature, which decodes with Pillow, behind torch's DataLoader.

https://huggingface.co/docs/datasets/use_with_pytorch and .../image_load: a column of paths, cast to
`Image`; the pictures of a batch are resized by Pillow.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.engines.third_party._interface import LoaderSpec
from harness.engines.third_party._torch import FileDataset, Load, Make, dataloader
from harness.peers import import_or_unavailable
from wallclock.stages.decode import PixelArray


class _ImageColumn(FileDataset):
    def __init__(self, spec: LoaderSpec, make: Make) -> None:
        super().__init__(spec, make)
        datasets = import_or_unavailable("datasets")
        table = datasets.Dataset.from_dict({"image": list(spec.files)})
        self._table = table.cast_column("image", datasets.Image(mode="RGB"))

    def read(self, positions: Sequence[int]) -> list[Any]:
        """Decoded Pillow images."""
        images: list[Any] = self._table[list(positions)]["image"]
        return images


def _make(px: int, variant: str) -> Load:
    from PIL import Image

    def load(image: Image.Image, row: PixelArray) -> None:
        row[...] = np.asarray(image.resize((px, px), Image.Resampling.BILINEAR))

    return load


LOADER = dataloader(
    "hf-datasets",
    "HF datasets",
    _make,
    {"": "Dataset.cast_column(Image), Pillow resize(BILINEAR)"},
    ("datasets",),
    dataset=_ImageColumn,
)
