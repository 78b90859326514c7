"""How small may decode make a picture before its pixels suffer? → data/dct-margin.csv

For each margin, every image is decoded to the smallest scale at or above margin × 224 px and resized as
`recipe=fast` does; its PSNR against Pillow's antialiased resize stands beside that of full decode +
INTER_AREA and of the paper's recipe on the same image. A scaled picture rarely fills its last row and
column: `squeezed_loss_db` is what it costs to resize those as if it did, on the images where it does not.
Nothing is timed.

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
from wallclock.summary import psnr_db

MARGINS = (1.0, 1.1, 1.25, 1.5, 2.0, 2.5)
PX = 224
COLUMNS = (
    *(
        "images",
        "n_images",
        "dct_margin",
        "psnr_db",
        "psnr_db_min",
        "n_below_area_by_1_db",
        "n_below_paper",
    ),
    *(
        "area_psnr_db",
        "paper_psnr_db",
        "n_squeezed",
        "squeezed_loss_db",
        "squeezed_loss_db_max",
        "origin",
    ),
)
_CEILING_DB = 99.0


def main() -> None:
    """Compare, write the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=300, help="synthetic originals")
    parser.add_argument("--folder", type=Path, help="JPEGs of your own, besides")
    choices = parser.parse_args()
    rows = _rows("synthetic originals", range(choices.n))
    if choices.folder:
        rows += _rows("folder", sorted(choices.folder.rglob("*.jp*g")))
    publish("dct-margin", COLUMNS, rows)
    for row in rows:
        print(
            "  ".join(
                f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()
            )
        )


def _rows(name: str, sources: Iterable[int | Path]) -> list[dict[str, object]]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = np.array([each for each in pool.map(_decibels, sources, chunksize=4) if each])
    area, paper = found[:, 0], found[:, 1]
    rows = []
    exact, squeezed = found[:, 2 : 2 + len(MARGINS)], found[:, 2 + len(MARGINS) :]
    for margin, ours, taken in zip(MARGINS, exact.T, squeezed.T, strict=True):
        lost = (ours - taken)[ours != taken]
        close = {"psnr_db": float(np.median(ours)), "psnr_db_min": float(ours.min())}
        misses = {
            "n_below_area_by_1_db": int((ours < area - 1).sum()),
            "n_below_paper": int((ours < paper).sum()),
        }
        beside = {"area_psnr_db": float(np.median(area)), "paper_psnr_db": float(np.median(paper))}
        about: dict[str, object] = {"images": name, "n_images": len(found), "dct_margin": margin}
        loss = (
            {"squeezed_loss_db": float(np.median(lost)), "squeezed_loss_db_max": float(lost.max())}
            if lost.size
            else {}
        )
        without = {"squeezed_loss_db": None, "squeezed_loss_db_max": None}
        rows.append(
            {
                **about,
                **close,
                **misses,
                **beside,
                "n_squeezed": lost.size,
                **without,
                **loss,
                "origin": "measured",
            }
        )
    return rows


def _decibels(source: int | Path) -> list[float]:
    """PSNR of area, of the paper's recipe, of the margins, and of them squeezed; empty if it does not decode."""
    data = (
        render.render(0, "original", source, 0.0)
        if isinstance(source, int)
        else source.read_bytes()
    )
    try:
        full = decode.make("simplejpeg")(data)
    except ImageError:
        return []
    truth = resize.make("pil", "bilinear", PX).resize(full)

    def apart(pixels: Pixels) -> float:
        return min(psnr_db(pixels, truth), _CEILING_DB)

    opencv = [apart(resize.make("opencv", name, PX).resize(full)) for name in ("area", "linear")]
    ours = resize.make("torch", "bilinear", PX)
    size = (full.shape[0], full.shape[1])
    scaled = [decode.make("simplejpeg", Scaling(PX, margin))(data) for margin in MARGINS]
    exact = [apart(ours.resize(pixels, size)) for pixels in scaled]
    return [*opencv, *exact, *(apart(ours.resize(pixels)) for pixels in scaled)]


if __name__ == "__main__":
    main()
