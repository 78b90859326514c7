"""A diagnosis as one HTML file that opens offline, styled like the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.diagnose import STAGES_CSV
from wallclock.files import write_text
from wallclock.paper.csvfile import Row, number
from wallclock.paper.diagnosis import words
from wallclock.paper.diagnosis.words import TABLES, Diagnosis
from wallclock.paper.format import percent
from wallclock.paper.pages import render_page, segment
from wallclock.paper.rendering import Rendering
from wallclock.predict.model import UNCERTAINTY

STEM = "diagnosis"


def render(tables_dir: Path, figures_dir: Path) -> Rendering:
    """Write `diagnosis.html` from the diagnosis in `tables_dir`.

    Raises UserError if a CSV is damaged.
    """
    diagnosis = words.load(tables_dir)
    if diagnosis is None:
        return Rendering(STEM, (), f"no {STAGES_CSV}")
    path = figures_dir / f"{STEM}.html"
    meta = (tables_dir / STAGES_CSV).with_suffix(".meta.json").read_text(encoding="utf-8")
    write_text(path, build(diagnosis, json.loads(meta)))
    return Rendering(STEM, (path,))


def build(diagnosis: Diagnosis, about: Mapping[str, Any]) -> str:
    """The page. Equal tables always give equal text."""
    alone = [diagnosis.present, *diagnosis.fixes]
    fastest = max(number(row["high_img_per_s"]) or 0.0 for row in (*alone, *diagnosis.stacked))
    machine = about["machine"]
    gpus = ", ".join(gpu["name"] for gpu in machine["gpus"])
    return render_page(
        "diagnosis.html.jinja",
        headline=words.headline(diagnosis),
        verdict=words.verdict(diagnosis),
        diagnosis=diagnosis,
        segments=[segment(row["stage"], float(row["share"])) for row in diagnosis.stages],
        images=words.compared_images(diagnosis),
        groups={
            "Each alone": [(row, _interval(row, fastest)) for row in alone],
            "Added cumulatively": [(row, _interval(row, fastest)) for row in diagnosis.stacked],
        },
        first=diagnosis.first(),
        proof=words.proof(diagnosis),
        uncertainty=percent(UNCERTAINTY, 0),
        command=about["command"],
        csvs=TABLES,
        machine=f"{machine['cpu']}, {machine['cores']} cores; {gpus or 'no GPU'}",
        versions=sorted(about["versions"].items(), key=lambda pair: pair[0].lower()),
    )


def _interval(row: Row, fastest: float) -> dict[str, str]:
    """Low, predicted and high rate as percentages of the width of the drawn interval."""
    rates = {end: number(row[f"{end}_img_per_s"]) or 0.0 for end in ("low", "predicted", "high")}
    return {end: f"{100 * rate / fastest:.2f}" for end, rate in rates.items()}
