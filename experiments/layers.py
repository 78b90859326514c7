"""Where inside the network does the forward pass spend its time?

Method. A batch of the corpus's images goes through the network, first without, then under torch.profiler, every
module labelled with its name. `layers.csv` has the modules in the network's order, each with all that is in it;
`operators.csv` the operators that take longest, each without what it calls. The trace of the profiled batches goes
to `figures/trace-forward.json.gz`, for ui.perfetto.dev. On a GPU all times are the device's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import Row, _rows
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell
from wallclock.summary import median

LAYERS_CSV, OPERATORS_CSV = "layers.csv", "operators.csv"
_WHERE = (
    "model",
    "corpus",
    "weights",
    "device",
    "device_kind",
    "dtype",
    "batch_size",
    "forward_ms",
    "profiled_ms",
)
_END = ("origin", "status", "reason")
TABLES = {
    LAYERS_CSV: ("layer", "kind", "depth", "calls", "ms", "share", "parameters", *_WHERE, *_END),
    OPERATORS_CSV: ("operator", "calls", "ms", "share", *_WHERE, *_END),
}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """One cell."""
    recipe = options["recipe"]
    recipe = replace(
        recipe, engine="serial", workers=0, batch_size=options["batch_size"][recipe.device]
    )
    params = {
        "batches": options["batches"][recipe.device],
        "top_operators": options["top_operators"],
    }
    corpus = plan.first_slice(options["images"])
    return [Cell("layers", "layers", "layers", 0, recipe, corpus, plan.settings.model, params)]


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """The modules in the network's order; the operators, the longest first."""
    (record,) = records
    cell = record.cell
    shared = {**_rows.where(record), "model": cell.model.name, "dtype": cell.recipe.dtype}
    shared |= {"batch_size": cell.recipe.batch_size, "origin": "measured"}
    shared |= {"status": record.status, "reason": record.reason}
    if not record.ok:
        return {csv: [_rows.blank(columns) | shared] for csv, columns in TABLES.items()}
    shared |= {
        "forward_ms": median(record.samples["batch"]) / 1e6,
        "profiled_ms": record.values["profiled_ms"],
    }
    whole = record.values["profiled_ms"]
    operators = record.values["operators"][: cell.params["top_operators"]]
    return {
        LAYERS_CSV: [
            {**found, "share": found["ms"] / whole, **shared} for found in record.values["modules"]
        ],
        OPERATORS_CSV: [{**found, "share": found["ms"] / whole, **shared} for found in operators],
    }
