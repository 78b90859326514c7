"""`what-limits-my-job.html`: a reader enters a job and sees what binds it. Opens offline.

The page computes in the browser what `wallclock.predict.Pipeline` computes without variance: a test
runs `report_template/limits.js` and Python over one grid of jobs. Its rates are those of
`frontier.csv`; accelerators follow from their cited peaks (`experiments._accelerators`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from experiments import _accelerators, _levels
from experiments._sentences import is_comparable
from experiments.frontier import CSV, LABELS
from paper.csvfile import Row
from paper.format import digits
from paper.labels import SHORT_SETS
from paper.pages import read_asset, render_page
from paper.rendering import NothingToDrawError, Rendering, read_measured_sources
from wallclock.files import canonical_json, write_text

STEM = "what-limits-my-job"
CSVS = (CSV,)
#: What a reader finds filled in: the paper's job on its machine.
_DEFAULTS = {
    "images": 1_000_000,
    "cores": 16,
    "mb_per_s": 250,
    "usd_per_hour": 1.2,
    "accelerator": "T4, FP16",
}
#: Where images are from, in a word.
_SOURCES = {"abo": "the paper's", "synthetic": "generated", "folder": "photos"}
#: Per image of DINOv2-small at 224 px.
_GFLOPS = _accelerators.DINOV2_SMALL_FLOPS / 1e9


def render(tables_dir: Path, out_dir: Path) -> Rendering:
    """Write the page, or say why there is none."""
    try:
        rows = read_measured_sources(tables_dir, CSVS, ())[CSV]
        data = page_data(rows)
    except NothingToDrawError as nothing:
        return Rendering(STEM, (), str(nothing))
    # "<" would end the script element in which the page keeps its numbers.
    embedded = Markup(canonical_json(data).replace("<", "\\u003c"))
    page = render_page(
        "limits.html.jinja", data=data, embedded=embedded, script=read_asset("limits.js")
    )
    path = out_dir / f"{STEM}.html"
    write_text(path, page)
    return Rendering(STEM, (path,))


def page_data(rows: Sequence[Row]) -> dict[str, Any]:
    """What the page computes with: image sets with their loaders, accelerators, defaults.

    Raises NothingToDrawError: no image set has this suite's loader and Pillow's.
    """
    kinds = [kind for kind in (_kind(ours, rows) for ours in _ours(rows)) if kind["loaders"]]
    if not kinds:
        raise NothingToDrawError(f"no image set in {CSV} with a rate of our loader and of Pillow's")
    return {
        "kinds": sorted(kinds, key=lambda kind: -kind["megapixels"]),
        "accelerators": _cited_accelerators(),
        "gflops": _GFLOPS,
        "defaults": _DEFAULTS,
    }


def _ours(rows: Sequence[Row]) -> list[Row]:
    wanted = {"system": "ours", "subset": "all", "status": "ok"}
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def _kind(ours: Row, rows: Sequence[Row]) -> dict[str, Any]:
    """An image set: its sizes, and the faithful loaders: ours, the next fastest, Pillow's.

    `load_s`: core seconds per image, all that a loader does included.
    """
    others = [row for row in rows if is_comparable(row, ours, ("system", "variant"))]
    passing = [
        row
        for row in others
        if row["system"] != "ours" and _levels.reaches(row["level"], _levels.FAITHFUL)
    ]
    pillow = [row for row in passing if row["system"] == "pil"]
    if not pillow:
        return {"loaders": []}
    fastest = max(passing, key=lambda row: float(row["img_per_s"]))
    chosen = {row["system"]: row for row in (*pillow, fastest, ours)}
    source = _SOURCES[ours["corpus"]]
    return {
        "name": f"{SHORT_SETS[ours['image_set']]} ({source}, {digits(ours['median_kb'])} kB)",
        "kb": float(ours["median_kb"]),
        "megapixels": float(ours["median_megapixels"]),
        "loaders": [_loader(row) for row in chosen.values()],
    }


def _loader(row: Row) -> dict[str, Any]:
    cores = float(row["cores"])
    return {
        "name": LABELS[row["system"]],
        "ours": row["system"] == "ours",
        "engine": "threads" if row["system"] == "ours" else "dataloader",
        "load_s": cores / float(row["img_per_s"]),
        "img_per_s": [float(row[f"img_per_s{end}"]) for end in ("_min", "", "_max")],
        "cores": int(cores),
        "machine": row["device"],
        "repeats": int(row["repeats"]),
    }


def _cited_accelerators() -> list[dict[str, Any]]:
    """DINOv2-small on each accelerator and dtype: the lower and the higher estimate."""
    listed = []
    for name, accelerator in _accelerators.load().items():
        for dtype in ("fp32", "fp16"):
            low, high = accelerator.rates(dtype)
            listed.append(
                {
                    "name": f"{name}, {dtype.upper()}",
                    "low": low,
                    "high": high,
                    "source": accelerator.source,
                    "instance": accelerator.instance,
                }
            )
    return listed
