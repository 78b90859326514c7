"""How long do the vectors take to write, by format?

Method. 50,000 made-up float32 vectors with ids like ABO's, in memory, go through the sinks that the
jobs use, 64 at a time; the clock starts at the first batch and stops when the file is closed. Each
format also with `fsync`, where it stops when file and folder are on the disk; without, the kernel
writes them later. Opening the file is not in it. Then the file is read back: ids must be equal and
vectors equal bit for bit, or the row gets no time.

`size_mib` is of all files that the format needs, ids included. Seconds and rates are of the median
repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Row, _rows
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, ModelSpec

COLUMNS = (
    *("format", "fsync", "n_vectors", "dim", "repeats", "write_s", "write_s_min", "write_s_max"),
    *("vectors_per_s", "mib_per_s", "size_mib", "read_back", "device", "device_kind"),
    *("origin", "status", "reason"),
)
CSV = "serialization-comparison.csv"
TABLES = {CSV: COLUMNS}

#: Vectors are generated: no model computes them.
NO_MODEL = ModelSpec("none", weights="none")


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """Each format without and with fsync, repeated. Neither corpus nor model takes part."""
    found = []
    for repeat in plan.repeats("serialization"):
        for sink in options["formats"]:
            for fsync in options["fsync"]:
                recipe = plan.recipe(
                    **{"name": sink, "sink": sink, "batch_size": options["batch_size"]},
                    **{"engine": "serial", "workers": 0, "device": "cpu"},
                )
                params = {
                    "n_vectors": options["n_vectors"],
                    "dim": plan.settings.model.dim,
                    "seed": options["seed"],
                }
                label = f"{sink}-fsync" if fsync else sink
                params |= {"fsync": fsync}
                found.append(
                    Cell(
                        "serialization",
                        "serialization",
                        label,
                        repeat,
                        recipe,
                        None,
                        NO_MODEL,
                        params,
                    )
                )
    return found


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row a format and kind of ending."""
    return {CSV: [_row(repeats) for repeats in _rows.groups(records, "serialization").values()]}


def _row(repeats: Sequence[Record]) -> Row:
    cell = repeats[0].cell
    status, reason = _rows.status_of(repeats)
    on = {name: value for name, value in _rows.where(repeats[0]).items() if name in COLUMNS}
    row = (
        _rows.blank(COLUMNS)
        | on
        | {"format": cell.recipe.sink, "fsync": bool(cell.params["fsync"])}
    )
    row |= {"n_vectors": cell.params["n_vectors"], "dim": cell.params["dim"]}
    row |= {"origin": "measured", "status": status, "reason": reason}
    if status != "ok":
        return row
    measured = sorted((record for record in repeats if record.ok), key=_write_s)
    chosen = measured[(len(measured) - 1) // 2]
    row |= {"read_back": all(record.values["read_back"] for record in measured)}
    if not row["read_back"]:
        return row | {
            "status": "gate failed",
            "reason": "what was read back is not what was written: no time counts",
        }
    write_s = _write_s(chosen)
    return row | {
        "repeats": len(measured),
        "write_s": write_s,
        "write_s_min": _write_s(measured[0]),
        "write_s_max": _write_s(measured[-1]),
        "vectors_per_s": chosen.values["n_vectors"] / write_s,
        "mib_per_s": chosen.values["size_mib"] / write_s,
        "size_mib": chosen.values["size_mib"],
    }


def _write_s(record: Record) -> float:
    return record.seconds_in("write")
