"""How far may decode scale an image down before its pixels suffer? → data/dct-margin.csv

For each margin, every image is decoded to the smallest scale at or above margin × 224 px and
resized as `recipe=fast` does; its PSNR against Pillow's antialiased resize is compared with that of
full decode + INTER_AREA and of the paper's recipe on the same image. A scaled image rarely fills
its last row and column: `squeezed_loss_db` is the loss of resizing those as if it did, on the
images where it does not. Nothing is timed.

    python -m benchmarks.dct_margin [--n N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.results import publish
from wallclock.corpus import render
from wallclock.errors import ImageError
from wallclock.stages import decode, resize
from wallclock.stages.decode import Scaling
from wallclock.stages.pixels import Pixels
from wallclock.summary import PSNR_CEILING_DB, psnr_db

MARGINS = (1.0, 1.1, 1.25, 1.5, 2.0, 2.5)
PX = 224


def main() -> None:
    """Compare, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=300, help="synthetic originals")
    parser.add_argument("--folder", type=Path, help="JPEGs of your own, in addition")
    choices = parser.parse_args()
    rows = _rows("synthetic originals", range(choices.n))
    if choices.folder:
        rows += _rows("folder", sorted(choices.folder.rglob("*.jp*g")))
    publish("dct-margin", rows)


def _rows(name: str, sources: Iterable[int | Path]) -> list[dict[str, object]]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(_decibels, sources, chunksize=4)
        table = np.array([decibels for decibels in results if decibels])
    area, paper, exact, squeezed = np.split(table, (1, 2, 2 + len(MARGINS)), axis=1)
    rows: list[dict[str, object]] = []
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
        data = render.render(0, "original", source, 0.0)
    else:
        data = source.read_bytes()
    try:
        full = decode.make("simplejpeg")(data)
    except ImageError:
        return []
    truth = resize.make("pil", "bilinear", PX).resize(full)

    def psnr(pixels: Pixels) -> float:
        return min(psnr_db(pixels, truth), PSNR_CEILING_DB)

    opencv = [psnr(resize.make("opencv", name, PX).resize(full)) for name in ("area", "linear")]
    ours = resize.make("torch", "bilinear", PX)
    size = (full.shape[0], full.shape[1])
    scaled = [decode.make("simplejpeg", Scaling(PX, margin))(data) for margin in MARGINS]
    exact = [psnr(ours.resize(pixels, size)) for pixels in scaled]
    return [*opencv, *exact, *(psnr(ours.resize(pixels)) for pixels in scaled)]


if __name__ == "__main__":
    main()
