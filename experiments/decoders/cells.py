"""How long does each library take to turn JPEG bytes into an RGB array?

Method. The bytes are in memory; one call a buffer, one thread, after a complete pass as warm-up;
all decoders on both image sets. Mean, p50 and p90 are over the buffers of the median repeat.
`speedup_vs_pil` is the median of the ratios within each block of repeats, with the lowest and the
highest. First all decoders take the same images and their pixels are
compared with Pillow's: a decoder whose pixels differ (`gate`) gets no time. Only valid JPEGs of one
or three components take part.
"""

from dataclasses import replace
from functools import partial

from experiments import common
from experiments.common import Cell, Options, Plan, Records, Row, Tables, cell
from harness.decoders import DECODERS, LIBRARY_OF, NAMES, installed

RANK = 20
QUICK = True
CSV = "decoder-comparison.csv"
COLUMNS = common.columns(
    "image_set decoder library corpus device device_kind n_buffers repeats",
    "mean_ms p50_ms p90_ms mean_ms_min mean_ms_max megapixels_per_s page_faults_per_image",
    "speedup_vs_pil speedup_vs_pil_min speedup_vs_pil_max max_abs_diff gate",
    "median_kb median_megapixels origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
n_buffers | images | fact | files that were decoded
mean_ms | ms | measured | mean time of a decode call; the median repeat
megapixels_per_s | megapixels/s | measured | pixels decoded per second
page_faults_per_image | count | measured | page faults per decode
speedup_vs_pil | x | measured | Pillow's time over this one; the median of the blocks of repeats
max_abs_diff | levels | computed | largest difference of a channel from Pillow's pixels, 0 to 255
"""

_decode_ms = partial(common.mean_ms, samples="decode")


def cells(plan: Plan, options: Options) -> list[Cell]:
    """For each image set: agreement once; then each decoder, repeated."""
    base = plan.recipe(engine="serial", workers=0, device="cpu", batch_size=1)
    limits = options["agreement"]
    grid = []
    for image_set, corpus in plan.slices(options["images"]).items():
        sample = plan.slice(image_set, min(limits["images"], corpus.n))
        label = f"agreement-{image_set}"
        grid.append(cell(plan, "decoders", "agreement", label, base, sample, params=limits))
        for repeat in plan.repeats("decoders"):
            for name in options["decoders"] or NAMES:
                recipe = replace(base, name=name, decoder=name)
                label = f"{name}-{image_set}"
                params = plan.params
                if DECODERS[name].optional:
                    params["installed"] = installed(name)
                new = cell(plan, "decoders", "decode", label, recipe, corpus, params=params)
                grid.append(replace(new, repeat=repeat))
    return grid


def tables(records: Records) -> Tables:
    """One row per decoder and image set."""
    groups = common.groups(records, "decode")
    rows = {key: _row(repeats, records) for key, repeats in groups.items()}
    timed = {key: groups[key] for key, row in rows.items() if row["status"] == "ok"}
    for (image_set, label), repeats in timed.items():
        if baseline := timed.get((image_set, f"pil-{image_set}")):
            rows[image_set, label] |= _speedup(baseline, repeats)
    return {CSV: list(rows.values())}


def _speedup(baseline: Records, repeats: Records) -> Row:
    """Time over time within each block of repeats that has both."""
    by_repeat = {record.cell.repeat: record for record in common.measured(repeats)}
    ratios = [
        _decode_ms(record) / _decode_ms(by_repeat[repeat])
        for record in common.measured(baseline)
        if (repeat := record.cell.repeat) in by_repeat
    ]
    return common.with_spread("speedup_vs_pil", ratios) if ratios else {}


def _row(repeats: Records, records: Records) -> Row:
    decoder = repeats[0].cell.recipe.decoder
    version = repeats[0].environment["versions"].get(LIBRARY_OF[decoder], "")
    library = "libjpeg-turbo" if DECODERS[decoder].codec else LIBRARY_OF[decoder]
    optional = repeats[0].cell.params.get("installed")
    row = common.new_row(repeats, COLUMNS)
    row["library"] = optional or f"{library} {version}".strip()
    row |= _gate(records, decoder, repeats[0].cell.images.image_set)
    wrong = "its pixels are not Pillow's" if row["gate"] == "failed" else ""
    return common.complete(row, repeats, _measured, wrong)


def _measured(repeats: Records) -> Row:
    median_repeat = common.median_repeat(repeats, _decode_ms)
    row = common.value_columns(median_repeat, "page_faults_per_image")
    row |= common.timing_columns(repeats, "decode", (50, 90))
    row["n_buffers"] = len(median_repeat.samples["decode"])
    rate = median_repeat.values["megapixels"] / median_repeat.seconds_in("decode")
    return row | {"megapixels_per_s": rate}


def _gate(records: Records, decoder: str, image_set: str) -> Row:
    for record in records:
        if record.cell.protocol == "agreement" and common.image_set_of(record) == image_set:
            compared = record.values.get("agreement", {}).get(decoder, {})
            if "max_abs_diff" not in compared:
                break
            worst, limit = compared["max_abs_diff"], record.cell.params["max_abs_diff"]
            verdict = "passed" if worst <= limit else "failed"
            return {"max_abs_diff": worst, "gate": "reference" if decoder == "pil" else verdict}
    return {"gate": "not checked"}
