"""The predictions of a diagnosis as rows: what is predicted, and what was measured of it.

All of it follows from records. What the costs predict decides which fixes are stacked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from experiments import common
from experiments.common import Record, Records, Row
from experiments.diagnose import accelerators
from experiments.diagnose.fixes import Scenario, stacked
from experiments.end_to_end import WRONG_VECTORS, judge_sink
from experiments.predict.accuracy import measured_bottleneck
from experiments.predict.costs import Costs, NoCostsError, Passes, is_cost, workers_to_saturate
from harness.measures import median
from harness.pipeline_model import Pipeline

#: How the device of a box ends that is not here.
ELSEWHERE = ", not here"


class Predicted(NamedTuple):
    """A scenario, its row and its pipelines; None where a cost is missing.

    `passes`: at the lower and at the higher rate that is cited for a box that is not here; of this
    one, twice the same.
    """

    scenario: Scenario
    row: Row
    passes: tuple[Passes, Passes] | None = None


@dataclass(frozen=True)
class _Predictor:
    """Costs and the cell that they are for."""

    costs: Costs
    described: Record

    def passes(self, scenario: Scenario) -> tuple[Passes, Passes]:
        """The pipelines of each pass, at the lower and at the higher rate.

        Raises:
            NoCostsError: a cost was not measured in any pass.
        """
        pipelines: dict[int, tuple[Pipeline, Pipeline]] = {}
        missing = NoCostsError("no cost was measured")
        for repeat, costs in self.costs.by_pass().items():
            try:
                pipelines[repeat] = self._pipelines(costs, scenario)
            except NoCostsError as error:
                missing = error
        if not pipelines:
            raise missing
        low, high = ({repeat: each[end] for repeat, each in pipelines.items()} for end in (0, 1))
        return Passes(low), Passes(high)

    def rate(self, scenario: Scenario) -> float | None:
        """Images a second; None where a cost is missing."""
        try:
            return self.passes(scenario)[0].middle.rate()
        except NoCostsError:
            return None

    def _pipelines(self, costs: Costs, scenario: Scenario) -> tuple[Pipeline, Pipeline]:
        images = self.described.cell.images
        if scenario.copies:
            images = replace(images, storage=f"files:{scenario.copies}")
        cell = replace(self.described.cell, recipe=scenario.recipe, corpus=images)
        if scenario.cold:
            cell = replace(cell, params={**cell.params, "page_cache": "cold"})
        if there := self.described.cell.params.get("elsewhere"):
            accelerator = accelerators.load()[there["accelerator"]]
            return accelerators.pipelines(costs, cell, accelerator, there["cores"])
        return (costs.pipeline(cell),) * 2


def describing(records: Records) -> Record | None:
    """The record that carries the scenarios; None where the sample was not measured."""
    return next((r for r in records if r.cell.protocol == "image_stats" and r.ok), None)


def plan_of(records: Records) -> list[Scenario]:
    """What is predicted: what the run planned, and the stack that the costs suggest."""
    described = describing(records)
    if described is None:
        return []
    planned = [Scenario.from_json(plain) for plain in described.cell.params["setups"]]
    return planned + stacked(planned, _Predictor(Costs(records), described).rate)


def predict(records: Records, columns: Sequence[str]) -> list[Predicted]:
    """A row with these columns for each scenario, the present recipe's first."""
    described = describing(records)
    if described is None:
        return []
    predictor = _Predictor(Costs(records), described)
    costs = [record.values for record in records if is_cost(record) and record.ok]
    others = [float(values["other_cores"]) for values in costs if "other_cores" in values]
    base = new_row(described, columns) | {"origin": "predicted"}
    base["cores"] = described.environment["machine"]["cores"]
    base["cost_other_cores"] = median(others) if others else None
    predicted: list[Predicted] = []
    for scenario in plan_of(records):
        row = base | _choices(scenario, columns)
        try:
            entry = Predicted(scenario, row, predictor.passes(scenario))
        except NoCostsError as error:
            row |= {"status": "unavailable", "reason": str(error)}
            predicted.append(Predicted(scenario, row))
            continue
        reference = _base_of(entry, predicted)
        row |= _prediction(entry, reference)
        row["usd_per_million"] = _usd_per_million(described, row)
        if scenario.copies and reference is not entry:
            row["fix_cost"] = _cost_of_copies(scenario.copies, records, reference.row, row)
        row |= _proof(entry, reference, records)
        predicted.append(entry)
    return predicted


def _choices(scenario: Scenario, columns: Sequence[str]) -> Row:
    choices = {name: value for name, value in vars(scenario.recipe).items() if name in columns}
    # Of a box that is not here, the row's device is that box.
    del choices["device"]
    return choices | {
        "kind": scenario.kind,
        "fix": scenario.title,
        "fix_cost": scenario.cost,
        "copies": scenario.copies,
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
    row = common.new_row([described], columns) | {"n_images": described.values["n_sound"]}
    if (there := described.cell.params.get("elsewhere")) and "source" not in columns:
        row["device"] = f"{there['accelerator']} beside {there['cores']} cores{ELSEWHERE}"
        row |= {"device_kind": "cuda", "origin": "predicted"}
    return row


def _prediction(entry: Predicted, base: Predicted) -> Row:
    """Of the pass in the middle; the interval ends with that of the higher rate cited."""
    assert entry.passes is not None
    assert base.passes is not None
    low, high = entry.passes
    pipeline = low.middle
    expected = pipeline.predict(low.spread)
    row: Row = {
        "predicted_img_per_s": expected.img_per_s,
        "low_img_per_s": expected.low,
        "high_img_per_s": high.middle.predict(high.spread).high,
        "passes": len(low.pipelines),
        "cost_spread": low.spread,
        "bottleneck": expected.bottleneck,
        "accelerator_utilization": expected.accelerator_utilization,
        "faster_accelerator_speedup": expected.accelerator_bound,
        "workers_to_saturate": workers_to_saturate(pipeline),
    }
    if entry is base:
        return row | {"predicted_speedup": 1.0}
    gained, highest = low.gain_over(base.passes[0]), high.gain_over(base.passes[1])
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
    record = common.median_repeat(ran, common.seconds_an_image)
    rate = common.rate(record)
    others = record.values["telemetry"].get("other_cores")
    measured: Row = {
        "measured_img_per_s": rate,
        "error": row["predicted_img_per_s"] / rate - 1,
        "within_interval": row["low_img_per_s"] <= rate <= row["high_img_per_s"],
        "measured_bottleneck": measured_bottleneck(record),
        "other_cores": sum(others) / len(others) if others else None,
    }
    before = base.row["measured_img_per_s"]
    if entry is base or before is None:
        return measured
    speedup = rate / before
    inside = row["low_speedup"] <= speedup <= row["high_speedup"]
    return measured | {
        "measured_speedup": speedup,
        "gain_error": row["predicted_speedup"] / speedup - 1,
        "gain_within_interval": inside,
    }


def _cost_of_copies(copies: str, records: Records, present: Row, row: Row) -> str:
    """Bytes, CPU time and pixels; after how many runs the copies have paid for their making."""
    made = next((r for r in records if r.ok and r.cell.label == f"copies-{copies}"), None)
    if made is None:
        return "a copy of the images"
    values = made.values
    cores = made.environment["machine"]["cores"]
    ms = common.mean_ms(made, "encode")
    kb, kb_before = values["mean_bytes"] / 1e3, values["mean_bytes_before"] / 1e3
    size = f"{kb:.3g} kB instead of {kb_before:.3g}"
    price = f"{size}, {ms:.3g} ms of CPU to make, {values['psnr_db']:.0f} dB"
    seconds = [1 / line["predicted_img_per_s"] for line in (present, row)]
    saved_s = seconds[0] - seconds[1]
    if saved_s <= 0:
        return price
    runs = ceil(values["share"] * ms / 1e3 / cores / saved_s)
    return f"{price}; pays after {runs:,} more {'run' if runs == 1 else 'runs'}"


def _usd_per_million(described: Record, row: Row) -> float | None:
    price = (described.cell.params.get("elsewhere") or {}).get("usd_per_hour")
    return None if price is None else price / 3600 * 1e6 / row["predicted_img_per_s"]
