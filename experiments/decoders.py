"""How long does each library take to turn JPEG bytes into an RGB array?

Method. The bytes are in memory; one call a buffer, one thread; four decoders on both image sets.
Mean, p50 and p90 are over the buffers of the median repeat. First all decoders take the same images
and their pixels are compared with Pillow's: a decoder whose pixels differ (`gate`) gets no time.
Only valid JPEGs of one or three components take part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from experiments import _rows
from experiments._cells import cell
from experiments._rows import Row
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell
from wallclock.stages.decode import CPU_DECODERS, DECODERS, LIBRARY_OF

RANK = 20
QUICK = True
CSV = "decoder-comparison.csv"
COLUMNS = _rows.columns(
    "image_set decoder library corpus device device_kind n_buffers repeats",
    "mean_ms p50_ms p90_ms mean_ms_min mean_ms_max megapixels_per_s max_abs_diff gate",
    "median_kb median_megapixels origin status reason",
)
TABLES = {CSV: COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """For each image set: agreement once; then each decoder, repeated."""
    base = plan.recipe(engine="serial", workers=0, device="cpu", batch_size=1)
    limits = options["agreement"]
    grid = []
    for image_set, corpus in plan.slices(options["images"]).items():
        sample = plan.slice(image_set, min(limits["images"], corpus.n))
        label = f"agreement-{image_set}"
        grid.append(cell(plan, "decoders", "agreement", label, base, sample, params=limits))
        for repeat in plan.repeats("decoders"):
            for name in options["decoders"] or CPU_DECODERS:
                recipe, label = replace(base, name=name, decoder=name), f"{name}-{image_set}"
                grid.append(cell(plan, "decoders", "decode", label, recipe, corpus, repeat=repeat))
    return grid


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row per decoder and image set."""
    return {CSV: [_row(repeats, records) for repeats in _rows.groups(records, "decode").values()]}


def _row(repeats: Sequence[Record], records: Sequence[Record]) -> Row:
    decoder = repeats[0].cell.recipe.decoder
    version = repeats[0].environment["versions"].get(LIBRARY_OF[decoder], "")
    library = "libjpeg-turbo" if DECODERS[decoder].codec else LIBRARY_OF[decoder]
    row = _rows.new_row(repeats, COLUMNS) | {"library": f"{library} {version}".strip()}
    row |= _gate(records, decoder, repeats[0].cell.images.image_set)
    if row["status"] != "ok":
        return row
    if row["gate"] == "failed":
        return row | _rows.withheld("its pixels are not Pillow's")
    shown = _rows.median_repeat(repeats, partial(_rows.mean_ms, samples="decode"))
    rate = shown.values["megapixels"] / shown.seconds_in("decode")
    row |= {"n_buffers": len(shown.samples["decode"]), "megapixels_per_s": rate}
    row |= _rows.size_columns(shown.values)
    return row | _rows.timing_columns(repeats, "decode", (50, 90))


def _gate(records: Sequence[Record], decoder: str, image_set: str) -> Row:
    for record in records:
        if record.cell.protocol == "agreement" and _rows.image_set_of(record) == image_set:
            compared = record.values.get("agreement", {}).get(decoder, {})
            if "max_abs_diff" not in compared:
                break
            worst, limit = compared["max_abs_diff"], record.cell.params["max_abs_diff"]
            verdict = "passed" if worst <= limit else "failed"
            return {"max_abs_diff": worst, "gate": "reference" if decoder == "pil" else verdict}
    return {"gate": "not checked"}
