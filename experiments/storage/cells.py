"""What does it cost to get an image, by how it is stored and where?

Method. The same images in every form: files, tar shards, pre-decoded pixels (uint8, one file) at
full size and at 256 px. From the disk, their pages dropped before each pass (mincore asked:
`cached_share`; `from_disk_share`: what a block device delivered), from memory and, files and tars,
over HTTP on loopback from a process that answers 5 ms late. One by one (`sequential`), and by 16
threads that share a list (`ahead`). `finish=bytes` stops at the bytes, `tensor` decodes and resizes
to the model's input as `recipe=fast` does: pixels pay for their bytes here and save the decoding.
`mb_per_s` is of the images' own bytes, `kb_on_disk` of allocated blocks, `cpu_ms` an image's user
and system time in this process, not in the store's.
"""

from dataclasses import replace
from functools import partial
from itertools import product

from experiments import common
from experiments.common import Cell, Options, Plan, Records, Row, Tables, cell, mock_model

RANK = 156
CSV = "storage.csv"
COLUMNS = common.columns(
    "what form source access in_flight finish image_set corpus decoder dct_scale device",
    "device_kind n_images repeats img_per_s img_per_s_min img_per_s_max mb_per_s cpu_ms",
    "kb_per_image kb_on_disk cached_share from_disk_share origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
form | | setting | files, tar, or decoded pixels
source | | setting | cold: from the disk; warm: from memory; http-N: a store that answers N ms late
access | | setting | sequential: one by one; ahead: by several threads
in_flight | count | setting | threads that read
finish | | setting | bytes: stops at the bytes; tensor: decodes and resizes them
mb_per_s | MB/s | measured | the images' own bytes per second
cpu_ms | ms | measured | user and system time per image in this process
kb_on_disk | kB | measured | allocated blocks per image
cached_share | 0 to 1 | measured | pages that were in memory before the pass
"""
TIMED = ("harness.corpora.pack", "harness.testbed")
#: Forms that are also read over HTTP.
_REMOTE = ("files", "tar")


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Each form of each image set, repeated; small images have no smaller form."""
    recipe = replace(options["recipe"], device="cpu", normalize_on="device", dtype="fp32")
    slices = plan.slices(options["images"])
    shared = {**plan.params, "allocator": "keep"}
    shared |= {name: options[name] for name in ("seconds", "in_flight")}
    new = partial(cell, plan, "storage", "forms", recipe=recipe, model=mock_model(plan))
    grid = []
    for repeat, corpus, form in product(plan.repeats("storage"), slices.values(), options["forms"]):
        if corpus.image_set != "small_256" or "_256" not in form:
            where = ["cold", "warm"]
            if form in _REMOTE:
                where.append(f"http-{options['http_ms']:g}")
            params = {**shared, "form": form, "where": where}
            grid.append(new(form, corpus=corpus, repeat=repeat, params=params))
    return grid


def tables(records: Records) -> Tables:
    """One row per image set, form, source, access and finish."""
    rows = []
    for repeats in common.groups(records, "forms").values():
        conditions = [
            name for record in repeats for part in _PARTS for name in record.values.get(part, ())
        ]
        # One row says why a form has no time at all.
        rows += [_row(repeats, name) for name in dict.fromkeys(conditions or [""])]
    return {CSV: rows}


#: Values by `<where>/<threads>/<finish>`, in the order of the table.
_PARTS = ("passes", "unavailable")


def _row(repeats: Records, name: str) -> Row:
    form = repeats[0].cell.params["form"]
    passes = [common.part_of(record, name, "wall") for record in repeats]
    # A form without any pass has no name.
    where, _, rest = name.partition("/")
    threads, _, finish = rest.partition("/")
    row = common.new_row(passes, COLUMNS)
    row |= {"what": f"{form} {name}".strip(), "form": form, "source": where}
    row |= {"in_flight": threads, "finish": finish, "access": _access(threads)}
    return common.complete(row, passes, partial(_measured, name=name))


def _access(threads: str) -> str:
    if not threads:
        return ""
    return "sequential" if threads == "1" else "ahead"


def _measured(repeats: Records, name: str) -> Row:
    """The rates' median and range; the rest of the repeat with the median rate."""
    passes = []
    for record in common.measured(repeats):
        timed = record.values["passes"][name]
        of_pass = {**record.values, **timed, "n_loaded": timed["n"]}
        passes.append(replace(record, values=of_pass))
    values = common.median_repeat(passes, common.seconds_an_image).values
    row = common.spread_columns(passes) | {"kb_per_image": values["mean_kb"]}
    copied = ("n_images", "cpu_ms", "cached_share", "from_disk_share", "kb_on_disk")
    row |= {key: values[key] for key in copied}
    return row | {"mb_per_s": row["img_per_s"] * values["mean_kb"] / 1e3}
