"""Table 3: the nine stages as a checklist: share, when it hurts, the fix, its cost, its measured gain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wallclock.clock import STAGES
from wallclock.paper.labels import CORPORA
from wallclock.paper.rendering import NothingToDrawError, Tables
from wallclock.paper.tables.table import (
    FACTOR,
    PERCENT,
    Cell,
    Column,
    Found,
    Table,
    find,
    found_in,
    ratio,
)

STEM = "table-3-checklist"
TITLE = "The nine stages: when each becomes the bottleneck, and what to do about it"
SOURCES: tuple[str, ...] = ()
OPTIONAL: tuple[str, ...] = (
    "t4-serial-stages-original.csv",
    "t4-serial-stages.csv",
    "decoder-comparison.csv",
    "onnx-vs-pytorch.csv",
    "serialization-comparison.csv",
    "workers-sweep.csv",
    "t4-baseline-stages.csv",
    "optimized-end-to-end.csv",
)
_ORIGINAL, _SMALL, _DECODERS, _ONNX, _SINKS, _WORKERS, _BASELINE, _OPTIMIZED = OPTIONAL

_COLUMNS = (
    Column("stage", "stage"),
    Column("share_original", "share, originals", PERCENT),
    Column("share_small", "share, 256 px", PERCENT),
    Column("bottleneck_when", "the bottleneck when", width=0.14),
    Column("fix", "fix", width=0.16),
    Column("cost", "what it costs", width=0.12),
    Column("gain", "gain", FACTOR),
    Column("gain_of", "measured as", width=0.12),
)


@dataclass(frozen=True)
class _Advice:
    """What there is to say of a stage; `gain` finds the measured factor and says of what it is."""

    when: str
    fix: str
    cost: str
    gain: Callable[[Tables], tuple[Cell, str]] = lambda tables: (Cell(), "not measured here")


def build(tables: Tables) -> Table:
    """Ten rows: a stage each, then all fixes together.

    Raises:
        NothingToDrawError: no table has anything that is measured.
    """
    if not any(found.ok for csv in OPTIONAL for found in found_in(tables, csv)):
        raise NothingToDrawError(f"no row with status ok in {', '.join(tables)}")
    shares = {
        "share_original": find(tables, _ORIGINAL, decoder="pil"),
        "share_small": find(tables, _SMALL, decoder="pil"),
    }
    rows = []
    for stage, advice in _ADVICE.items():
        gain, of = advice.gain(tables)
        row = {name: _share(found, stage) for name, found in shares.items()}
        row |= {"stage": Cell(stage), "bottleneck_when": Cell(advice.when), "fix": Cell(advice.fix)}
        row |= {"cost": Cell(advice.cost), "gain": gain, "gain_of": Cell(of)}
        rows.append(row)
    return Table(_COLUMNS, tuple(rows), _caption(tables, shares))


def _share(found: Found | None, stage: str) -> Cell:
    return found.number(f"{stage}_share") if found is not None and stage in STAGES else Cell()


def _pair(above: Found | None, below: Found | None, column: str, of: str) -> tuple[Cell, str]:
    if above is None or below is None:
        return Cell(), "not run"
    found = ratio(above.number(column), below.number(column))
    return (found, of) if found.value is not None else (Cell(), "not run")


def _decode_gain(tables: Tables) -> tuple[Cell, str]:
    for image_set, name in (("original", "originals"), ("small_256", "256 px images")):
        pil, turbo = (
            find(tables, _DECODERS, image_set=image_set, decoder=each)
            for each in ("pil", "turbojpeg")
        )
        if pil and turbo:
            return _pair(pil, turbo, "mean_ms", f"ms an image, PIL over libjpeg-turbo, {name}")
    return Cell(), "not run"


def _resize_gain(tables: Tables) -> tuple[Cell, str]:
    pil, opencv = find(tables, _ORIGINAL, resizer="pil"), find(tables, _ORIGINAL, resizer="opencv")
    if pil is None or opencv is None:
        return Cell(), "not run"
    each = [ratio(found.number("resize_s"), found.number("n_images")) for found in (pil, opencv)]
    psnr = opencv.row.get("psnr_db")
    note = f"; the result is {float(psnr):.0f} dB from PIL's" if psnr else ""
    return ratio(*each), f"s an original, PIL over OpenCV {opencv.row['interpolation']}{note}"


def _forward_gain(tables: Tables) -> tuple[Cell, str]:
    full = find(tables, _ONNX, runtime="pytorch", dtype="fp32")
    for dtype in ("fp16", "bf16"):
        half = find(tables, _ONNX, runtime="pytorch", dtype=dtype)
        if half is not None:
            cosine = half.row.get("cosine")
            note = f"; cosine to FP32 {float(cosine):.5f}" if cosine else ""
            return _pair(
                half,
                full,
                "img_per_s",
                f"img/s of the forward pass, PyTorch {dtype.upper()} over FP32{note}",
            )
    return Cell(), "not run"


def _sink_gain(tables: Tables) -> tuple[Cell, str]:
    parquet = find(tables, _SINKS, format="parquet")
    alike = {name: parquet.row[name] for name in ("fsync", "n_vectors")} if parquet else {}
    npy = find(tables, _SINKS, format="npy", **alike)
    return _pair(npy, parquet, "vectors_per_s", "vectors/s, npy append over parquet")


def _workers_gain(tables: Tables) -> tuple[Cell, str]:
    none = find(tables, _WORKERS, workers="0")
    others = [
        found for found in found_in(tables, _WORKERS) if found.ok and found.row["workers"] != "0"
    ]
    if none is None or not others:
        return Cell(), "not run"
    best = max(others, key=lambda found: float(found.row["img_per_s"] or 0))
    return _pair(
        best, none, "img_per_s", f"img/s of the whole job, {best.row['workers']} workers over none"
    )


def _all_gain(tables: Tables) -> tuple[Cell, str]:
    baseline, optimized = find(tables, _BASELINE), find(tables, _OPTIMIZED)
    alike = ("corpus", "image_set", "device")
    if baseline and optimized and any(baseline.row[name] != optimized.row[name] for name in alike):
        return Cell(), "the two runs are not alike"
    return _pair(optimized, baseline, "img_per_s", "img/s end to end, all wins over the baseline")


_ADVICE = {
    "read": _Advice(
        "files are cold, far away, or many and small",
        "more loader workers; images packed into large files",
        "memory a worker; a second copy of the corpus",
        _workers_gain,
    ),
    "decode": _Advice(
        "images have a megapixel or more",
        "libjpeg-turbo, decoding at a reduced DCT scale where the target is small",
        "a native library; rotation and colour spaces by hand",
        _decode_gain,
    ),
    "resize": _Advice(
        "images are large and the filter antialiases",
        "OpenCV's resize: INTER_AREA keeps the antialiasing, INTER_LINEAR leaves it out",
        "other pixels than PIL's: compare the vectors",
        _resize_gain,
    ),
    "normalize": _Advice(
        "images are small and decode is fast",
        "send uint8 to the device and normalize there",
        "a kernel more on the device",
    ),
    "assemble": _Advice(
        "batches are large and one process stacks them",
        "stack in the workers, into pinned memory",
        "shared and page-locked memory",
    ),
    "h2d": _Advice(
        "inputs are float32 and the bus is slow",
        "pinned memory and non_blocking copies; FP16 or uint8 inputs",
        "page-locked memory",
    ),
    "forward": _Advice(
        "images are small, or the loader keeps up",
        "FP16, then a larger batch",
        "slightly other vectors: compare them",
        _forward_gain,
    ),
    "d2h": _Advice(
        "every patch's vector is kept, not the pooled one",
        "pool on the device, copy once a batch",
        "nothing",
    ),
    "serialize": _Advice(
        "all else is fast, or every batch is synced",
        "npy append or LMDB in place of parquet; large chunks",
        "no schema and no compression",
        _sink_gain,
    ),
    "all together": _Advice("", "all of the above", "", _all_gain),
}


def _caption(tables: Tables, shares: dict[str, Found | None]) -> str:
    measured = [found for found in shares.values() if found is not None]
    machines = " / ".join(dict.fromkeys(found.row["device"] for found in measured))
    corpora = " / ".join(
        dict.fromkeys(CORPORA.get(found.row["corpus"], found.row["corpus"]) for found in measured)
    )
    if not measured:
        return "No shares: the serial decomposition was not run."
    mock = any(found.row.get("weights") == "none" for found in measured)
    forward = " The forward pass is a mock model of fixed time." if mock else ""
    return (
        f"Shares: of the wall of the serial pass with PIL's decode and resize, on {machines}, {corpora}.{forward} "
        "Gains: the better over the worse, from the CSVs of this run."
    )
