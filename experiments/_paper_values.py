"""The paper's own end-to-end numbers, predicted from the paper's own costs of the parts.

Loading an image costs what the serial walls leave beside their forward pass: 42 % of Pillow's 588 s, and of
OpenCV's 493 s what is not that same forward pass, less what libjpeg-turbo decodes faster. The forward pass
costs what the runtimes' table gives for it alone, at batch 64. All of it is in `data/paper/claims.csv`.

Pillow's cells come twice. As the paper describes them, four workers load while the device computes: that
would bring 264 images a second. The paper measured 168, no more than its serial 170 and a third less than its
own libjpeg-turbo sweep, which says that in those cells nothing overlapped. Both are shown, each with its
assumption.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass

from experiments import Row
from wallclock import provenance
from wallclock.predict import Machine, Setup, StageCosts, StepTime, predict

CLAIMS = provenance.ROOT / "data" / "paper" / "claims.csv"
#: The write-up's box.
MACHINE = Machine(cores=16)

AS_DESCRIBED = "workers load while the device computes"
IN_TURN = "nothing overlaps, as the baseline's wall says"

#: What the paper says of its 256 px images as a whole; it has no figure for each cell.
DOMINATES = "accelerator"

_PER_100K = 100_000


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
    *(
        _Cited("batch", f"batch-{size}", f"batch-{size}", "pil", 4, size)
        for size in (1, 8, 32, 256)
    ),
    *(
        _Cited("workers", f"workers-{count}", f"workers-{count}", "turbojpeg", count, 64)
        for count in (0, 2)
    ),
)


def rows() -> list[Row]:
    """A row for each of the paper's end-to-end numbers and assumption; no cell of the table is left for others."""
    values = _values()
    found = []
    for cell in CELLS:
        pipelined = cell.workers > 0
        if pipelined and cell.decoder == "pil":
            found.append(_row(cell, values, "serial", IN_TURN))
        found.append(_row(cell, values, "dataloader", AS_DESCRIBED if pipelined else ""))
    return found


def costs(values: Mapping[str, float], decoder: str) -> StageCosts:
    """Seconds of loading an image of 256 px, by the paper's serial walls; what it does not split is in `assemble`."""
    wall = values["serial-small-pil-wall"] / _PER_100K
    shares = {
        name: values[f"serial-small-pil-{name}-share"] * wall
        for name in ("decode", "resize", "normalize")
    }
    forward = values["serial-small-pil-forward-share"] * wall
    if decoder == "pil":
        rest = wall - forward - sum(shares.values())
        return StageCosts(
            assemble_s=rest, **{f"{name}_s": seconds for name, seconds in shares.items()}
        )
    with_opencv = values["serial-small-opencv-wall"] / _PER_100K - forward
    saved = (values["decode-small-opencv"] - values["decode-small-turbojpeg"]) / 1e3
    decoded = values["decode-small-turbojpeg"] / 1e3
    return StageCosts(decode_s=decoded, resize_s=with_opencv - saved - decoded)


def _row(cell: _Cited, values: Mapping[str, float], engine: str, assumption: str) -> Row:
    step = StepTime(0.0, 1 / values[f"runtime-pytorch-{cell.dtype}"])
    setup = Setup(cell.workers, cell.batch_size, engine)
    said = predict(costs(values, cell.decoder), step, MACHINE, setup)
    measured = values[cell.claim]
    return {
        **{
            "experiment": cell.experiment,
            "recipe": cell.recipe,
            "assumption": assumption,
            "decoder": cell.decoder,
        },
        **{
            "resizer": "pil" if cell.decoder == "pil" else "opencv",
            "engine": "dataloader",
            "workers": cell.workers,
        },
        **{
            "batch_size": cell.batch_size,
            "dtype": cell.dtype,
            "image_set": "small_256",
            "corpus": "abo",
        },
        **{
            "weights": "pretrained",
            "device": "Tesla T4",
            "device_kind": "cuda",
            "n_images": None,
            "repeats": None,
        },
        **{"img_per_s": said.img_per_s, "img_per_s_low": said.low, "img_per_s_high": said.high},
        **{
            "measured_img_per_s": measured,
            "measured_origin": "paper",
            "error": said.img_per_s / measured - 1,
        },
        **{"bottleneck": said.bottleneck, "measured_bottleneck": DOMINATES},
        **{
            "accelerator_utilization": said.accelerator_utilization,
            "accelerator_bound": said.accelerator_bound,
        },
        **{f"{name}_img_per_s": rate for name, rate in said.supply.items()},
        **{"origin": "predicted", "status": "ok", "reason": _remark(cell)},
    }


def _remark(cell: _Cited) -> str:
    if cell.batch_size < 32:
        return "the paper gives the forward pass at batch 64 only: what a small batch pays more is not in it"
    return ""


def _values() -> dict[str, float]:
    with CLAIMS.open(encoding="utf-8", newline="") as handle:
        return {row["id"]: float(row["paper_value"]) for row in csv.DictReader(handle)}
