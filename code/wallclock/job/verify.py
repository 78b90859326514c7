"""`wallclock verify OUT [SRC] [n=64]`: are the vectors there, of the right images, and right?

Every byte of the dataset is compared with the recorded checksums. A random sample is embedded again
by a plain loop in FP32 (`reference.py`). A vector must be as near to that of its own image as the
job's precision and decoder allow, and no nearer to another one's. Many models give all pictures
nearly one direction: only the cosine of vectors less their mean falls where pixels are wrong.
"""

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wallclock.constraints import build
from wallclock.errors import ImageError, UserError
from wallclock.fetch.sources import SourceReader
from wallclock.job.dataset import ABOUT, Dataset, check_bytes, damaged_parts, open_existing
from wallclock.job.items import Items
from wallclock.job.listing import list_items
from wallclock.job.reference import Reference
from wallclock.job.settings import JobSettings, VerifySettings
from wallclock.outside import printable
from wallclock.preprocess import preprocess_of
from wallclock.stages.forward.networks import digest_of, load_network
from wallclock.summary import cosine, misplaced, unit_length

#: Precision → the least cosine of the median vector, and of any; and of the median, centered.
LIMITS = {"fp32": (0.99, 0.9, 0.97), "fp16": (0.99, 0.9, 0.97), "bf16": (0.98, 0.85, 0.9)}
#: Vectors of which a mean says something.
_LEAST_CENTERED = 16
#: Damaged parts that are named.
_NAMED = 5


@dataclass(frozen=True)
class Verdict:
    """What `verify` found: `compared` images and their cosines; `faults` in words, none if good."""

    compared: int
    changed: int
    cosine_median: float
    cosine_min: float
    faults: tuple[str, ...]
    #: Of the vectors less their mean; None for too few.
    centered_median: float | None = None
    #: What prepared the pixels of the plain loop.
    reference: str = "Pillow"
    #: Images that the source has no more; they are not compared.
    gone: int = 0

    def __str__(self) -> str:
        faults = "; ".join(self.faults) or "no fault"
        if self.gone:
            faults += f"; gone from SRC: {self.gone:,} (prune=true removes them)"
        if not self.compared:
            return f"no vector to compare, {faults}" if not self.faults else faults
        compared = f"{self.compared} vectors embedded again with {self.reference} in FP32"
        if self.changed:
            compared += f" ({self.changed} images have changed since, or Pillow refuses them)"
        cosines = f"cosine {self.cosine_median:.6f} (median), {self.cosine_min:.6f} (least)"
        if self.centered_median is not None:
            cosines += f"; less their mean {self.centered_median:.6f} (median)"
        return f"{compared}: {cosines}; {faults}"


def verify(
    out: str | Path,
    src: str | Path = "",
    *,
    n: int = VerifySettings.n,
    seed: int = VerifySettings.seed,
) -> Verdict:
    """Check every byte of a complete dataset, and re-embed a sample with Pillow and transformers.

    `src`: the job's SRC, if its URL has a password or signature that OUT does not store. `n`:
    images in the sample. Raises UserError: the dataset is not complete, or its images or model
    cannot be loaded.
    """
    chosen = build(VerifySettings, {"n": n, "seed": seed}, "")
    dataset = open_existing(out)
    if dataset and (unreached := dataset.about.get("counts", {}).get("unreached")):
        raise UserError(f"{unreached:,} images were not reached; run `wallclock embed` again")
    if dataset is None or not dataset.about["complete"]:
        raise UserError(f"{out} holds no complete dataset; run `wallclock embed` to its end first")
    if not (src or dataset.about.get("has_whole_source", True)):
        why = f"{out} does not keep the password or signature in the URL of SRC"
        raise UserError(f"{why}; give SRC, too: wallclock verify OUT SRC")
    limits = _limits_of(dataset)
    if damaged := [*damaged_parts(dataset, check_bytes)]:
        left = len(damaged) - _NAMED
        more = [f"{left:,} more parts are damaged"] if left > 0 else []
        return Verdict(0, 0, 1.0, 1.0, (*map(str, damaged[:_NAMED]), *more))
    numbers = dataset.committed()
    ids, faults = _check_counts(dataset, numbers)
    valid = {field.name for field in fields(JobSettings)}  # those that are gone changed nothing
    said = {name: value for name, value in dataset.about["settings"].items() if name in valid}
    settings = build(JobSettings, said, "")
    source = str(src) or dataset.about["source"]
    items = list_items(source, settings.limit, settings.limits(), dataset.store)
    there = pc.indices_nonzero(pc.is_in(ids, value_set=items.ids)).to_numpy()
    gone = len(ids) - len(there) if items.is_whole else 0
    if len(ids) and not len(there):
        raise UserError(f"no image of {out} is in its SRC any more")
    rng = np.random.default_rng(chosen.seed)
    rows = np.sort(rng.permutation(there)[: chosen.n])
    if not len(rows):
        return Verdict(0, 0, 1.0, 1.0, faults, gone=gone)
    stored, hashes = _stored(dataset, numbers, rows)
    reference, digests, source = _embedded_again(dataset, settings, items, ids.take(rows))
    same = np.array([digests.get(name) == sha for name, sha in hashes])
    names = [name for (name, _), is_same in zip(hashes, same, strict=True) if is_same]
    if not names:
        raise UserError("no image of the sample is what it was when it was embedded")
    right = np.array([reference[name] for name in names], np.float32)
    verdict = _judge(stored[same], right, names, limits)
    changed = len(rows) - len(names)
    faults += verdict.faults
    return replace(verdict, changed=changed, gone=gone, faults=faults, reference=source)


def _check_counts(dataset: Dataset, numbers: Sequence[int]) -> tuple[Any, tuple[str, ...]]:
    """The ids of all vectors as an Arrow column; a fault where an image is missing or twice."""
    columns = [dataset.rows(number, ["id"])["id"] for number in numbers]
    ids = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    failed = [row["id"] for number in numbers for row in dataset.failures(number)]
    counts, different = dataset.about.get("counts", {}), {*ids.to_pylist(), *failed}
    n = counts.get("vectors", 0) + counts.get("failures", 0)
    if len(different) == len(ids) + len(failed) == n:
        return ids, ()
    return ids, (f"{len(ids)} vectors and {len(failed)} failures of {n} images",)


def _judge(
    ours: npt.NDArray[np.float32],
    right: npt.NDArray[np.float32],
    names: Sequence[str],
    limits: tuple[float, float, float],
) -> Verdict:
    """Compare vectors (n, dim) with those of the plain loop."""
    median, least, least_centered = limits
    cosines = cosine(ours, right)
    centered = None
    if len(ours) >= _LEAST_CENTERED:
        mean = right.mean(axis=0)
        centered = float(np.median(cosine(ours - mean, right - mean)))
    found, lowest = float(np.median(cosines)), float(cosines.min())
    faults = []
    if found < median or lowest < least:
        faults.append(f"cosines below {median} (median) or {least} (least)")
    if centered is not None and centered < least_centered:
        faults.append(f"less their mean, cosines below {least_centered} (median): other pixels")
    if ours.any(axis=1).all() and right.any(axis=1).all():
        units = unit_length(ours.copy()), unit_length(right.copy())
        if moved := [names[row] for row, _ in misplaced(*units, np.arange(len(ours)), found)]:
            faults.append(f"{len(moved)} nearer to another image's, as {printable(moved[0])}")
    return Verdict(len(ours), 0, found, lowest, tuple(faults), centered)


def _limits_of(dataset: Dataset) -> tuple[float, float, float]:
    """`LIMITS` of its precision. Raises UserError: its description has none, or not its model."""
    identity = dataset.about["identity"]
    try:
        identity["model"]["weights"]
        return LIMITS[identity["recipe"]["dtype"]]
    except KeyError as error:
        raise UserError(f"{dataset.out}/{ABOUT} cannot be read: it has no {error}") from error


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
    dataset: Dataset, settings: JobSettings, items: Items, ids: Any
) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, str], str]:
    """Vector and sha256 by id, of those that Pillow decodes; and what prepared their pixels."""
    identity = dataset.about["identity"]
    at = sorted(pc.drop_null(pc.index_in(ids, value_set=items.ids)).to_pylist())
    recipe, model, _ = settings.resolved("cpu")
    if model.weights != "none":
        canvas = preprocess_of(recipe, model.input_px).canvas
        if digest_of(load_network(model, canvas)) != identity["weights"]:
            why = f"the weights of {settings.model} are not those that embedded {dataset.out}"
            raise UserError(why)
    limits = settings.limits(items.origin)
    preprocess = identity["recipe"].get("preprocess", "squash")
    reference = Reference(model, preprocess, limits, is_auto=settings.preprocess == "auto")
    vectors, hashes = {}, {}
    # What is over the job's limits has no vector to compare.
    with closing(SourceReader(limits, fetches_ahead=False)) as read:
        for source in items.read(at):
            image = None
            try:
                data = read(source)
                image = reference.open(data)
            except ImageError as error:
                if getattr(error, "unreached", "") == "all":
                    raise UserError(f"{source.id} was not reached: {error.reason}") from error
            # Only an image may be refused: what the model raises is a fault to be seen.
            if image is not None:
                vectors[source.id] = reference.vector(image)
                hashes[source.id] = hashlib.sha256(data).hexdigest()
    return vectors, hashes, reference.source
