"""What does a file format cost to decode, at full size and at the least that the model needs?

Method. A corpus's pictures, decoded once and encoded anew by Pillow in every format and quality,
so that all rows are of the same pictures. One decoder a process, one thread; the bytes are in
memory; picture by picture all files in turn. At reduced size (`dct_scale=auto`), which only JPEG
has, decoders compute the smallest DCT scale that `dct_margin` allows. `psnr_db` compares what was
encoded with what Pillow decodes. `time_vs_baseline` is against a baseline JPEG by the same decoder
at the same size: of the same quality, or of a middle one where there is none.
"""

from dataclasses import replace
from functools import partial

from experiments import common
from experiments.common import Cell, Options, Plan, Records, Row, Tables, cell
from harness.decoders import DECODERS, NAMES

RANK = 35
CSV = "formats.csv"
COLUMNS = common.columns(
    "what format variant quality decoder dct_scale image_set corpus device device_kind",
    "n_images repeats median_kb img_per_s mean_ms p50_ms p90_ms mean_ms_min mean_ms_max",
    "time_vs_baseline psnr_db median_megapixels origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
format | | setting | file format
variant | | setting | baseline, progressive or 444 of a JPEG; lossy or lossless of a WebP
quality | | setting | the encoder's quality; empty where the format has none
img_per_s | images/s | measured | images decoded per second by one thread
mean_ms | ms | measured | mean time of a decode; the median repeat
time_vs_baseline | x | measured | time over that of a baseline JPEG by the same decoder at the same
  size
psnr_db | dB | computed | PSNR of what Pillow decodes against what was encoded
"""
#: These decoders read other formats than JPEG.
_ANY_FORMAT = ("pil", "opencv")


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Each decoder at full size and at a reduced one, repeated."""
    base = plan.recipe(engine="serial", workers=0, device="cpu", batch_size=1)
    corpus = plan.sample(options["images"])
    encodings = []
    for name, qualities in options["qualities"].items():
        encodings += [f"{name}-{quality}" for quality in qualities] or [name]
    jpegs = [key for key in encodings if key.startswith("jpeg")]
    grid = []
    for repeat in plan.repeats("formats"):
        for name in NAMES:
            for scale in ("full", "auto") if DECODERS[name].scales else ("full",):
                every = scale == "full" and name in _ANY_FORMAT
                params = {**plan.params, "encodings": encodings if every else jpegs}
                recipe = replace(base, name=name, decoder=name, dct_scale=scale)
                new = cell(plan, "formats", "formats", f"{name}-{scale}", recipe, corpus)
                grid.append(replace(new, repeat=repeat, params=params))
    return grid


def tables(records: Records) -> Tables:
    """One row per format, quality, decoder and size."""
    rows = []
    for repeats in common.groups(records, "formats").values():
        alike = [_row(repeats, key) for key in repeats[0].cell.params["encodings"]]
        base = {row["quality"]: row["mean_ms"] for row in alike if row["variant"] == "baseline"}
        middle = [*base.values()][len(base) // 2] if base else None
        for row in alike:
            base_ms = base.get(row["quality"], middle)
            if base_ms and row["mean_ms"]:
                row["time_vs_baseline"] = row["mean_ms"] / base_ms
        rows += alike
    return {CSV: rows}


def _row(repeats: Records, key: str) -> Row:
    repeats = [common.part_of(record, key, "decode") for record in repeats]
    name, _, quality = key.partition("-")
    format, _, variant = name.partition("_")
    is_reduced = repeats[0].cell.recipe.dct_scale == "auto"
    row = common.new_row(repeats, COLUMNS)
    row |= {"what": f"{key} reduced" if is_reduced else key, "format": format}
    row |= {"variant": variant, "quality": quality}
    return common.complete(row, repeats, partial(_measured, key=key))


def _measured(repeats: Records, key: str) -> Row:
    row = common.timing_columns(repeats, "decode", (50, 90))
    values = repeats[0].values
    row |= {name: values[name] for name in ("n_images", "median_megapixels")}
    row |= {"median_kb": values["kb"][key], "psnr_db": values["psnr_db"][key]}
    return row | {"img_per_s": 1e3 / row["mean_ms"]}
