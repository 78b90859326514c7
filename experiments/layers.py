"""Where inside the network does the forward pass spend its time?

Method. A batch of the corpus's images goes through the network, first without, then under
torch.profiler, every module labelled with its name. `layers.csv` has the modules in the network's
order, each with all that is in it; `operators.csv` the operators that take longest, each without
what it calls. On a GPU all times are the device's.
"""

from dataclasses import replace

from experiments import _common
from experiments._common import Cell, Options, Plan, Records, Tables, cell
from wallclock.summary import median

RANK = 170
LAYERS_CSV = "layers.csv"
OPERATORS_CSV = "operators.csv"
_SHARED = _common.columns(
    "model corpus weights device device_kind dtype batch_size forward_ms profiled_ms",
    "origin status reason",
)
TABLES = {
    LAYERS_CSV: _common.columns("layer kind depth calls ms share parameters", _SHARED),
    OPERATORS_CSV: _common.columns("operator calls ms share", _SHARED),
}


def cells(plan: Plan, options: Options) -> list[Cell]:
    """One cell."""
    device = options["recipe"].device
    size = options["batch_size"][device]
    recipe = replace(options["recipe"], engine="serial", workers=0, batch_size=size)
    params = {"batches": options["batches"][device], "top_operators": options["top_operators"]}
    corpus = plan.first_slice(options["images"])
    return [cell(plan, "layers", "layers", "layers", recipe, corpus, params=params)]


def tables(records: Records) -> Tables:
    """The modules in the network's order; the operators, the longest first."""
    (record,) = records
    if not record.ok:
        return {csv: [_common.new_row(records, columns)] for csv, columns in TABLES.items()}
    total_ms = record.values["profiled_ms"]
    shared = _common.new_row(records, _SHARED) | {
        "forward_ms": median(record.samples["batch"]) / 1e6,
        "profiled_ms": total_ms,
    }
    top = record.values["operators"][: record.cell.params["top_operators"]]
    return {
        csv: [{**measured, "share": measured["ms"] / total_ms, **shared} for measured in rows]
        for csv, rows in ((LAYERS_CSV, record.values["modules"]), (OPERATORS_CSV, top))
    }
