"""What does the stage profiler itself cost, and can it be believed?

Method. In one process, rounds of two loops, alternately: empty stage calls, and the bare loop,
which is subtracted. Then one serial pass under torch.profiler (each stage in a `record_function`)
and one under cProfile (each stage a function of its own name): for every stage of at least 1 % of
the pass, the relative difference between our seconds and theirs; the row shows the largest, the
median repeat of it. Their brackets lie within ours, around the same calls: the clocks are compared,
not what belongs to a stage, so that the two can hardly differ.
"""

from experiments import common
from experiments.common import Cell, Options, Plan, Record, Records, Row, Tables, cell
from harness.measures import median

RANK = 10
QUICK = True
CSV = "profiler-overhead.csv"
COLUMNS = common.columns(
    "what ns_per_call ns_per_call_min ns_per_call_max",
    common.with_limits("max_relative_difference"),
    "n_calls repeats corpus device device_kind origin status reason",
)
TABLES = {CSV: COLUMNS}
MEANINGS = """
ns_per_call | ns | measured | cost of a stage call, the bare loop subtracted; the median repeat
max_relative_difference | relative | measured | largest difference from another profiler's seconds
  around the same calls, of stages of 1 % or more
n_calls | count | fact | calls that were timed
"""
TIMED = ("harness.protocols.serial",)

_CALL = "stage call"
_PROFILERS = ("torch.profiler", "cProfile")


def cells(plan: Plan, options: Options) -> list[Cell]:
    """One cell per repeat, on originals if the corpus has them: their stages are long enough."""
    corpus = plan.first_slice(options["images"])
    recipe = plan.recipe(engine="serial", workers=0, dtype="fp32", batch_size=8)
    params = {**plan.params} | {name: options[name] for name in ("rounds", "calls_per_round")}
    return [
        cell(plan, "profiler", "profiler", "profiler", recipe, corpus, repeat=repeat, params=params)
        for repeat in plan.repeats("profiler")
    ]


def tables(records: Records) -> Tables:
    """A row of cost, three of agreement."""
    if not records:
        return {}
    measured = common.measured(records)
    if not measured:
        return {CSV: [common.new_row(records, COLUMNS) | {"what": _CALL}]}
    base = common.new_row(records, COLUMNS) | {"repeats": len(measured)}
    return {CSV: [base | row for row in (_cost(measured), *_agreement(measured))]}


def _cost(records: Records) -> Row:
    counts = [r.values["calls_per_round"] * len(r.samples["bare_loop"]) for r in records]
    costs = common.with_spread("ns_per_call", [_ns_per_call(record) for record in records])
    return {"what": _CALL, **costs, "n_calls": sum(counts)}


def _agreement(records: Records) -> list[Row]:
    """The worst stage of each repeat: against each profiler, and against both."""
    worst = {
        name: [max(record.values["differences"][name].values()) for record in records]
        for name in _PROFILERS
    }
    worst[" and ".join(_PROFILERS)] = [max(pair) for pair in zip(*worst.values(), strict=True)]
    return [
        {"what": what, **common.with_spread("max_relative_difference", differences)}
        for what, differences in worst.items()
    ]


def _ns_per_call(record: Record) -> float:
    """Median over the rounds of one call's cost, the bare loop subtracted."""
    rounds = zip(record.samples["stage_calls"], record.samples["bare_loop"], strict=True)
    calls = record.values["calls_per_round"]
    return median([(ours - loop) / calls for ours, loop in rounds])
