"""The predictions of a diagnosis as rows: what is predicted, and what was measured of it.

All of it follows from records. What the first passes over the costs predict decides which fixes are
stacked; if the costs were measured again, the calmer passes give the numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, NamedTuple

from experiments import _accelerators, _common
from experiments._accuracy import measured_bottleneck
from experiments._common import Record, Records, Row
from experiments._costs import Costs, NoCostsError, Passes, is_cost
from experiments._diagnosis import BUSY_CORES, BUSY_SPREAD, ELSEWHERE
from experiments._end_to_end import WRONG_VECTORS, judge_sink
from experiments._fixes import Scenario, stacked
from wallclock.predict import Pipeline
from wallclock.summary import median


class Predicted(NamedTuple):
    """A scenario, its row and its pipelines; None where a cost is missing.

    `highest`: of a box that is not here, at the higher rate that is cited; else the same.
    """

    scenario: Scenario
    row: Row
    passes: Passes | None = None
    highest: Passes | None = None


@dataclass(frozen=True)
class _Predictor:
    """Costs and the cell that they are for."""

    costs: Costs
    described: Record

    def passes(self, scenario: Scenario) -> tuple[Passes, Passes]:
        """The pipelines of each pass, those at the lower and at the higher rate cited.

        Raises:
            NoCostsError: a cost was not measured in any pass.
        """
        lowest: dict[int, Pipeline] = {}
        highest: dict[int, Pipeline] = {}
        missing = NoCostsError("no cost was measured")
        for repeat, costs in self.costs.by_pass().items():
            try:
                pipelines = self._pipelines(costs, scenario)
            except NoCostsError as error:
                missing = error
                continue
            lowest[repeat], highest[repeat] = pipelines[0], pipelines[-1]
        if not lowest:
            raise missing
        return Passes(lowest), Passes(highest)

    def rate(self, scenario: Scenario) -> float | None:
        """Images a second; None where a cost is missing."""
        try:
            return self.passes(scenario)[0].middle.rate()
        except NoCostsError:
            return None

    def _pipelines(self, costs: Costs, scenario: Scenario) -> list[Pipeline]:
        """The end-to-end pipeline; elsewhere two, at the lower and at the higher rate cited."""
        images = self.described.cell.images
        if scenario.copies:
            images = replace(images, storage=f"files:{scenario.copies}")
        cell = replace(self.described.cell, recipe=scenario.recipe, corpus=images)
        if scenario.cold:
            cell = replace(cell, params={**cell.params, "page_cache": "cold"})
        if there := self.described.cell.params.get("elsewhere"):
            accelerator = _accelerators.load()[there["accelerator"]]
            return _accelerators.pipelines(costs, cell, accelerator, there["cores"])
        return [costs.pipeline(cell)]


def describing(records: Records) -> Record | None:
    """The record that carries the scenarios; None where the sample was not measured."""
    return next((r for r in records if r.cell.protocol == "image_stats" and r.ok), None)


def first_passes(records: Records) -> list[Record]:
    """Without the costs that were measured again."""
    described = describing(records)
    passes = described.cell.params.get("passes", 1) if described else 1
    return [r for r in records if not is_cost(r) or r.cell.repeat < passes]


def calm_costs(records: Records) -> list[Record]:
    """The first passes over the costs, or the repeated ones if other programs were busy less."""
    first = first_passes(records)
    ids = {id(record) for record in first}
    again = [record for record in records if id(record) not in ids]
    if not again or _busy_cores(again) > _busy_cores(first):
        return first
    return [record for record in first if not is_cost(record)] + again


def is_busy(records: Records) -> bool:
    """Whether other programs, or the host, disturbed what these costs say."""
    described = describing(records)
    if described is None or _busy_cores(records) >= BUSY_CORES:
        return described is not None
    present = Scenario.from_json(described.cell.params["setups"][0])
    try:
        spread = _Predictor(Costs(records), described).passes(present)[0].spread
    except NoCostsError:
        return False
    return spread >= BUSY_SPREAD


def _busy_cores(records: Records) -> float:
    """Cores that others kept busy while the costs were measured: the median of the cells."""
    others = _other_cores(records)
    return median(others) if others else 0.0


def _other_cores(records: Records) -> list[float]:
    values = [record.values for record in records if is_cost(record) and record.ok]
    return [float(value["other_cores"]) for value in values if "other_cores" in value]


def plan_of(records: Records) -> list[Scenario]:
    """What is predicted: what the run planned, and the stack that the costs suggest.

    A run of an earlier version has planned its stack.
    """
    described = describing(records)
    if described is None:
        return []
    planned = [Scenario.from_json(plain) for plain in described.cell.params["setups"]]
    if any(scenario.kind == "stacked" for scenario in planned):
        return planned
    predictor = _Predictor(Costs(first_passes(records)), described)
    return planned + stacked(planned, predictor.rate)


def predict(records: Records, columns: Sequence[str]) -> list[Predicted]:
    """A row with these columns for each scenario, the present recipe's first."""
    described = describing(records)
    if described is None:
        return []
    calm = calm_costs(records)
    predictor = _Predictor(Costs(calm, n_images=_proved_images(records)), described)
    others = _other_cores(calm)
    base = new_row(described, columns) | {"origin": "predicted"}
    base["cost_other_cores"] = median(others) if others else None
    predicted: list[Predicted] = []
    for scenario in plan_of(records):
        row = base | _choices(scenario, columns)
        try:
            passes, highest = predictor.passes(scenario)
        except NoCostsError as error:
            row |= {"status": "unavailable", "reason": str(error)}
            predicted.append(Predicted(scenario, row))
            continue
        entry = Predicted(scenario, row, passes, highest)
        reference = _base_of(entry, predicted)
        row |= _prediction(entry, reference)
        row["usd_per_million"] = _usd_per_million(described, row)
        if scenario.copies and reference is not entry:
            row["fix_cost"] = _cost_of_copies(scenario.copies, records, reference.row, row)
        row |= _proof(entry, reference, records)
        predicted.append(entry)
    return predicted


def _proved_images(records: Records) -> int | None:
    """How many of the sample were run end to end, if any: predictions are then of these."""
    proofs = [r.cell.images.n for r in records if r.cell.protocol == "throughput"]
    return min(proofs, default=None)


def _choices(scenario: Scenario, columns: Sequence[str]) -> Row:
    choices = {name: value for name, value in vars(scenario.recipe).items() if name in columns}
    # Of a box that is not here, the row's device is that box.
    del choices["device"]
    return choices | {
        "kind": scenario.kind,
        "fix": scenario.title,
        "fix_cost": scenario.cost,
        "copies": scenario.copies,
        "faithful": scenario.faithful,
        "needs_proof": scenario.needs_proof,
    }


def _base_of(entry: Predicted, predicted: Sequence[Predicted]) -> Predicted:
    """What a speedup is over: the present recipe; of a second cold one, the first."""
    if not predicted or predicted[0].passes is None:
        return entry
    if entry.scenario.cold and predicted[-1].scenario.cold and predicted[-1].passes:
        return predicted[-1]
    return predicted[0]


def new_row(described: Record, columns: Sequence[str]) -> Row:
    """A row of the diagnosis; of a box that is not here, in its name."""
    row = _common.new_row([described], columns) | {"n_images": described.values["n_sound"]}
    if (there := described.cell.params.get("elsewhere")) and "source" not in columns:
        row["device"] = f"{there['accelerator']} beside {there['cores']} cores{ELSEWHERE}"
        row |= {"device_kind": "cuda", "origin": "predicted"}
    return row


def _prediction(entry: Predicted, base: Predicted) -> Row:
    """Of the pass in the middle; the interval ends with that of the higher rate cited."""
    assert entry.passes is not None
    assert entry.highest is not None
    assert base.passes is not None
    assert base.highest is not None
    pipeline = entry.passes.middle
    expected = pipeline.predict(entry.passes.spread)
    row: Row = {
        "predicted_img_per_s": expected.img_per_s,
        "low_img_per_s": expected.low,
        "high_img_per_s": entry.highest.middle.predict(entry.highest.spread).high,
        "ceiling_img_per_s": pipeline.ceiling(),
        "ceiling_bottleneck": pipeline.ceiling_bottleneck(),
        "passes": len(entry.passes.pipelines),
        "cost_spread": entry.passes.spread,
        "bottleneck": expected.bottleneck,
        "accelerator_utilization": expected.accelerator_utilization,
        "faster_accelerator_speedup": expected.accelerator_bound,
        "workers_to_saturate": pipeline.workers_to_saturate(),
        "crossover_batch": pipeline.crossover_batch(),
    }
    if entry is base:
        return row | {"predicted_speedup": 1.0}
    gained = entry.passes.gain_over(base.passes)
    highest = entry.highest.gain_over(base.highest)
    row |= {"predicted_speedup": gained.speedup, "low_speedup": min(gained.low, highest.low)}
    return row | {"high_speedup": max(gained.high, highest.high)}


def _proof(entry: Predicted, base: Predicted, records: Records) -> Row:
    """What the recipe measured end to end, if it has run; and what it gained over its base.

    Of several passes, that in the middle.
    """
    scenario, row = entry.scenario, entry.row
    name = scenario.recipe.name
    ran = [r for r in records if (r.cell.protocol, r.cell.label) == ("throughput", name)]
    for record in ran:
        if not record.ok:
            return {"status": record.status, "reason": record.reason}
        if fault := judge_sink(record):
            return {"status": "gate failed", "reason": f"{WRONG_VECTORS} ({fault}): no time counts"}
    if not ran:
        return {}
    record = _common.median_repeat(ran, _common.seconds_an_image)
    rate = _common.rate(record)
    others = record.values["telemetry"].get("other_cores")
    measured: Row = {
        "measured_img_per_s": rate,
        "error": _number(row["predicted_img_per_s"]) / rate - 1,
        "within_interval": _number(row["low_img_per_s"]) <= rate <= _number(row["high_img_per_s"]),
        "measured_bottleneck": measured_bottleneck(record),
        "other_cores": sum(others) / len(others) if others else None,
    }
    before = base.row["measured_img_per_s"]
    if entry is base or before is None:
        return measured
    speedup = rate / _number(before)
    inside = _number(row["low_speedup"]) <= speedup <= _number(row["high_speedup"])
    return measured | {
        "measured_speedup": speedup,
        "gain_error": _number(row["predicted_speedup"]) / speedup - 1,
        "gain_within_interval": inside,
    }


def _cost_of_copies(copies: str, records: Records, present: Row, row: Row) -> str:
    """Bytes, CPU time and pixels; after how many runs the copies have paid for their making."""
    made = next((r for r in records if r.ok and r.cell.label == f"copies-{copies}"), None)
    if made is None:
        return "a copy of the images"
    values = made.values
    cores = made.environment["machine"]["cores"]
    ms = _common.mean_ms(made, "encode")
    kb, kb_before = values["mean_bytes"] / 1e3, values["mean_bytes_before"] / 1e3
    size = f"{kb:.3g} kB instead of {kb_before:.3g}"
    price = f"{size}, {ms:.3g} ms of CPU to make, {values['psnr_db']:.0f} dB"
    seconds = [1 / _number(line["predicted_img_per_s"]) for line in (present, row)]
    saved_s = seconds[0] - seconds[1]
    if saved_s <= 0:
        return price
    runs = ceil(values["share"] * ms / 1e3 / cores / saved_s)
    return f"{price}; pays after {runs:,} more {'run' if runs == 1 else 'runs'}"


def _usd_per_million(described: Record, row: Row) -> float | None:
    price = (described.cell.params.get("elsewhere") or {}).get("usd_per_hour")
    return None if price is None else price / 3600 * 1e6 / _number(row["predicted_img_per_s"])


def _number(cell: Any) -> float:
    return float(str(cell))
