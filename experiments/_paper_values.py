"""The paper's own end-to-end numbers, predicted from the paper's own costs of the parts.

Loading an image costs what the serial walls leave beyond their forward pass: 42 % of Pillow's
588 s, and of OpenCV's 493 s what is not that same forward pass, less what libjpeg-turbo decodes
faster. The forward pass costs what the runtimes' table gives for it alone, at batch 64. All of it
is in `data/paper/claims.csv`.

Pillow's cells come twice. As the paper describes them, four workers load while the device computes:
that would bring 264 images a second. The paper measured 168, no more than its serial 170 and a
third less than its own libjpeg-turbo sweep, which says that in those cells nothing overlapped. Both
are shown, each with its assumption.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from experiments._rows import Row
from wallclock import provenance
from wallclock.predict import JobSetup, Machine, Prediction, StageCosts, StepTime, predict

CLAIMS = provenance.ROOT / "data" / "paper" / "claims.csv"
#: The paper's box.
MACHINE = Machine(cores=16)

OVERLAPPED = "workers load while the device computes"
SEQUENTIAL = "nothing overlaps, as the baseline's wall says"

#: In every row. The bottleneck is the paper's for its 256 px images overall, not for each cell.
_SHARED = {
    "engine": "dataloader",
    "image_set": "small_256",
    "corpus": "abo",
    "weights": "pretrained",
    "device": "Tesla T4",
    "device_kind": "cuda",
    "origin": "predicted",
    "status": "ok",
    "measured_origin": "paper",
    "measured_bottleneck": "accelerator",
}
_PER_100K = 100_000
_SMALL_BATCH = (
    "the paper gives the forward pass at batch 64 only: what a small batch pays more is not in it"
)


@dataclass(frozen=True)
class _Cited:
    """One end-to-end number of the paper: the claim that holds it, and how it was run."""

    experiment: str
    recipe: str
    claim: str
    decoder: str
    workers: int
    batch_size: int
    dtype: str = "fp32"


CELLS = (
    _Cited("t4", "baseline", "baseline-rate", "pil", 4, 32),
    _Cited("opt", "optimized", "optimized-rate", "turbojpeg", 8, 64, "fp16"),
    *(_Cited("batch", f"batch-{n}", f"batch-{n}", "pil", 4, n) for n in (1, 8, 32, 256)),
    *(_Cited("workers", f"workers-{n}", f"workers-{n}", "turbojpeg", n, 64) for n in (0, 2)),
)


def rows() -> list[Row]:
    """A row for each of the paper's end-to-end numbers, under each assumption that fits it."""
    values = _values()
    predicted = []
    for cited in CELLS:
        overlaps = cited.workers > 0
        if overlaps and cited.decoder == "pil":
            predicted.append(_row(cited, values, "serial", SEQUENTIAL))
        predicted.append(_row(cited, values, "dataloader", OVERLAPPED if overlaps else ""))
    return predicted


def costs(values: Mapping[str, float], decoder: str) -> StageCosts:
    """Seconds of loading a 256 px image, by the paper's serial walls.

    What it does not split is in `assemble`.
    """
    wall = values["serial-small-pil-wall"] / _PER_100K
    forward = values["serial-small-pil-forward-share"] * wall
    if decoder == "pil":
        stages = ("decode", "resize", "normalize")
        shares = {f"{name}_s": values[f"serial-small-pil-{name}-share"] * wall for name in stages}
        return StageCosts(assemble_s=wall - forward - sum(shares.values()), **shares)
    with_opencv = values["serial-small-opencv-wall"] / _PER_100K - forward
    saved = (values["decode-small-opencv"] - values["decode-small-turbojpeg"]) / 1e3
    decoded = values["decode-small-turbojpeg"] / 1e3
    return StageCosts(decode_s=decoded, resize_s=with_opencv - saved - decoded)


def prediction_columns(expected: Prediction) -> Row:
    """A prediction in the columns of `prediction.csv`."""
    names = ("img_per_s", "bottleneck", "accelerator_utilization", "accelerator_bound")
    return {
        **{name: getattr(expected, name) for name in names},
        "img_per_s_low": expected.low,
        "img_per_s_high": expected.high,
        **{f"{name}_img_per_s": rate for name, rate in expected.supply.items()},
    }


def _row(cited: _Cited, values: Mapping[str, float], engine: str, assumption: str) -> Row:
    step = StepTime(0.0, 1 / values[f"runtime-pytorch-{cited.dtype}"])
    setup = JobSetup(cited.workers, cited.batch_size, engine)
    expected = predict(costs(values, cited.decoder), step, MACHINE, setup)
    choices = asdict(cited)
    measured = values[choices.pop("claim")]
    return {
        **_SHARED,
        **choices,
        **prediction_columns(expected),
        "assumption": assumption,
        "resizer": "pil" if cited.decoder == "pil" else "opencv",
        "measured_img_per_s": measured,
        "error": expected.img_per_s / measured - 1,
        "reason": _SMALL_BATCH if cited.batch_size < 32 else "",
    }


def _values() -> dict[str, float]:
    with CLAIMS.open(encoding="utf-8", newline="") as handle:
        return {row["id"]: float(row["paper_value"]) for row in csv.DictReader(handle)}
