"""Pure functions that only measurements need: medians, fits, PSNR, recall."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wallclock.summary import ROUNDING, Indices, row_blocks

#: The PSNR of equal images: theirs is infinite, which JSON cannot hold.
PSNR_CEILING_DB = 99.0
#: Of recall@10.
NEIGHBOURS = 10


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the middle two. Raises ValueError when there is none."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile (0 to 1), linear between order statistics as numpy's default is."""
    if len(values) == 0:
        raise ValueError("no values to take a quantile of")
    return float(np.quantile(np.asarray(values, dtype=np.float64), q))


def linear_fit(
    x: Sequence[float], y: Sequence[float], weights: Sequence[float] | None = None
) -> tuple[float, float, float]:
    """Intercept, slope and R² of the least-squares line through (x, y).

    R² is of the unweighted residuals. Raises ValueError for fewer than two points.
    """
    if len(x) < 2:
        raise ValueError("a line needs two points")
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    # polyfit's weights multiply the residuals before they are squared.
    slope, intercept = np.polyfit(xs, ys, 1, w=None if weights is None else np.asarray(weights))
    total = float(np.sum((ys - ys.mean()) ** 2))
    residual = float(np.sum((ys - intercept - slope * xs) ** 2))
    return float(intercept), float(slope), 1 - residual / total if total else 1.0


def psnr_db(image: npt.NDArray[np.uint8], reference: npt.NDArray[np.uint8]) -> float:
    """Peak signal-to-noise ratio of two 8-bit images of one shape, in dB.

    PSNR = 10 log10(255² / MSE), over all pixels and channels; at most `PSNR_CEILING_DB`.
    """
    if image.shape != reference.shape:
        raise ValueError(f"shapes differ: {image.shape} and {reference.shape}")
    error = image.astype(np.float64) - reference.astype(np.float64)
    mean_square = float(np.mean(error * error))
    decibels = 10 * math.log10(255.0**2 / mean_square) if mean_square else PSNR_CEILING_DB
    return min(decibels, PSNR_CEILING_DB)


def neighbours_kept(
    a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], rows: Indices, k: int
) -> npt.NDArray[np.float64]:
    """Recall: the share of each row's `k` nearest neighbours in a that are among its nearest in b.

    `a`, `b`: (n, d) vectors of unit length, n over `k`; `rows`: which of them are queries.
    Neighbours as similar as the last one count as kept: pictures that exist twice have no order.
    """
    shares = []
    for block in row_blocks(rows, len(a)):
        in_a, in_b = a[block] @ a.T, b[block] @ b.T
        at = np.arange(len(block))
        in_a[at, block] = in_b[at, block] = -np.inf
        nearest = np.argpartition(in_a, -k, axis=1)[:, -k:]
        last = np.partition(in_b, -k, axis=1)[:, [-k]]
        kept = np.take_along_axis(in_b, nearest, axis=1) >= last - ROUNDING
        shares.append(kept.mean(axis=1))
    return np.concatenate(shares)
