"""How long do the vectors take to write, by format?

Method. 50,000 generated float32 vectors with ids like ABO's, in memory, go through the sinks that
the jobs use, 64 at a time; the clock starts at the first batch and stops when the file is closed.
Each format also with `fsync`, where it stops when file and folder are on the disk; without, the
kernel writes them later. Opening the file is not in it. Then the file is read back: ids must be
equal and vectors equal bit for bit, or the row gets no time.

`size_mib` is of all files that the format needs, ids included. Seconds and rates are of the median
repeat.
"""

from dataclasses import replace
from functools import partial
from itertools import product

from experiments import common
from experiments.common import Cell, Options, Plan, Record, Records, Row, Tables, cell
from harness.spec import SINKS
from wallclock.recipe import ModelSpec

RANK = 30
QUICK = True
CSV = "serialization-comparison.csv"
COLUMNS = common.columns(
    "format fsync n_vectors dim repeats",
    common.with_limits("write_s vectors_per_s"),
    "mib_per_s size_mib read_back device device_kind in_paper origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
format | | setting | format of the vectors
fsync | yes or no | setting | until file and folder are on the disk
n_vectors | vectors | setting | vectors written
dim | count | setting | numbers of a vector
write_s | s | measured | time from the first batch to the closed file; the median repeat
vectors_per_s | vectors/s | measured | vectors written per second
mib_per_s | MiB/s | measured | MiB written per second
size_mib | MiB | fact | all files of the format, ids included
read_back | yes or no | status | ids and vectors read back are equal bit for bit
"""

#: Labels of the rows that the paper has.
_IN_PAPER = ("parquet", "lmdb", "npy")
#: Vectors are generated: no model computes them.
NO_MODEL = ModelSpec("none", weights="none")


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Each format without and with fsync, repeated. Neither corpus nor model takes part."""
    shared = {
        "n_vectors": options["n_vectors"],
        "seed": options["seed"],
        "dim": plan.settings.model.dim,
    }
    size = options["batch_size"]
    base = plan.recipe(engine="serial", workers=0, device="cpu", batch_size=size)
    new = partial(cell, plan, "serialization", "serialization", corpus=None, model=NO_MODEL)
    grid = []
    for repeat in plan.repeats("serialization"):
        for sink, fsync in product(options["formats"] or SINKS, options["fsync"]):
            recipe = replace(base, name=sink, sink=sink)
            params = {**shared, "fsync": fsync}
            label = f"{sink}-fsync" if fsync else sink
            grid.append(new(label, recipe, repeat=repeat, params=params))
    return grid


def tables(records: Records) -> Tables:
    """One row per format, without and with fsync."""
    return {CSV: [_row(repeats) for repeats in common.groups(records, "serialization").values()]}


def _row(repeats: Records) -> Row:
    timed = repeats[0].cell
    measured = common.measured(repeats)
    row = common.new_row(repeats, COLUMNS)
    row |= {"format": timed.recipe.sink, "fsync": bool(timed.params["fsync"])}
    row["in_paper"] = timed.label in _IN_PAPER
    row |= {name: timed.params[name] for name in ("n_vectors", "dim")}
    if measured:
        row["read_back"] = all(record.values["read_back"] for record in measured)
    wrong = "" if row["read_back"] else "what was read back is not what was written"
    return common.complete(row, repeats, _measured, wrong)


def _measured(repeats: Records) -> Row:
    passes = [_of_pass(record) for record in common.measured(repeats)]
    return {
        "repeats": len(passes),
        **_of_pass(common.median_repeat(repeats, _write_s)),
        **common.limits(passes, ("write_s", "vectors_per_s")),
    }


def _of_pass(record: Record) -> Row:
    values, write_s = record.values, _write_s(record)
    return {
        "write_s": write_s,
        "vectors_per_s": values["n_vectors"] / write_s,
        "mib_per_s": values["size_mib"] / write_s,
        "size_mib": values["size_mib"],
    }


def _write_s(record: Record) -> float:
    return record.seconds_in("write")
