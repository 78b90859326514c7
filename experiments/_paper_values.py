"""The paper's own end-to-end numbers, predicted from the paper's own costs of the parts.

Loading an image costs what the serial walls leave beyond their forward pass: 42 % of Pillow's
588 s, and of OpenCV's 493 s what is not that same forward pass, less what libjpeg-turbo decodes
faster. The forward pass costs what the runtimes' table gives for it alone, at batch 64. All of it
is in `data/paper/claims.csv`.

Pillow's cells come twice. As the paper describes them, four workers load while the device computes:
that would bring 264 images per second. The paper measured 168, no more than its serial 170 and a
third less than its own libjpeg-turbo sweep, which says that in those cells nothing overlapped. Both
are shown, each with its assumption.
"""

import csv
from collections.abc import Mapping

from experiments._common import Row, columns
from experiments._costs import prediction_columns
from harness import provenance
from wallclock.predict import JobSetup, Machine, Pipeline, StageCosts, StepTime

CLAIMS = provenance.ROOT / "data" / "paper" / "claims.csv"

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

#: The paper's end-to-end numbers: how each was run, and at last the claim that holds it.
_CHOICES = columns("experiment recipe decoder workers batch_size dtype")
_CELLS = (
    ("t4", "baseline", "pil", 4, 32, "fp32", "baseline-rate"),
    ("opt", "optimized", "turbojpeg", 8, 64, "fp16", "optimized-rate"),
    *(("batch", f"batch-{n}", "pil", 4, n, "fp32", f"batch-{n}") for n in (1, 8, 32, 256)),
    *(("workers", f"workers-{n}", "turbojpeg", n, 64, "fp32", f"workers-{n}") for n in (0, 2)),
)


def rows() -> list[Row]:
    """A row for each of the paper's end-to-end numbers, under each assumption that fits it."""
    values = paper_values()
    predicted = []
    for cell in _CELLS:
        _, _, decoder, workers, size, dtype, claim = cell
        engines = {"dataloader": OVERLAPPED if workers else ""}
        if workers and decoder == "pil":
            engines = {"serial": SEQUENTIAL, **engines}
        for engine, assumption in engines.items():
            step = StepTime(0.0, 1 / values[f"runtime-pytorch-{dtype}"])
            setup, machine = JobSetup(workers, size, engine), Machine(cores=16)
            expected = Pipeline(costs(values, decoder), step, machine, setup).predict()
            row = {
                **_SHARED,
                **dict(zip(_CHOICES, cell, strict=False)),
                **prediction_columns(expected),
                "assumption": assumption,
                "resizer": "pil" if decoder == "pil" else "opencv",
                "measured_img_per_s": values[claim],
                "error": expected.img_per_s / values[claim] - 1,
                "reason": _SMALL_BATCH if size < 32 else "",
            }
            predicted.append(row)
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


def paper_values() -> dict[str, float]:
    with CLAIMS.open(encoding="utf-8", newline="") as handle:
        return {row["id"]: float(row["paper_value"]) for row in csv.DictReader(handle)}
