"""How long does each library take to turn JPEG bytes into an RGB array?

Method. The bytes are in memory; one call a buffer, one thread, after a complete pass as warm-up;
all decoders on both image sets. Mean, p50 and p90 are over the buffers of the median repeat.
`speedup_vs_pil` is the median of the ratios within each block of repeats, with the lowest and the
highest. First all decoders take the same images and their pixels are
compared with Pillow's: a decoder whose pixels differ (`gate`) gets no time. Only valid JPEGs of one
or three components take part.

`context=dataloader`: the same decoders in the workers of this suite's DataLoader, one per core,
which also read, resize with torch and assemble uint8 batches, in steady state. `mean_ms` is again
of the decode calls, now concurrent; `img_per_s` is what the loader delivers, and the speedup
goes by it.
"""

from dataclasses import replace
from functools import partial

from experiments import _common
from experiments._common import Cell, Options, Plan, Recipe, Record, Records, Row, Tables, cell
from harness import provenance
from harness.decoders import DECODERS, LIBRARY_OF, installed
from wallclock.summary import median

RANK = 20
QUICK = True
CSV = "decoder-comparison.csv"
COLUMNS = _common.columns(
    "image_set decoder context library workers corpus device device_kind n_buffers repeats",
    "mean_ms p50_ms p90_ms mean_ms_min mean_ms_max img_per_s",
    "megapixels_per_s page_faults_per_image",
    "speedup_vs_pil speedup_vs_pil_min speedup_vs_pil_max max_abs_diff gate",
    "median_kb median_megapixels origin status reason",
)
TABLES = {CSV: COLUMNS}
#: Protocol → where the decoder is called.
_CONTEXTS = {"decode": "loop", "loading": "dataloader"}


def cells(plan: Plan, options: Options) -> list[Cell]:
    """For each image set: agreement once; each decoder in a loop and in a DataLoader, repeated."""
    base = plan.recipe(engine="serial", workers=0, device="cpu", batch_size=1)
    inside = options["dataloader"]
    limits = options["agreement"]
    grid = []
    for image_set, corpus in plan.slices(options["images"]).items():
        sample = plan.slice(image_set, min(limits["images"], corpus.n))
        few = plan.slice(image_set, plan.count(image_set, inside["images"][image_set]))
        label = f"agreement-{image_set}"
        grid.append(cell(plan, "decoders", "agreement", label, base, sample, params=limits))
        for repeat in plan.repeats("decoders"):
            for name in options["decoders"] or DECODERS:
                recipe = replace(base, name=name, decoder=name)
                label = f"{name}-{image_set}"
                params = plan.params
                if DECODERS[name].optional:
                    params["installed"] = installed(name)
                new = partial(cell, plan, "decoders", repeat=repeat)
                grid.append(new("decode", label, recipe, corpus, params=params))
                if name in (inside["decoders"] or DECODERS) and repeat < inside["repeats"]:
                    recipe = _in_dataloader(recipe, inside["batch_size"][image_set])
                    label = f"{label}-dataloader"
                    params = {
                        **params,
                        "seconds": plan.settings.loader_seconds,
                        "stages": ["decode"],
                    }
                    grid.append(new("loading", label, recipe, few, params=params))
    return grid


def _in_dataloader(recipe: Recipe, batch_size: int) -> Recipe:
    """The recipe with choices by which decoding is most of a DataLoader's work."""
    return replace(
        recipe,
        engine="dataloader",
        workers=provenance.machine()["cores"],
        batch_size=batch_size,
        resizer="torch",
        interpolation="bilinear",
        normalize_on="device",
        dct_scale="full",
    )


def tables(records: Records) -> Tables:
    """One row per decoder, image set and context."""
    groups = _common.groups([r for r in records if r.cell.protocol in _CONTEXTS])
    rows = {key: _row(repeats, records) for key, repeats in groups.items()}
    timed = {key: groups[key] for key, row in rows.items() if row["status"] == "ok"}
    baselines = {
        _where(repeats): repeats
        for repeats in timed.values()
        if repeats[0].cell.recipe.decoder == "pil"
    }
    for key, repeats in timed.items():
        if baseline := baselines.get(_where(repeats)):
            rows[key] |= _speedup(baseline, repeats)
    return {CSV: sorted(rows.values(), key=lambda row: row["context"] == "dataloader")}


def _where(repeats: Records) -> tuple[str, str]:
    return _common.image_set_of(repeats[0]), repeats[0].cell.protocol


def _median_ms(repeats: Records) -> float:
    return median([_image_ms(record) for record in _common.measured(repeats)])


def _image_ms(record: Record) -> float:
    """Of a loop, its mean call; of a DataLoader, the time in which it delivers one image."""
    if record.cell.protocol == "decode":
        return _common.mean_ms(record, "decode")
    return 1e3 * _common.seconds_an_image(record)


def _speedup(baseline: Records, repeats: Records) -> Row:
    """Time over time within each block of repeats that has both."""
    by_repeat = {record.cell.repeat: record for record in _common.measured(repeats)}
    ratios = [
        _image_ms(record) / _image_ms(by_repeat[repeat])
        for record in _common.measured(baseline)
        if (repeat := record.cell.repeat) in by_repeat
    ]
    return _common.with_spread("speedup_vs_pil", ratios) if ratios else {}


def _row(repeats: Records, records: Records) -> Row:
    decoder = repeats[0].cell.recipe.decoder
    version = repeats[0].environment["versions"].get(LIBRARY_OF[decoder], "")
    library = "libjpeg-turbo" if DECODERS[decoder].codec else LIBRARY_OF[decoder]
    optional = repeats[0].cell.params.get("installed")
    row = _common.new_row(repeats, COLUMNS)
    row["context"] = _CONTEXTS[repeats[0].cell.protocol]
    row["library"] = optional or f"{library} {version}".strip()
    row |= _gate(records, decoder, repeats[0].cell.images.image_set)
    wrong = "its pixels are not Pillow's" if row["gate"] == "failed" else ""
    return _common.complete(row, repeats, _measured, wrong)


def _measured(repeats: Records) -> Row:
    decode_ms = partial(_common.mean_ms, samples="decode")
    median_repeat = _common.median_repeat(repeats, decode_ms)
    row = _common.value_columns(median_repeat, "page_faults_per_image")
    row |= _common.timing_columns(repeats, "decode", (50, 90))
    row["n_buffers"] = len(median_repeat.samples["decode"])
    if median_repeat.cell.protocol == "loading":
        return row | {"img_per_s": 1e3 / _median_ms(repeats)}
    rate = median_repeat.values["megapixels"] / median_repeat.seconds_in("decode")
    return row | {"megapixels_per_s": rate}


def _gate(records: Records, decoder: str, image_set: str) -> Row:
    for record in records:
        if record.cell.protocol == "agreement" and _common.image_set_of(record) == image_set:
            compared = record.values.get("agreement", {}).get(decoder, {})
            if "max_abs_diff" not in compared:
                break
            worst, limit = compared["max_abs_diff"], record.cell.params["max_abs_diff"]
            verdict = "passed" if worst <= limit else "failed"
            return {"max_abs_diff": worst, "gate": "reference" if decoder == "pil" else verdict}
    return {"gate": "not checked"}
