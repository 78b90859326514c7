"""A diagnosis as one HTML file that opens offline, in the report's clothes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from wallclock.files import write_text
from wallclock.paper import diagnosis, report
from wallclock.paper.csvfile import number
from wallclock.paper.diagnosis import PREDICTIONS_CSV, STAGES_CSV, Diagnosis
from wallclock.paper.figures.style import STAGE_STYLES, is_dark
from wallclock.paper.rendering import Rendering
from wallclock.predict import UNCERTAINTY

STEM = "diagnosis"

Row = Mapping[str, str]


def render(tables_dir: Path, figures_dir: Path) -> Rendering:
    """Write `diagnosis.html` from the diagnosis in `tables_dir`.

    Raises:
        UserError: a CSV is damaged.
    """
    found = diagnosis.load(tables_dir)
    if found is None:
        return Rendering(STEM, (), f"no {STAGES_CSV}")
    path = figures_dir / f"{STEM}.html"
    about = json.loads(
        (tables_dir / STAGES_CSV).with_suffix(".meta.json").read_text(encoding="utf-8")
    )
    write_text(path, build(found, about))
    return Rendering(STEM, (path,))


def build(found: Diagnosis, about: Mapping[str, Any]) -> str:
    """The page. The same tables always give the same text."""
    first = found.first()
    fixes = [found.present, *found.fixes, *found.stacked]
    longest = max((number(row["high_img_per_s"]) or 0.0 for row in fixes), default=1.0)
    return (
        report.jinja_environment()
        .get_template("diagnosis.html.jinja")
        .render(
            css=Markup((report.TEMPLATES / "report.css").read_text(encoding="utf-8")),
            headline=diagnosis.headline(found),
            verdict=diagnosis.verdict(found),
            present=found.present,
            device=found.device,
            segments=[_segment(row) for row in found.stages],
            stages=[_stage(row) for row in found.stages],
            images=[_image(row) for row in diagnosis.compared_images(found)],
            checklist=[_check(row) for row in found.checklist],
            alone=[_predicted(row, longest, row is first) for row in (found.present, *found.fixes)],
            stacked=[_predicted(row, longest, False) for row in found.stacked],
            proved=[_proved(row) for row in found.proved],
            proof=diagnosis.proof(found),
            uncertainty=f"{UNCERTAINTY:.0%}",
            command=about["command"],
            csvs=[STAGES_CSV, diagnosis.IMAGES_CSV, PREDICTIONS_CSV],
            machine=_machine(about),
            versions=sorted(about["versions"].items(), key=lambda pair: pair[0].lower()),
        )
    )


def _segment(row: Row) -> dict[str, Any]:
    fill, share = STAGE_STYLES[row["stage"]][0], float(row["share"])
    ink = "#fff" if is_dark(fill) else "#1b1f24"
    return {"stage": row["stage"], "share": share, "text": f"{share:.0%}", "fill": fill, "ink": ink}


def _stage(row: Row) -> dict[str, Any]:
    return {
        "stage": row["stage"],
        "ms": f"{float(row['ms_per_image']):.3f}",
        "share": f"{float(row['share']):.1%}",
        "is_bottleneck": row["is_bottleneck"] == "yes",
    }


def _image(row: Row) -> dict[str, str]:
    names = ("median_kb", "median_megapixels", "bytes_per_pixel", "median_longest_px", "brightness")
    return {"source": row["source"], "n": row["n_images"], "formats": row["formats"]} | {
        name: _short(row[name]) for name in names
    }


def _check(row: Row) -> dict[str, Any]:
    gain = number(row["predicted_speedup"])
    return {
        **_stage(row),
        "gain": "" if gain is None else f"{gain:.2f}×",
        "at_most": f"{float(row['at_most_speedup']):.2f}×" if row["at_most_speedup"] else "",
        "fix": row["fix"],
        "cost": row["fix_cost"],
    }


def _predicted(row: Row, longest: float, first: bool) -> dict[str, Any]:
    if row["status"] != "ok":
        return {"title": row["fix"], "reason": f"{row['status']}: {row['reason']}", "first": False}
    low, rate, high = (
        float(row[name]) for name in ("low_img_per_s", "predicted_img_per_s", "high_img_per_s")
    )
    return {
        "title": row["fix"],
        "reason": "",
        "first": first,
        "rate": _short(row["predicted_img_per_s"]),
        "interval": f"{_short(row['low_img_per_s'])} – {_short(row['high_img_per_s'])}",
        "gain": f"{float(row['predicted_speedup']):.2f}×",
        "is_bottleneck": row["bottleneck"],
        "busy": f"{float(row['accelerator_utilization']):.0%}",
        "cost": row["fix_cost"],
        **{
            name: f"{100 * value / longest:.2f}"
            for name, value in (("low", low), ("at", rate), ("high", high))
        },
    }


def _proved(row: Row) -> dict[str, Any]:
    return {
        "kind": row["kind"],
        "title": row["fix"],
        "setup": f"{row['decoder']} + {row['resizer']} {row['interpolation']}, {row['workers']} workers, "
        f"batch {row['batch_size']}, {row['dtype']}",
        "predicted": _short(row["predicted_img_per_s"]),
        "measured": _short(row["measured_img_per_s"]),
        "error": f"{float(row['error']):+.1%}",
        "within_interval": row["within_interval"] == "yes",
    }


def _machine(about: Mapping[str, Any]) -> str:
    machine = about["machine"]
    gpus = ", ".join(gpu["name"] for gpu in machine["gpus"])
    return f"{machine['cpu']}, {machine['cores']} cores; {gpus or 'no GPU'}"


def _short(cell: str) -> str:
    value = number(cell)
    return "" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
