"""How good predictions were, judged by what was measured afterwards: rates, gains, bottlenecks.

A gain is a rate over that of the recipe without the change, both ends measured. What a mock model's
sleep decides is left out: the model was given that time, and its prediction returns it. Skill is
1 - the median error over that of predicting that nothing changes (1 is perfect, 0 no better). A
share that is right has Wilson's interval. Beside the bottlenecks that were named right is the share
of a simpler predictor: the bottleneck that the recipe had before.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any

from experiments.common import Record, Row, columns
from harness.measures import median, quantile
from wallclock.clock import LOADING_STAGES

COLUMNS = columns(
    "predictions n_rates rate_error_median rate_error_p90 rate_error_worst rate_bias",
    "n_gains gain_error_median gain_error_p90 gain_error_worst",
    "n_changes changes_right_share changes_right_share_low changes_right_share_high",
    "n_bottlenecks bottleneck_right_share bottleneck_right_share_low bottleneck_right_share_high",
    "bottleneck_right_unchanged",
    "skill_unchanged skill_unchanged_low skill_unchanged_high n_decided_by_sleep",
    "origin status reason",
)
#: A measured gain, or loss, that is no noise.
_CHANGED = 1.05
#: Share of the errors that the intervals of predictions cover.
_COVERED = 0.9
#: Fewer errors than that say nothing about a share of them.
_LEAST_ERRORS = 5
#: Resamples of the bootstrap, and the tails that its interval leaves out (Efron, 1979).
_RESAMPLES, _TAIL = 2000, 0.05
#: Of the normal distribution, beyond which `_TAIL` lies.
_Z = NormalDist().inv_cdf(1 - _TAIL)
#: Share of the wall time that a device may wait and still be the bottleneck.
_WAITS = 0.2


@dataclass(frozen=True)
class Outcome:
    """A prediction and what was measured: images per second.

    `base`: the outcome of the recipe without the change; None for that one itself.
    """

    group: str
    predicted: float
    measured: float
    bottleneck: str = ""
    measured_bottleneck: str = ""
    mock: bool = False
    base: "Outcome | None" = None

    @property
    def by_sleep(self) -> bool:
        """Whether a mock model's sleep decides the rate."""
        return self.mock and "accelerator" in (self.bottleneck, self.measured_bottleneck)


def outcomes(
    rows: Iterable[Mapping[str, Any]], rate: str, group: str, kind: Sequence[str] = ()
) -> list[Outcome]:
    """Those rows of a table of predictions that were predicted and measured.

    Args:
        rows: as they are made, or as text from a CSV.
        rate: the column of the predicted rate.
        group: the column that the accuracy's rows are of.
        kind: columns that are equal in rows that are compared: a gain is over the first of them.
    """
    first: dict[tuple[str, ...], Outcome] = {}
    judged = []
    for row in rows:
        predicted, measured = row[rate], row["measured_img_per_s"]
        if row["status"] != "ok" or predicted is None or measured is None:
            continue
        alike = tuple(str(row[name]) for name in kind)
        outcome = Outcome(
            str(row[group]),
            predicted,
            measured,
            str(row["bottleneck"]),
            str(row["measured_bottleneck"] or ""),
            row["weights"] == "none" or row.get("service_ms") is not None,
            first.get(alike),
        )
        first.setdefault(alike, outcome)
        judged.append(outcome)
    return judged


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """A row for all outcomes, then one for each group."""
    groups = dict.fromkeys(outcome.group for outcome in outcomes)
    made = [_row("all", outcomes)]
    return made + [_row(name, [o for o in outcomes if o.group == name]) for name in groups]


def _row(name: str, outcomes: Sequence[Outcome]) -> Row:
    judged = [outcome for outcome in outcomes if not outcome.by_sleep]
    row: Row = dict.fromkeys(COLUMNS) | {"predictions": name, "origin": "computed"}
    row |= {"n_decided_by_sleep": len(outcomes) - len(judged), "n_rates": len(judged)}
    row["status"] = "ok" if judged else "not judged"
    if not judged:
        return row | {"reason": "nothing was measured that no sleep decides"}
    rates = [outcome.predicted / outcome.measured for outcome in judged]
    row |= _error_columns("rate", rates)
    row["rate_bias"] = median(rates) - 1
    row |= _bottleneck_columns([outcome for outcome in judged if outcome.measured_bottleneck])
    gains = [
        (o.predicted / o.base.predicted, o.measured / o.base.measured) for o in judged if o.base
    ]
    row["n_gains"] = len(gains)
    return row | _gain_columns(gains) if gains else row


def _bottleneck_columns(named: Sequence[Outcome]) -> Row:
    """How often the name was right, of outcomes that have a measured one."""
    row: Row = {"n_bottlenecks": len(named)}
    row |= _share_columns(
        "bottleneck_right_share", [o.bottleneck == o.measured_bottleneck for o in named]
    )
    as_before = [
        o.base.measured_bottleneck == o.measured_bottleneck
        for o in named
        if o.base and o.base.measured_bottleneck
    ]
    return row | {"bottleneck_right_unchanged": _share(as_before)}


def _gain_columns(gains: Sequence[tuple[float, float]]) -> Row:
    """Of gains as predicted and as measured."""
    row = _error_columns("gain", [predicted / measured for predicted, measured in gains])
    right = [
        (predicted > 1) == (measured > 1)
        for predicted, measured in gains
        if _reach(measured) >= _CHANGED
    ]
    row["n_changes"] = len(right)
    row |= _share_columns("changes_right_share", right)
    return row | _skill_columns(gains)


def _error_columns(what: str, ratios: Sequence[float]) -> Row:
    errors = [abs(ratio - 1) for ratio in ratios]
    row: Row = {f"{what}_error_median": median(errors), f"{what}_error_worst": max(errors)}
    row[f"{what}_error_p90"] = quantile([_reach(ratio) - 1 for ratio in ratios], _COVERED)
    return row


def _reach(ratio: float) -> float:
    """How far a ratio is from 1, up or down, as a factor."""
    return max(ratio, 1 / ratio)


def _share(right: Sequence[bool]) -> float | None:
    return sum(right) / len(right) if right else None


def _share_columns(name: str, right: Sequence[bool]) -> Row:
    """A share and its 90 % interval, by Wilson's score (JASA 22, 1927); empty of nothing."""
    share, n = _share(right), len(right)
    if share is None:
        return {name: None}
    squared = _Z * _Z / n
    middle = (share + squared / 2) / (1 + squared)
    reaches = sqrt(share * (1 - share) * squared + squared * squared / 4) / (1 + squared)
    return {name: share, f"{name}_low": middle - reaches, f"{name}_high": middle + reaches}


def _skill_columns(gains: Sequence[tuple[float, float]]) -> Row:
    """Skill over "nothing changes", and the bootstrap's interval; empty where that is perfect."""
    pairs = [
        (abs(predicted / measured - 1), abs(1 / measured - 1)) for predicted, measured in gains
    ]
    row: Row = {"skill_unchanged": _skill(pairs)}
    if len(pairs) < _LEAST_ERRORS:
        return row
    rng = random.Random(0)
    drawn = [_skill(rng.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES)]
    skills = [skill for skill in drawn if skill is not None]
    if skills:
        row["skill_unchanged_low"] = quantile(skills, _TAIL)
        row["skill_unchanged_high"] = quantile(skills, 1 - _TAIL)
    return row


def _skill(pairs: Sequence[tuple[float, float]]) -> float | None:
    ours, simpler = (median([pair[side] for pair in pairs]) for side in (0, 1))
    return 1 - ours / simpler if simpler else None


def measured_bottleneck(record: Record) -> str:
    """The bottleneck as the main process saw it: waiting for batches, or one of its own stages.

    With workers a busy device hardly waits: a wait of more than a fifth of the wall time means that
    loading is the bottleneck. Without workers it is what took longest. Of loading, it is the
    storage where reading took most.
    """
    wall = record.seconds_in("wall")
    wait = record.seconds_in("wait")
    busy = {name: record.seconds_in(name) for name in ("h2d", "forward")}
    busy["main"] = wall - wait - sum(busy.values())
    longest = max(busy, key=busy.__getitem__)
    waits = wait > _WAITS * wall if record.cell.recipe.workers else wait >= busy[longest]
    if not waits:
        return "accelerator" if longest == "forward" else longest
    loading = sum(record.seconds_in(name) for name in LOADING_STAGES)
    return "storage" if record.seconds_in("read") > loading / 2 else "transform"
