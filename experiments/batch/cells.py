"""Does a larger batch help when Pillow feeds it, and what does it cost in latency?

Method. The baseline recipe with batch sizes from 1 to 256, end to end, as `t4`. A batch that does
not fit the GPU's memory is a row with status `oom`, and the sweep goes on. `knee` marks the
smallest batch within 2 % of the best rate. `latency_bound_ms` names a bound on the latency of an
image; `largest_in_bound` marks the largest batch whose 99th percentile is under it.
"""

from collections.abc import Sequence
from dataclasses import replace

from experiments import common, end_to_end
from experiments.common import Cell, Options, Plan, Records, Row, Tables

RANK = 120
CSV = "batch-sweep.csv"
COLUMNS = common.columns(end_to_end.COLUMNS, "knee latency_bound_ms largest_in_bound in_paper")
TABLES = {CSV: COLUMNS}
MEANINGS = """
knee | yes or no | status | the smallest batch within 2 % of the best rate
latency_bound_ms | ms | setting | bound on latency_p99_ms that the user named
largest_in_bound | yes or no | status | the largest batch whose latency_p99_ms is under that bound
"""

_sweep = end_to_end.sweep("batch", "batch_size", "batch_sizes")


def cells(plan: Plan, options: Options) -> list[Cell]:
    """Every batch size, repeated; the bound goes with the first cell, through it into the records.

    With one cell only, so that another bound measures one anew and not all.
    """
    first, *others = _sweep(plan, options)
    if bound := options["latency_bound_ms"]:
        first = replace(first, params={**first.params, "latency_bound_ms": bound})
    return [first, *others]


def tables(records: Records) -> Tables:
    """One row per batch size, with its marks; a single size that was measured is no knee."""
    rows = end_to_end.tables(CSV)(records)[CSV]
    bounds = (record.cell.params.get("latency_bound_ms") for record in records)
    bound = next(filter(None, bounds), None)
    for row in rows:
        row |= {"knee": None, "latency_bound_ms": bound, "largest_in_bound": None, "in_paper": True}
    measured = [row for row in rows if row["status"] == "ok"]
    measured.sort(key=lambda row: row["batch_size"])
    if len(measured) > 1:
        near_best = end_to_end.NEAR_BEST * max(row["img_per_s"] for row in measured)
        _mark(measured, "knee", [r for r in measured if r["img_per_s"] >= near_best][:1])
    timed = [row for row in measured if row["latency_p99_ms"] is not None]
    if bound is not None:
        within = [row for row in timed if row["latency_p99_ms"] < bound]
        _mark(timed, "largest_in_bound", within[-1:])
    return {CSV: rows}


def _mark(rows: Sequence[Row], column: str, chosen: Sequence[Row]) -> None:
    for row in rows:
        row[column] = row in chosen
