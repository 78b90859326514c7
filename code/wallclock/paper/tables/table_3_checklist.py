"""Table 3: the nine stages as a checklist: share, when it hurts, fix, cost, measured gain."""

from __future__ import annotations

from experiments import decoders, onnx, opt, serial, serialization, t4, workers
from wallclock.clock import STAGES
from wallclock.paper.csvfile import joined, read_table
from wallclock.paper.labels import CORPORA, SHORT_SETS
from wallclock.paper.rendering import NothingToDrawError, Tables, output
from wallclock.paper.tables import table
from wallclock.paper.tables.table import Column, SourceRow, Table, Value, find, ratio, rows_of

#: When each stage is the bottleneck, its fix, and what that costs.
_ADVICE = table.TEMPLATES / "checklist.csv"
_SOURCES = (
    *(serial.CSVS["original"], serial.CSVS["small_256"], decoders.CSV, onnx.CSV),
    *(serialization.CSV, workers.CSV, t4.CSV, opt.CSV),
)
_COLUMNS = (
    Column("stage", "stage"),
    Column("share_original", "share, originals", table.PERCENT),
    Column("share_small", "share, 256 px", table.PERCENT),
    Column("bottleneck_when", "the bottleneck when", width=0.14),
    Column("fix", "fix", width=0.16),
    Column("cost", "what it costs", width=0.12),
    Column("gain", "gain", table.FACTOR),
    Column("gain_of", "measured as", width=0.12),
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
    shares = {
        "share_original": find(tables, serial.CSVS["original"], decoder="pil"),
        "share_small": find(tables, serial.CSVS["small_256"], decoder="pil"),
    }
    rows = []
    for advice in read_table(_ADVICE):
        measure = _GAINS.get(advice["stage"])
        gain, measured_as = measure(tables) if measure else (Value(), "not measured here")
        row = {name: _share(source, advice["stage"]) for name, source in shares.items()}
        row |= {name: Value(text) for name, text in advice.items()}
        rows.append(row | {"gain": gain, "gain_of": Value(measured_as)})
    measured = [source for source in shares.values() if source is not None]
    return Table(_COLUMNS, tuple(rows), _caption(measured))


def _share(source: SourceRow | None, stage: str) -> Value:
    return source.number(f"{stage}_share") if source and stage in STAGES else Value()


def _gain(above: SourceRow | None, below: SourceRow | None, column: str, what: str) -> Gain:
    if above is None or below is None:
        return _NOT_RUN
    gain = ratio(above.number(column), below.number(column))
    return (gain, what) if gain.value is not None else _NOT_RUN


def _decode_gain(tables: Tables) -> Gain:
    for image_set in ("original", "small_256"):
        pil, turbo = (
            find(tables, decoders.CSV, image_set=image_set, decoder=decoder)
            for decoder in ("pil", "turbojpeg")
        )
        if pil and turbo:
            what = f"ms an image, PIL over libjpeg-turbo, {SHORT_SETS[image_set]}"
            return _gain(pil, turbo, "mean_ms", what)
    return _NOT_RUN


def _resize_gain(tables: Tables) -> Gain:
    pil, opencv = (
        find(tables, serial.CSVS["original"], resizer=resizer) for resizer in ("pil", "opencv")
    )
    if pil is None or opencv is None:
        return _NOT_RUN
    slow, fast = (ratio(row.number("resize_s"), row.number("n_images")) for row in (pil, opencv))
    psnr = opencv.row.get("psnr_db")
    note = f"; the result is {float(psnr):.0f} dB from PIL's" if psnr else ""
    measured_as = f"s an original, PIL over OpenCV {opencv.row['interpolation']}{note}"
    return ratio(slow, fast), measured_as


def _forward_gain(tables: Tables) -> Gain:
    full = find(tables, onnx.CSV, runtime="pytorch", dtype="fp32")
    for dtype in ("fp16", "bf16"):
        half = find(tables, onnx.CSV, runtime="pytorch", dtype=dtype)
        if half is not None:
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
    none = find(tables, workers.CSV, workers="0")
    others = [row for row in rows_of(tables, workers.CSV) if row.ok and row.row["workers"] != "0"]
    if none is None or not others:
        return _NOT_RUN
    best = max(others, key=lambda row: float(row.row["img_per_s"] or 0))
    what = f"img/s of the job, {best.row['workers']} workers over none"
    return _gain(best, none, "img_per_s", what)


def _all_gain(tables: Tables) -> Gain:
    baseline, optimized = find(tables, t4.CSV), find(tables, opt.CSV)
    alike = ("corpus", "image_set", "device")
    if baseline and optimized and any(baseline.row[name] != optimized.row[name] for name in alike):
        return Value(), "the two runs are not alike"
    return _gain(optimized, baseline, "img_per_s", "img/s end to end, all wins over the baseline")


_GAINS = {
    "read": _workers_gain,
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
        f"{joined(rows, 'device')}, {joined(rows, 'corpus', CORPORA)}.{forward} "
        "Gains: the better over the worse, from the CSVs of this run."
    )
