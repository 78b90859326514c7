"""How long do the vectors take to write, by format?

Method. 50,000 generated float32 vectors with ids like ABO's, in memory, go through the sinks that
the jobs use, 64 at a time; the clock starts at the first batch and stops when the file is closed.
Each format also with `fsync`, where it stops when file and folder are on the disk; without, the
kernel writes them later. Opening the file is not in it. Then the file is read back: ids must be
equal and vectors equal bit for bit, or the row gets no time.

`size_mib` is of all files that the format needs, ids included. Seconds and rates are of the median
repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from experiments import _rows
from experiments._cells import cell
from experiments._rows import Row
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, ModelSpec

RANK = 30
QUICK = True
CSV = "serialization-comparison.csv"
COLUMNS = _rows.columns(
    "format fsync n_vectors dim repeats write_s write_s_min write_s_max",
    "vectors_per_s mib_per_s size_mib read_back device device_kind origin status reason",
)
TABLES = {CSV: COLUMNS}

#: Vectors are generated: no model computes them.
NO_MODEL = ModelSpec("none", weights="none")


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Each format without and with fsync, repeated. Neither corpus nor model takes part."""
    shared = {"n_vectors": options["n_vectors"], "dim": plan.settings.model.dim}
    shared["seed"] = options["seed"]
    size = options["batch_size"]
    base = plan.recipe(engine="serial", workers=0, device="cpu", batch_size=size)
    new = partial(cell, plan, "serialization", "serialization", corpus=None, model=NO_MODEL)
    grid = []
    for repeat in plan.repeats("serialization"):
        for sink, fsync in product(options["formats"], options["fsync"]):
            recipe, params = replace(base, name=sink, sink=sink), {**shared, "fsync": fsync}
            label = f"{sink}-fsync" if fsync else sink
            grid.append(new(label, recipe, repeat=repeat, params=params))
    return grid


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row per format, without and with fsync."""
    return {CSV: [_row(repeats) for repeats in _rows.groups(records, "serialization").values()]}


def _row(repeats: Sequence[Record]) -> Row:
    timed = repeats[0].cell
    row = _rows.new_row(repeats, COLUMNS)
    row |= {"format": timed.recipe.sink, "fsync": bool(timed.params["fsync"])}
    row |= {name: timed.params[name] for name in ("n_vectors", "dim")}
    if row["status"] != "ok":
        return row
    measured = _rows.measured(repeats)
    row["read_back"] = all(record.values["read_back"] for record in measured)
    if not row["read_back"]:
        return row | _rows.withheld("what was read back is not what was written")
    shown = _rows.median_repeat(repeats, _write_s)
    seconds = [_write_s(record) for record in measured]
    values, write_s = shown.values, _write_s(shown)
    return row | {
        "repeats": len(measured),
        "write_s": write_s,
        "write_s_min": min(seconds),
        "write_s_max": max(seconds),
        "vectors_per_s": values["n_vectors"] / write_s,
        "mib_per_s": values["size_mib"] / write_s,
        "size_mib": values["size_mib"],
    }


def _write_s(record: Record) -> float:
    return record.seconds_in("write")
