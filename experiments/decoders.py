"""How long does each library take to turn JPEG bytes into an RGB array?

Method. The bytes are in memory; one call a buffer, one thread; four decoders on both image sets.
Mean, p50 and p90 are over the buffers of the median repeat. First all decoders take the same images
and their pixels are compared with Pillow's: a decoder that computes something else (`gate`) gets no
time. Only sound JPEGs of one or three components take part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments import Row, _rows
from wallclock.records import Record
from wallclock.run.plan import Plan
from wallclock.spec import Cell
from wallclock.stages.decode import LIBRARY_OF
from wallclock.summary import quantile

COLUMNS = (
    *("image_set", "decoder", "library", "corpus", "device", "device_kind", "n_buffers", "repeats"),
    *(
        "mean_ms",
        "p50_ms",
        "p90_ms",
        "mean_ms_min",
        "mean_ms_max",
        "megapixels_per_s",
        "max_abs_diff",
        "gate",
    ),
    *("median_kb", "median_megapixels", "origin", "status", "reason"),
)
CSV = "decoder-comparison.csv"
TABLES = {CSV: COLUMNS}


def cells(plan: Plan, options: Mapping[str, Any]) -> list[Cell]:
    """For each image set: agreement once; then each decoder, repeated."""
    found = []
    for image_set, corpus in plan.slices(options["images"]).items():
        sample = plan.slice(image_set, min(options["agreement"]["images"], corpus.n))
        base = plan.recipe(engine="serial", workers=0, device="cpu", batch_size=1)
        label = f"agreement-{image_set}"
        found.append(
            Cell(
                "decoders",
                "agreement",
                label,
                0,
                base,
                sample,
                plan.settings.model,
                options["agreement"],
            )
        )
        for repeat in plan.repeats("decoders"):
            for name in options["decoders"]:
                recipe = plan.recipe(
                    name=name, decoder=name, engine="serial", workers=0, device="cpu", batch_size=1
                )
                label = f"{name}-{image_set}"
                found.append(
                    Cell(
                        "decoders",
                        "decode",
                        label,
                        repeat,
                        recipe,
                        corpus,
                        plan.settings.model,
                        plan.params,
                    )
                )
    return found


def tables(records: Sequence[Record]) -> dict[str, list[Row]]:
    """One row a decoder and image set."""
    groups = _rows.groups(records, "decode")
    return {CSV: [_row(repeats, records, image_set) for (image_set, _), repeats in groups.items()]}


def _row(repeats: Sequence[Record], records: Sequence[Record], image_set: str) -> Row:
    record = repeats[0]
    recipe = record.cell.recipe
    status, reason = _rows.status_of(repeats)
    library = record.environment["versions"][LIBRARY_OF[recipe.decoder]]
    row = _rows.blank(COLUMNS) | {
        name: value for name, value in _rows.where(record).items() if name in COLUMNS
    }
    row |= {
        "image_set": image_set,
        "decoder": recipe.decoder,
        "library": f"libjpeg-turbo {library}",
    }
    row |= {
        "origin": "measured",
        "status": status,
        "reason": reason,
        **_gate(records, recipe.decoder, image_set),
    }
    if status == "ok" and row["gate"] == "failed":
        row |= {"status": "gate failed", "reason": "its pixels are not Pillow's: no time counts"}
    elif status == "ok":
        row |= _timing(repeats)
    return row


def _timing(repeats: Sequence[Record]) -> Row:
    measured = sorted((record for record in repeats if record.ok), key=_mean_ms)
    chosen = measured[(len(measured) - 1) // 2]
    samples = chosen.samples["decode"]
    return {
        "n_buffers": len(samples),
        "repeats": len(measured),
        "mean_ms": _mean_ms(chosen),
        "p50_ms": quantile(samples, 0.5) / 1e6,
        "p90_ms": quantile(samples, 0.9) / 1e6,
        "mean_ms_min": _mean_ms(measured[0]),
        "mean_ms_max": _mean_ms(measured[-1]),
        "megapixels_per_s": chosen.values["megapixels"] / chosen.seconds_in("decode"),
        **_rows.shape(chosen.values),
    }


def _mean_ms(record: Record) -> float:
    samples = record.samples["decode"]
    return sum(samples) / len(samples) / 1e6


def _gate(records: Sequence[Record], decoder: str, image_set: str) -> Row:
    found = _rows.values_of(records, "agreement", image_set).get("agreement", {}).get(decoder, {})
    if "max_abs_diff" not in found:
        return {"gate": "not checked"}
    limit = next(
        record.cell.params["max_abs_diff"]
        for record in records
        if record.cell.protocol == "agreement"
    )
    worst = found["max_abs_diff"]
    if decoder == "pil":
        return {"max_abs_diff": worst, "gate": "reference"}
    return {"max_abs_diff": worst, "gate": "passed" if worst <= limit else "failed"}
