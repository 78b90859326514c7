"""`wallclock verify OUT [n=64]`: are the vectors there, of the right images, and right?

A random sample is embedded again with Pillow and in FP32, one image at a time, without ring, batch
or shard. A vector must be as near to that of its own image as the job's precision and decoder
allow, and no nearer to another one's: random weights give all pictures nearly one direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wallclock.constraints import build
from wallclock.errors import UserError
from wallclock.infer.network import open_embedder
from wallclock.job.dataset import Dataset, open_existing
from wallclock.job.listing import list_items
from wallclock.job.settings import RECIPES, JobSettings, VerifySettings
from wallclock.loader.opener import LoaderOptions, open_loader
from wallclock.summary import cosine, misplaced, unit_length

#: Precision → the least cosine of the median vector, and of any.
LIMITS = {"fp32": (0.99, 0.9), "fp16": (0.99, 0.9), "bf16": (0.98, 0.85)}


@dataclass(frozen=True)
class Verdict:
    """What was found; `faults` in words, none for a good dataset."""

    compared: int
    changed: int
    cosine_median: float
    cosine_min: float
    faults: tuple[str, ...]

    def __str__(self) -> str:
        compared = f"{self.compared} vectors embedded again with Pillow in FP32"
        if self.changed:
            compared += f" ({self.changed} images have changed since, or Pillow refuses them)"
        cosines = f"cosine {self.cosine_median:.6f} (median), {self.cosine_min:.6f} (least)"
        return f"{compared}: {cosines}; {'; '.join(self.faults) or 'no fault'}"


def verify(out: str | Path, **values: Any) -> Verdict:
    """Check a complete dataset.

    Args:
        values: the fields of `VerifySettings`.

    Raises:
        UserError: there is no complete dataset, or its images or model cannot be had.
    """
    chosen = build(VerifySettings, values, "")
    dataset = open_existing(out)
    if dataset is None or not dataset.about["complete"]:
        raise UserError(f"{out} holds no complete dataset; run `wallclock embed` to its end first")
    numbers, faults = dataset.committed(), []
    columns = [dataset.rows(number, ["id"])["id"] for number in numbers]
    ids = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    failed = [row["id"] for number in numbers for row in dataset.failures(number)]
    listed = dataset.about["identity"]["n"]
    different = len(pc.unique(ids)) + len(set(failed))
    if not different == len(ids) + len(failed) == listed:
        faults.append(f"{len(ids)} vectors and {len(failed)} failures of {listed} images")
    rng = np.random.default_rng(chosen.seed)
    rows = np.sort(rng.permutation(len(ids))[: chosen.n])
    if not len(rows):
        return Verdict(0, 0, 1.0, 1.0, tuple(faults))
    stored, hashes = _stored(dataset, numbers, rows)
    reference, digests = _embedded_again(dataset, ids.take(rows))
    same = np.array([digests.get(name) == sha for name, sha in hashes])
    unchanged = [name for (name, _), is_same in zip(hashes, same, strict=True) if is_same]
    ours = stored[same]
    right = np.array([reference[name] for name in unchanged], np.float32)
    if not len(ours):
        raise UserError("no image of the sample is what it was when it was embedded")
    cosines = cosine(ours, right)
    median, least = LIMITS[dataset.about["identity"]["recipe"]["dtype"]]
    if not np.isfinite(ours).all():
        faults.append("vectors that are not finite")
    if np.median(cosines) < median or cosines.min() < least:
        faults.append(f"cosines below {median} (median) or {least} (least)")
    if moved := _rows_of_other_images(ours, right, float(np.median(cosines))):
        faults.append(f"{len(moved)} nearer to another image's, as {unchanged[moved[0]]}")
    median_cosine = float(np.median(cosines))
    least_cosine = float(cosines.min())
    return Verdict(len(ours), len(rows) - len(ours), median_cosine, least_cosine, tuple(faults))


def _stored(
    dataset: Dataset, numbers: Sequence[int], rows: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.float32], list[tuple[str, str]]]:
    """Vectors of these rows of the whole dataset, and each one's id and sha256."""
    about: list[tuple[str, str]] = []
    vectors, first = [], 0
    for number in numbers:
        table = dataset.rows(number, ["id", "sha256"])
        inside = rows[(rows >= first) & (rows < first + len(table))] - first
        if len(inside):
            vectors.append(dataset.vectors(number)[inside])
            part = table.take(inside)
            about += zip(part["id"].to_pylist(), part["sha256"].to_pylist(), strict=True)
        first += len(table)
    return np.concatenate(vectors), about


def _embedded_again(
    dataset: Dataset, ids: Any
) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, str]]:
    """Vector and sha256 by id, of those that are still in the source and can be decoded."""
    settings = build(JobSettings, dataset.about["settings"], "")
    items = list_items(dataset.about["source"], settings.limit)
    at = pc.drop_null(pc.index_in(ids, value_set=items.ids)).to_pylist()
    model = settings.resolved_model()
    plain = replace(
        RECIPES["pillow"], dtype="fp32", batch_size=1, workers=1, device=settings.resolved_device()
    )
    embedder = open_embedder(plain, model)
    if embedder.weights_digest != dataset.about["identity"]["weights"]:
        raise UserError(
            f"the weights of {settings.model} are not those that embedded {dataset.out}"
        )
    vectors, hashes = {}, {}
    one_by_one = [[position] for position in at]
    options = LoaderOptions(model.input_px, plain, hashes=True)
    with open_loader(items, one_by_one, options) as loader:
        for batch in loader:
            for name, info in zip(batch.ids, batch.extras.infos, strict=True):
                vectors[name] = np.array(embedder.embed(batch.images)[0], np.float32)
                hashes[name] = info.sha256
    return vectors, hashes


def _rows_of_other_images(
    ours: npt.NDArray[np.float32], right: npt.NDArray[np.float32], median: float
) -> list[int]:
    """Rows that are nearer to another image's vector than to their own by more than noise."""
    finite = np.nan_to_num(ours)
    if not (finite.any(axis=1).all() and right.any(axis=1).all()):
        return []
    rows = np.arange(len(finite))
    pairs = misplaced(unit_length(finite), unit_length(right.copy()), rows, median)
    return [row for row, _ in pairs]
