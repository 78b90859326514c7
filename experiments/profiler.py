"""What does the stage profiler itself cost, and can it be believed?

Method. In one process, rounds of three loops in turn: empty stage calls, the same with the usual
`@contextlib.contextmanager` profiler, and the bare loop, which is taken off both. Then one serial
pass under torch.profiler (each stage in a `record_function`) and one under cProfile (each stage a
function of its own name): for every stage of at least 1 % of the pass, the relative difference
between our seconds and theirs; the row shows the largest, the median repeat of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Row, _rows
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell
from wallclock.summary import median

COLUMNS = (
    *("what", "ns_per_call", "ns_per_call_min", "ns_per_call_max", "ratio_to_contextlib"),
    *("max_relative_difference", "n_calls", "repeats", "corpus", "device", "device_kind"),
    *("origin", "status", "reason"),
)
CSV = "profiler-overhead.csv"
TABLES = {CSV: COLUMNS}

_CALLS = {"stage call": "stage_calls", "contextlib call": "contextlib_calls"}
_PROFILERS = ("torch.profiler", "cProfile")


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """One cell a repeat, on originals if the corpus has them: their stages are long enough to compare."""
    corpus = plan.first_slice(options["images"])
    recipe = plan.recipe(engine="serial", workers=0, dtype="fp32", batch_size=8)
    params = {
        **plan.params,
        "rounds": options["rounds"],
        "calls_per_round": options["calls_per_round"],
    }
    return [
        Cell(
            "profiler", "profiler", "profiler", repeat, recipe, corpus, plan.settings.model, params
        )
        for repeat in plan.repeats("profiler")
    ]


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """Two rows of cost, three of agreement."""
    if not records:
        return {}
    measured = [record for record in records if record.ok]
    if not measured:
        status, reason = _rows.status_of(records)
        return {
            CSV: [
                _base(records) | {"what": what, "status": status, "reason": reason}
                for what in _CALLS
            ]
        }
    return {CSV: [*_cost_rows(measured), *_agreement_rows(measured)]}


def _cost_rows(records: Sequence[Record]) -> list[Row]:
    cost = {
        what: [_ns_per_call(record, name) for record in records] for what, name in _CALLS.items()
    }
    plain = median(cost["contextlib call"])
    return [
        _base(records)
        | {
            "what": what,
            "ns_per_call": median(found),
            "ns_per_call_min": min(found),
            "ns_per_call_max": max(found),
            "ratio_to_contextlib": median(found) / plain,
            "n_calls": sum(
                record.values["calls_per_round"] * len(record.samples["bare_loop"])
                for record in records
            ),
        }
        for what, found in cost.items()
    ]


def _agreement_rows(records: Sequence[Record]) -> list[Row]:
    found = []
    for name in _PROFILERS:
        worst = [max(record.values["differences"][name].values()) for record in records]
        found.append(_base(records) | {"what": name, "max_relative_difference": median(worst)})
    both = max(float(str(row["max_relative_difference"])) for row in found)
    found.append(
        _base(records) | {"what": " and ".join(_PROFILERS), "max_relative_difference": both}
    )
    return found


def _ns_per_call(record: Record, name: str) -> float:
    """Median over the rounds of one call's cost, the bare loop taken off."""
    bare, calls = record.samples["bare_loop"], record.values["calls_per_round"]
    return median(
        [(ours - loop) / calls for ours, loop in zip(record.samples[name], bare, strict=True)]
    )


def _base(records: Sequence[Record]) -> Row:
    on = {name: value for name, value in _rows.where(records[0]).items() if name in COLUMNS}
    return (
        _rows.blank(COLUMNS)
        | on
        | {"repeats": len(records), "origin": "measured", "status": "ok", "reason": ""}
    )
