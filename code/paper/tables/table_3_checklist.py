"""Table 3: the nine stages as a checklist: share, when it hurts, fix, cost, measured gain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from experiments.decoders import cells as decoders
from experiments.onnx import cells as onnx
from experiments.opt import cells as opt
from experiments.serial import cells as serial
from experiments.serialization import cells as serialization
from experiments.stage_fixes import cells as stage_fixes
from experiments.storage import cells as storage
from experiments.t4 import cells as t4
from experiments.workers import cells as sweep
from harness.drawing.labels import CORPORA, SHORT_SETS
from harness.drawing.rendering import NothingToDrawError, Tables, output
from harness.table import join_distinct, read_table
from paper.tables import table
from paper.tables.table import SourceRow, Table, Value, find, ratio, rows_of
from wallclock.clock import STAGES

_SOURCES = (
    serial.CSVS["original"],
    serial.CSVS["small_256"],
    decoders.CSV,
    onnx.CSV,
    serialization.CSV,
    sweep.CSV,
    t4.CSV,
    opt.CSV,
    stage_fixes.CSV,
    storage.CSV,
)


@dataclass(frozen=True)
class Gain:
    """A measured factor, empty where there is none, and what it is a factor of."""

    factor: Value
    measured_as: str


_NOT_RUN = Gain(Value(), "not run")


@output(
    "table-3-checklist",
    "The nine stages: when each becomes the bottleneck, and what to do about it",
    optional=_SOURCES,
)
def build(tables: Tables) -> Table:
    """Ten rows: a stage each, then all fixes together."""
    if not any(source.ok for csv in _SOURCES for source in rows_of(tables, csv)):
        raise NothingToDrawError(f"no row with status ok in {', '.join(tables)}")
    passes = {
        "share_original": find(tables, serial.CSVS["original"], decoder="pil"),
        "share_small": find(tables, serial.CSVS["small_256"], decoder="pil"),
    }
    rows = []
    # When each stage is the bottleneck, its fix, and what that costs.
    for advice in read_table(table.TEMPLATES / "checklist.csv"):
        stage = advice["stage"]
        row = {name: Value(text) for name, text in advice.items()}
        for name, source in passes.items():
            row[name] = source.number(f"{stage}_share") if source and stage in STAGES else Value()
        gain = _gain_of(stage, tables)
        row["gain"], row["gain_of"] = gain.factor, Value(gain.measured_as)
        rows.append(row)
    measured = [source for source in passes.values() if source is not None]
    return Table(table.columns_of("table-3-checklist"), tuple(rows), _caption(measured))


def _gain_of(stage: str, tables: Tables) -> Gain:
    """What the fix of a stage, or all together, brings."""
    if stage in stage_fixes.STAGES:
        return _stage_gain(stage, tables)
    return _GAINS[stage](tables)


def _gain(
    numerator: SourceRow | None, denominator: SourceRow | None, column: str, measured_as: str
) -> Gain:
    if numerator is None or denominator is None:
        return _NOT_RUN
    factor = ratio(numerator.number(column), denominator.number(column))
    return _NOT_RUN if factor.value is None else Gain(factor, measured_as)


def _read_gain(tables: Tables) -> Gain:
    """Of the read alone, where `storage` ran; else of the job."""
    for name in ("original", "small_256"):
        alike = {"form": "files", "source": "cold", "finish": "bytes", "image_set": name}
        sequential = find(tables, storage.CSV, **alike, access="sequential")
        ahead = find(tables, storage.CSV, **alike, access="ahead")
        if sequential and ahead:
            times = f"{ahead.row['in_flight']} at a time over one by one"
            measured_as = f"{SHORT_SETS[name]} per second, cold, {times}"
            return _gain(ahead, sequential, "img_per_s", measured_as)
    return _workers_gain(tables)


def _stage_gain(stage: str, tables: Tables) -> Gain:
    """Of the stage alone, with the fix over without."""
    for source in rows_of(tables, stage_fixes.CSV):
        row = source.row
        if row["stage"] != stage:
            continue
        measured_as = f"µs an image: {row['plain']}; with the fix, {row['fixed']}"
        if not source.ok:
            measured_as = f"{row['status']}: {row['reason']}"
        return Gain(source.number("gain"), measured_as)
    return _NOT_RUN


def _decode_gain(tables: Tables) -> Gain:
    for name in ("original", "small_256"):
        pil = find(tables, decoders.CSV, image_set=name, decoder="pil")
        turbo = find(tables, decoders.CSV, image_set=name, decoder="turbojpeg")
        if pil and turbo:
            measured_as = f"ms per image, PIL over libjpeg-turbo, {SHORT_SETS[name]}"
            return _gain(pil, turbo, "mean_ms", measured_as)
    return _NOT_RUN


def _resize_gain(tables: Tables) -> Gain:
    pil = find(tables, serial.CSVS["original"], resizer="pil")
    opencv = find(tables, serial.CSVS["original"], resizer="opencv")
    if pil is None or opencv is None:
        return _NOT_RUN
    slow = ratio(pil.number("resize_s"), pil.number("n_images"))
    fast = ratio(opencv.number("resize_s"), opencv.number("n_images"))
    psnr = opencv.row.get("psnr_db")
    note = f"; PSNR {psnr:.0f} dB against PIL's" if psnr else ""
    measured_as = f"s an original, PIL over OpenCV {opencv.row['interpolation']}{note}"
    return Gain(ratio(slow, fast), measured_as)


def _forward_gain(tables: Tables) -> Gain:
    full = find(tables, onnx.CSV, runtime="pytorch", dtype="fp32", pruned=0)
    alike = {"model": full.row["model"], "pruned": 0} if full else {}
    for dtype in ("fp16", "bf16"):
        half = find(tables, onnx.CSV, runtime="pytorch", dtype=dtype, **alike)
        if half is not None:
            cosine = half.row.get("cosine")
            note = f"; cosine to FP32 {cosine:.5f}" if cosine else ""
            measured_as = f"img/s of the forward pass, PyTorch {dtype.upper()} over FP32{note}"
            return _gain(half, full, "img_per_s", measured_as)
    return _NOT_RUN


def _sink_gain(tables: Tables) -> Gain:
    parquet = find(tables, serialization.CSV, format="parquet")
    alike = {name: parquet.row[name] for name in ("fsync", "n_vectors")} if parquet else {}
    npy = find(tables, serialization.CSV, format="npy", **alike)
    return _gain(npy, parquet, "vectors_per_s", "vectors/s, npy append over parquet")


def _workers_gain(tables: Tables) -> Gain:
    none = find(tables, sweep.CSV, workers=0)
    some = [source for source in rows_of(tables, sweep.CSV) if source.row["workers"]]
    if none:
        some = [source for source in some if source.row["decoder"] == none.row["decoder"]]
    best = max((source for source in some if source.ok), key=_img_per_s, default=None)
    count = best.row["workers"] if best else ""
    return _gain(best, none, "img_per_s", f"img/s of the job, {count} workers over none")


def _img_per_s(source: SourceRow) -> float:
    return source.row["img_per_s"] or 0


def _all_gain(tables: Tables) -> Gain:
    baseline, optimized = find(tables, t4.CSV), find(tables, opt.CSV)
    alike = ("corpus", "image_set", "device")
    if baseline and optimized and any(baseline.row[name] != optimized.row[name] for name in alike):
        return Gain(Value(), "the two runs are not alike")
    return _gain(optimized, baseline, "img_per_s", "img/s end to end, all wins over the baseline")


#: Of the stages that `stage_fixes` does not measure alone.
_GAINS: Mapping[str, Callable[[Tables], Gain]] = {
    "read": _read_gain,
    "decode": _decode_gain,
    "resize": _resize_gain,
    "forward": _forward_gain,
    "serialize": _sink_gain,
    "all together": _all_gain,
}


def _caption(measured: list[SourceRow]) -> str:
    if not measured:
        return "No shares: the serial decomposition was not run."
    rows = [source.row for source in measured]
    mock = any(row.get("weights") == "none" for row in rows)
    forward = " The forward pass is a mock model of fixed time." if mock else ""
    return (
        "Shares: of the wall time of the serial pass with PIL's decode and resize, on "
        f"{join_distinct(rows, 'device')}, {join_distinct(rows, 'corpus', CORPORA)}.{forward} "
        "Gains: with the fix over without it, from the CSVs of this run; below 1 it does not pay."
    )
