"""Table 3: the nine stages as a checklist: share, when it hurts, fix, cost, measured gain."""

from collections.abc import Callable, Mapping
from functools import partial

from experiments import decoders, onnx, opt, serial, serialization, stage_fixes, storage, t4
from experiments import workers as sweep
from paper.csvfile import joined, read_table
from paper.labels import CORPORA, SHORT_SETS
from paper.rendering import NothingToDrawError, Tables, output
from paper.tables import table
from paper.tables.table import SourceRow, Table, Value, find, ratio, rows_of
from wallclock.clock import STAGES

_SOURCES = (
    *(serial.CSVS["original"], serial.CSVS["small_256"], decoders.CSV, onnx.CSV),
    *(serialization.CSV, sweep.CSV, t4.CSV, opt.CSV),
    *(stage_fixes.CSV, storage.CSV),
)

#: A measured factor, and what it was measured as.
Gain = tuple[Value, str]
_NOT_RUN: Gain = (Value(), "not run")


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
        stage, row = advice["stage"], {name: Value(text) for name, text in advice.items()}
        for name, source in passes.items():
            row[name] = source.number(f"{stage}_share") if source and stage in STAGES else Value()
        row["gain"], what = _GAINS[stage](tables)
        rows.append(row | {"gain_of": Value(what)})
    measured = [source for source in passes.values() if source is not None]
    return Table(table.columns_of("table-3-checklist"), tuple(rows), _caption(measured))


def _gain(above: SourceRow | None, below: SourceRow | None, column: str, what: str) -> Gain:
    if above is None or below is None:
        return _NOT_RUN
    gain = ratio(above.number(column), below.number(column))
    return (gain, what) if gain.value is not None else _NOT_RUN


def _read_gain(tables: Tables) -> Gain:
    """Of the read alone, where `storage` ran; else of the job."""
    for name in ("original", "small_256"):
        alike = {"form": "files", "source": "cold", "finish": "bytes", "image_set": name}
        one = find(tables, storage.CSV, **alike, access="sequential")
        ahead = find(tables, storage.CSV, **alike, access="ahead")
        if one and ahead:
            times = f"{ahead.row['in_flight']} at a time over one by one"
            return _gain(ahead, one, "img_per_s", f"{SHORT_SETS[name]} a second, cold, {times}")
    return _workers_gain(tables)


def _stage_gain(stage: str, tables: Tables) -> Gain:
    """Of the stage alone, with the fix over without."""
    for source in rows_of(tables, stage_fixes.CSV):
        row = source.row
        if row["stage"] == stage:
            what = f"µs an image: {row['plain']}; with the fix, {row['fixed']}"
            return source.number("gain"), what if source.ok else f"{row['status']}: {row['reason']}"
    return _NOT_RUN


def _decode_gain(tables: Tables) -> Gain:
    for name in ("original", "small_256"):
        pil = find(tables, decoders.CSV, image_set=name, decoder="pil", context="loop")
        turbo = find(tables, decoders.CSV, image_set=name, decoder="turbojpeg", context="loop")
        if pil and turbo:
            what = f"ms an image, PIL over libjpeg-turbo, {SHORT_SETS[name]}"
            return _gain(pil, turbo, "mean_ms", what)
    return _NOT_RUN


def _resize_gain(tables: Tables) -> Gain:
    pil = find(tables, serial.CSVS["original"], resizer="pil")
    opencv = find(tables, serial.CSVS["original"], resizer="opencv")
    if pil is None or opencv is None:
        return _NOT_RUN
    slow, fast = (ratio(row.number("resize_s"), row.number("n_images")) for row in (pil, opencv))
    psnr = opencv.row.get("psnr_db")
    note = f"; PSNR {float(psnr):.0f} dB against PIL's" if psnr else ""
    what = f"s an original, PIL over OpenCV {opencv.row['interpolation']}{note}"
    return ratio(slow, fast), what


def _forward_gain(tables: Tables) -> Gain:
    full = find(tables, onnx.CSV, runtime="pytorch", dtype="fp32", pruned="0")
    alike = {"model": full.row["model"], "pruned": "0"} if full else {}
    for dtype in ("fp16", "bf16"):
        if half := find(tables, onnx.CSV, runtime="pytorch", dtype=dtype, **alike):
            cosine = half.row.get("cosine")
            note = f"; cosine to FP32 {float(cosine):.5f}" if cosine else ""
            what = f"img/s of the forward pass, PyTorch {dtype.upper()} over FP32{note}"
            return _gain(half, full, "img_per_s", what)
    return _NOT_RUN


def _sink_gain(tables: Tables) -> Gain:
    parquet = find(tables, serialization.CSV, format="parquet")
    alike = {name: parquet.row[name] for name in ("fsync", "n_vectors")} if parquet else {}
    npy = find(tables, serialization.CSV, format="npy", **alike)
    return _gain(npy, parquet, "vectors_per_s", "vectors/s, npy append over parquet")


def _workers_gain(tables: Tables) -> Gain:
    none = find(tables, sweep.CSV, workers="0")
    others = [row for row in rows_of(tables, sweep.CSV) if row.ok and row.row["workers"] != "0"]
    best = max(others, key=lambda row: float(row.row["img_per_s"] or 0), default=None)
    count = best.row["workers"] if best else ""
    return _gain(best, none, "img_per_s", f"img/s of the job, {count} workers over none")


def _all_gain(tables: Tables) -> Gain:
    baseline, optimized = find(tables, t4.CSV), find(tables, opt.CSV)
    alike = ("corpus", "image_set", "device")
    if baseline and optimized and any(baseline.row[name] != optimized.row[name] for name in alike):
        return Value(), "the two runs are not alike"
    return _gain(optimized, baseline, "img_per_s", "img/s end to end, all wins over the baseline")


_GAINS: Mapping[str, Callable[[Tables], Gain]] = {
    "read": _read_gain,
    "decode": _decode_gain,
    "resize": _resize_gain,
    "forward": _forward_gain,
    "serialize": _sink_gain,
    "all together": _all_gain,
    **{stage: partial(_stage_gain, stage) for stage in stage_fixes.STAGES},
}


def _caption(measured: list[SourceRow]) -> str:
    if not measured:
        return "No shares: the serial decomposition was not run."
    rows = [source.row for source in measured]
    mock = any(row.get("weights") == "none" for row in rows)
    forward = " The forward pass is a mock model of fixed time." if mock else ""
    return (
        "Shares: of the wall time of the serial pass with PIL's decode and resize, on "
        f"{joined(rows, 'device')}, {joined(rows, 'corpus', CORPORA)}.{forward} "
        "Gains: with the fix over without it, from the CSVs of this run; below 1 it does not pay."
    )
