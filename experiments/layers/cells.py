"""Where inside the network does the forward pass spend its time?

Method. A batch of the corpus's images goes through the network, first without, then under
torch.profiler, every module labelled with its name. `layers.csv` has the modules in the network's
order, each with all that is in it. On a GPU all times are the device's.
"""

from dataclasses import replace

from experiments import common
from experiments.common import Cell, Options, Plan, Records, Tables, cell
from harness.measures import median

RANK = 170
CSV = "layers.csv"
COLUMNS = common.columns(
    "layer kind depth calls ms share parameters model corpus weights device device_kind dtype",
    "batch_size forward_ms profiled_ms sm_clock_mhz throttle_reasons origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
layer | | setting | name of the module
kind | | setting | class of the module
depth | count | fact | modules around it
ms | ms | measured | time per batch with all that it calls, under the profiler
parameters | count | fact | parameters with all that is in it
calls | count | fact | calls per batch
share | 0 to 1 | measured | that time in profiled_ms
forward_ms | ms | measured | a batch without the profiler
profiled_ms | ms | measured | a batch under the profiler
"""
TIMED = ("harness.protocols.network",)


def cells(plan: Plan, options: Options) -> list[Cell]:
    """One cell."""
    device = options["recipe"].device
    size = options["batch_size"][device]
    recipe = replace(options["recipe"], engine="serial", workers=0, batch_size=size)
    params = {"batches": options["batches"][device]}
    corpus = plan.first_slice(options["images"])
    return [cell(plan, "layers", "layers", "layers", recipe, corpus, params=params)]


def tables(records: Records) -> Tables:
    """The modules in the network's order."""
    (record,) = records
    row = common.new_row(records, COLUMNS)
    if not record.ok:
        return {CSV: [row]}
    total_ms = record.values["profiled_ms"]
    row |= {"forward_ms": median(record.samples["batch"]) / 1e6, "profiled_ms": total_ms}
    row |= common.clock_columns(records)
    modules = record.values["modules"]
    return {CSV: [{**row, **module, "share": module["ms"] / total_ms} for module in modules]}
