"""A job of one's own: where does its wall clock go, what to fix first, and what will that bring?

Method. A seeded sample of the images passes the stages before the device, with the present recipe's libraries and
with each alternative's, in one process and in several at once. A batch's way between processes, and the step from
h2d to the sink at a few batch sizes, are timed apart. From these alone `wallclock.predict` says what the recipe,
each fix alone and the fixes stacked will bring end to end. With `prove=true` every one of them is then run, as
`t4` is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import Row, _rows
from experiments._estimates import Estimates
from experiments._fixes import ADVICE, Setup, loaders, setups
from wallclock.clock import STAGES
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell, Recipe

STAGES_CSV, IMAGES_CSV, PREDICTIONS_CSV = (
    "diagnosis.csv",
    "diagnosis-images.csv",
    "diagnosis-predictions.csv",
)

#: A fix that brings less than this does nothing for its stage.
_GAINS = 1.005

_WHERE = ("image_set", "corpus", "weights", "model", "device", "device_kind", "n_images")
_END = ("origin", "status", "reason")
TABLES = {
    STAGES_CSV: (
        *(
            "stage",
            "ms_per_image",
            "share",
            "is_bottleneck",
            "at_most_speedup",
            "fix",
            "predicted_speedup",
            "fix_cost",
        ),
        *(*_WHERE, *_END),
    ),
    IMAGES_CSV: (
        *(
            "source",
            "n_images",
            "median_kb",
            "p90_kb",
            "median_megapixels",
            "p90_megapixels",
            "bytes_per_pixel",
        ),
        *("median_longest_px", "brightness", "formats", "corpus", *_END),
    ),
    PREDICTIONS_CSV: (
        *(
            "kind",
            "fix",
            "decoder",
            "resizer",
            "interpolation",
            "engine",
            "workers",
            "batch_size",
            "dtype",
        ),
        *(
            "predicted_img_per_s",
            "low_img_per_s",
            "high_img_per_s",
            "predicted_speedup",
            "bottleneck",
        ),
        *(
            "faithful",
            "accelerator_utilization",
            "faster_accelerator_speedup",
            "workers_to_saturate",
            "crossover_batch",
        ),
        *(
            "measured_img_per_s",
            "error",
            "within_interval",
            "other_cores",
            "fix_cost",
            *_WHERE,
            *_END,
        ),
    ),
}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """The images' looks; loading, hand-over and steps; with `prove`, every prediction end to end."""
    recipe, model, device = options["recipe"], plan.settings.model, options["recipe"].device
    corpus = plan.sample(options["images"])
    found = setups(options, recipe, len(os.sched_getaffinity(0)))

    def cell(protocol: str, label: str, of: Recipe, params: Mapping[str, Any]) -> Cell:
        return Cell("diagnose", protocol, label, 0, of, corpus, model, {**plan.params, **params})

    # The tables are made from records alone: the first says what was to be predicted.
    made = [cell("image_stats", "images", recipe, {"setups": [setup.to_json() for setup in found]})]
    made += [
        cell("contention", f"loading-{of.name}", of, options["loading"]) for of in loaders(found)
    ]
    made.append(cell("batch_transfer", "batch_transfer", recipe, options["batch_transfer"]))
    step = {name: options["step"][name][device] for name in ("batch_sizes", "batches", "seconds")}
    for dtype in dict.fromkeys(setup.recipe.dtype for setup in found):
        made.append(cell("step", f"step-{dtype}", replace(recipe, dtype=dtype), step))
    if options["prove"]:
        proof = plan.sample(dict.fromkeys(options["images"], options["prove_images"][device]))
        for setup in found:
            made.append(
                replace(cell("throughput", setup.recipe.name, setup.recipe, {}), corpus=proof)
            )
    return made


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """The nine stages, the images, the predictions; empty where the sample could not be measured."""
    described = next(
        (record for record in records if record.cell.protocol == "image_stats" and record.ok), None
    )
    if described is None:
        return {}
    known = [Setup.from_json(plain) for plain in described.cell.params["setups"]]
    estimates = Estimates(records, described.cell, known[0].recipe)
    predicted = [_prediction(setup, estimates, records, described) for setup in known]
    return {
        STAGES_CSV: _stages(known, estimates, predicted, described),
        IMAGES_CSV: [_images(described)],
        PREDICTIONS_CSV: predicted,
    }


def _on(described: Record) -> Row:
    cell = described.cell
    assert cell.corpus is not None
    return {
        **_rows.where(described),
        "image_set": cell.corpus.image_set,
        "model": cell.model.name,
        "n_images": described.values["n_sound"],
    }


def _stages(
    known: Sequence[Setup], estimates: Estimates, predicted: Sequence[Row], described: Record
) -> list[Row]:
    """A row a stage, in their order."""
    reason = estimates.missing(known[0].recipe)
    if reason:
        row = (
            _rows.blank(TABLES[STAGES_CSV])
            | _on(described)
            | {"origin": "measured", "reason": reason}
        )
        return [row | {"stage": stage, "status": "unavailable"} for stage in STAGES]
    seconds = estimates.seconds(known[0].recipe)
    total = sum(seconds.values())
    binding = estimates.binding(known[0].recipe)
    found = []
    for stage in STAGES:
        fix, cost, gain = _best_fix(stage, known, predicted)
        found.append(
            {
                **_rows.blank(TABLES[STAGES_CSV]),
                **_on(described),
                **{
                    "stage": stage,
                    "ms_per_image": 1e3 * seconds[stage],
                    "share": seconds[stage] / total,
                },
                **{
                    "is_bottleneck": stage == binding,
                    "at_most_speedup": estimates.without(known[0].recipe, stage),
                },
                **{"fix": fix, "predicted_speedup": gain, "fix_cost": cost},
                **{"origin": "measured", "status": "ok", "reason": ""},
            }
        )
    return found


def _best_fix(stage: str, known: Sequence[Setup], predicted: Sequence[Row]) -> tuple[str, str, Any]:
    """Of the fixes that shorten a stage, the one that brings most; else advice, without a prediction."""
    candidates = [
        (row["predicted_speedup"], setup)
        for setup, row in zip(known, predicted, strict=True)
        if setup.kind == "alone"
        and setup.faithful
        and stage in setup.stages
        and row["status"] == "ok"
    ]
    gain, setup = max(candidates, key=lambda pair: float(str(pair[0])), default=(0.0, known[0]))
    if float(str(gain)) < _GAINS:
        return (*ADVICE[stage], None)
    return setup.title, setup.cost, gain


def _images(described: Record) -> Row:
    values, traits = described.values, described.values["image_stats"]
    formats = sorted(values["formats"].items(), key=lambda pair: -pair[1])
    return {
        **{
            "source": "yours",
            "n_images": values["n_sound"],
            "corpus": _rows.where(described)["corpus"],
        },
        **{"median_kb": traits["kb_p50"], "p90_kb": traits["kb_p90"]},
        **{
            "median_megapixels": traits["megapixels_p50"],
            "p90_megapixels": traits["megapixels_p90"],
        },
        **{
            "bytes_per_pixel": traits["bytes_per_pixel_p50"],
            "median_longest_px": traits["longest_px_p50"],
        },
        "brightness": traits["brightness_p50"],
        "formats": ", ".join(
            f"{100 * count / values['n_sound']:.0f} % {name}" for name, count in formats
        ),
        **{"origin": "measured", "status": "ok", "reason": ""},
    }


def _prediction(
    setup: Setup, estimates: Estimates, records: Sequence[Record], described: Record
) -> Row:
    recipe = setup.recipe
    row = _rows.blank(TABLES[PREDICTIONS_CSV]) | _on(described)
    row |= {
        "kind": setup.kind,
        "fix": setup.title,
        "fix_cost": setup.cost,
        "faithful": setup.faithful,
        "origin": "predicted",
    }
    row |= {
        name: getattr(recipe, name) for name in TABLES[PREDICTIONS_CSV] if hasattr(recipe, name)
    }
    measured = next(
        (r for r in records if r.cell.protocol == "throughput" and r.cell.label == recipe.name),
        None,
    )
    if reason := estimates.missing(recipe):
        return row | {"status": "unavailable", "reason": reason}
    said, present = estimates.prediction(recipe), estimates.prediction(estimates.present)
    row |= {
        "predicted_img_per_s": said.img_per_s,
        "low_img_per_s": said.low,
        "high_img_per_s": said.high,
    }
    row |= {"predicted_speedup": said.img_per_s / present.img_per_s, "bottleneck": said.bottleneck}
    row |= {"accelerator_utilization": said.accelerator_utilization, "status": "ok", "reason": ""}
    row |= {"faster_accelerator_speedup": said.accelerator_bound, **estimates.limits(recipe)}
    if measured is not None and not measured.ok:
        return row | {"status": measured.status, "reason": measured.reason}
    if measured is not None:
        rate = measured.values["n_embedded"] / _rows.wall_s(measured)
        others = measured.values["telemetry"].get("other_cores")
        row |= {"other_cores": sum(others) / len(others) if others else None}
        row |= {
            "measured_img_per_s": rate,
            "error": said.img_per_s / rate - 1,
            "within_interval": said.low <= rate <= said.high,
        }
    return row
