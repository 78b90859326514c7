"""Real tables for tests: those of the fixture run, and the same as the paper's T4 has them."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from experiments import contents
from experiments.ablation import cells as ablation
from experiments.cluster import cells as cluster
from experiments.cpu import cells as cpu
from experiments.decoders import cells as decoders
from experiments.formats import cells as formats
from experiments.ladder import cells as ladder
from experiments.nms import cells as nms
from experiments.onnx import cells as onnx
from experiments.profiler import cells as profiler
from experiments.scaling import cells as scaling
from experiments.serialization import cells as serialization
from experiments.stage_fixes import cells as stage_fixes
from experiments.storage import cells as storage
from experiments.suite import cells as suite
from experiments.workers import cells as workers
from harness import provenance
from harness.drawing.rendering import read_measured_sources
from harness.drawing.style import paper_style
from harness.table import column as column_of
from harness.table import read_columns, read_table, write_table
from paper import claims
from paper.cited import cells_of, select
from paper.figures import FIGURES
from tests.fixture_run import fixture_tables

CPU = "AMD EPYC (2 cores)"
REFERENCE = provenance.ROOT / "data" / "reference" / "amd-epyc-2-cores"
#: Tables of it that the fixture run lacks.
BEYOND = (
    *(ablation.CSV, cluster.CSV, formats.CSV, nms.CSV, stage_fixes.CSV, storage.CSV, suite.CSV),
    *(*ladder.TABLES, *scaling.TABLES),
)
GPU = {"name": "Tesla T4", "memory_gib": 15, "driver": "580.1", "cuda": "13.0"}

Row = dict[str, Any]
#: Copies the named tables of the fixture run, all if none is named, and returns their folder.
Copy = Callable[..., Path]


def copy_tables(target: Path, *names: str, source: Path | None = None) -> Path:
    """Copy tables of a run, by default the fixture, and their provenance; all if none is named."""
    target.mkdir(parents=True, exist_ok=True)
    for path in (source or fixture_tables()).glob("*.csv"):
        if not names or path.name in names:
            shutil.copy(path, target)
            if path.with_suffix(".meta.json").is_file():
                shutil.copy(path.with_suffix(".meta.json"), target)
    return target


def save(path: Path, rows: list[Row], columns: list[str] | None = None) -> None:
    """Write rows as a table; a column that a row lacks is empty."""
    columns = columns or read_columns(path)
    write_table(path, columns, [{**dict.fromkeys(columns, ""), **row} for row in rows])


def edit(path: Path, where: str = "", **changes: object) -> None:
    """Change cells of the rows that `where` selects (`decoder=pil`, `3`), or of all."""
    rows = read_table(path)
    selected = [select(rows, where)] if where else rows
    assert all(row is not None for row in selected), where
    for row in selected:
        assert changes.keys() <= row.keys(), changes  # type: ignore[union-attr]
        row.update({name: _exact(value) for name, value in changes.items()})  # type: ignore[union-attr]
    save(path, rows)


def _exact(value: object) -> object:
    """With all its digits, where a table has six."""
    return repr(value) if isinstance(value, float) else value


def fail(path: Path, where: str, status: str, reason: str) -> None:
    """Turn a row into one without a measurement: no number, a status and a reason."""
    rows = read_table(path)
    row = select(rows, where)
    assert row is not None
    names = "n_images repeats img_per_s wall_s seconds_per_100k mean_ms write_s psnr_db cosine"
    edit(path, where, **dict.fromkeys(set(names.split()) & row.keys(), ""))
    edit(path, where, status=status, reason=reason)


def schemas() -> dict[str, Sequence[str]]:
    """The columns of every table that an experiment writes."""
    names = (*contents.ORDER, *contents.ON_REQUEST)
    tables = [contents.load(name).TABLES for name in names]
    return {csv: columns for table in tables for csv, columns in table.items()}


def claim_of(name: str) -> claims.Claim:
    """The claim of that id."""
    return next(claim for claim in claims.load(claims.CLAIMS) if claim.id == name)


def fault_of(claim: claims.Claim) -> str:
    """What in a claim no experiment's table has; empty for nothing."""
    for csv, selector, column in claim.cells():
        if csv not in schemas():
            return f"claim {claim.id}: no experiment writes {csv}"
        names = [column, *dict(cells_of(selector))]
        if not column_of(csv, column).is_exact:
            names += [f"{column}_min", f"{column}_max"]
        missing = [name for name in names if name not in schemas()[csv]]
        if missing:
            return f"claim {claim.id}: {csv} has no column {', '.join(missing)}"
    return ""


def write_cited(folder: Path, cited: Sequence[claims.Claim]) -> None:
    """For claims on a table that the fixture run lacks, the rows that they select."""
    rows: dict[str, list[Row]] = {}
    for claim in cited:
        for csv, selector, column in claim.cells():
            table = rows.setdefault(csv, [])
            if not (folder / csv).is_file() and select(table, selector) is None:
                ends = {f"{column}{end}" for end in ("", "_min", "_max")} & {*schemas()[csv]}
                cells = dict(cells_of(selector))
                table.append({"status": "ok", "repeats": "3", **dict.fromkeys(ends, "1"), **cells})
    for csv, table in rows.items():
        if table:
            save(folder / csv, table, list(schemas()[csv]))


def write_pillow_sweep(folder: Path) -> None:
    """The worker sweep with Pillow, at the rates of libjpeg-turbo: the fixture run has none."""
    rows = read_table(folder / workers.CSV)
    beside = [{**row, "decoder": "pil", "recipe": f"{row['recipe']}-pil"} for row in rows]
    save(folder / workers.CSV, [*rows, *beside])


def as_on_t4(target: Path) -> Path:
    """The fixture run with the paper's own numbers in the cells that it cites, on its machine."""
    copy_tables(target)
    copy_tables(target, *BEYOND, source=REFERENCE)
    runtimes = read_table(target / onnx.CSV)
    if select(runtimes, "opset=17") is None:  # a run from before that row
        newer = select(runtimes, "runtime=onnxruntime dtype=fp16")
        assert newer is not None
        rows = [*runtimes, {**newer, "opset": "17", "attention": "eager"}]
        save(target / onnx.CSV, rows, read_columns(target / onnx.CSV))
    write_pillow_sweep(target)
    cited = [claim for claim in claims.load(claims.CLAIMS) if not fault_of(claim)]
    write_cited(target, cited)
    on_cpu = (decoders.CSV, cpu.CSV, nms.CSV, profiler.CSV, serialization.CSV)
    for path in target.glob("*.csv"):
        columns, rows = read_columns(path), read_table(path)
        kind = "cpu" if path.name in on_cpu else "cuda"
        device = "Xeon (16 cores, beside Tesla T4)" if kind == "cpu" else "Tesla T4"
        machine = {"device": device, "device_kind": kind, "corpus": "abo"}
        machine |= {"cores": "8"} if path.name == ladder.CSV else {}
        for row in rows:
            if row.get("device_kind") != "mock":
                row.update({name: machine[name] for name in machine if name in row})
            row.update({"repeats": 3} if row.get("repeats") == 1 else {})
            row.update({"weights": "pretrained"} if row.get("weights") == "random" else {})
            # Without the fixture's spread, which is not one of the paper's numbers.
            spread = [
                name for name in row if name.endswith(("_min", "_max")) and row[name] is not None
            ]
            row.update({name: row.get(name[:-4], row[name]) for name in spread})
            if row.get("stage") in ("h2d", "forward", "d2h") and "lane" in row:
                row["lane"] = "gpu"
        save(path, rows, columns)
        about = path.with_suffix(".meta.json")
        if about.is_file():
            meta = json.loads(about.read_text(encoding="utf-8"))
            meta["machine"] |= {"cpu": "Xeon", "cores": 16, "gpus": [GPU]}
            about.write_text(json.dumps(meta), encoding="utf-8")
    for claim in sorted(cited, key=_firmness):
        _write_number(target, claim)
    claims.write(claims.judge(cited, target), target / claims.CSV)
    return target


def _firmness(claim: claims.Claim) -> tuple[bool, bool, bool, float]:
    """Sorts claims so that the firmest number of a cell is written last.

    Before it come rounded ones in another unit, those that the paper contradicts, and wide ones;
    behind all come numbers of two cells.
    """
    tolerance = float("inf") if claim.tolerance is None else claim.tolerance
    return bool(claim.base_csv), claim.scale == 1, claim.other_value is None, -tolerance


def _write_number(folder: Path, claim: claims.Claim) -> None:
    """The paper's number in the cell that backs a claim.

    A ratio sets its first cell, if the two cells do not have it; not where the paper's own numbers
    make another one.
    """
    path, value = folder / claim.csv, claim.paper_value / claim.scale
    if claim.base_csv:
        if claim.kind == "difference" or claim.other_value is not None:
            return
        over = select(read_table(folder / claim.base_csv), claim.base_row)
        cited_row = select(read_table(path), claim.row)
        assert cited_row is not None
        assert over is not None
        column = claim.base_column or claim.column
        if not over[column]:  # of a GPU, which the reference run had none of
            ones = dict.fromkeys((f"{column}{end}" for end in ("", "_min", "_max")), "1")
            edit(folder / claim.base_csv, claim.base_row, **ones)
        base = over[column] or 1
        if abs((cited_row[claim.column] or 0) / base / value - 1) < 0.1:
            return
        value *= base
    _measured(path, claim.row)
    ends = {f"{claim.column}{end}" for end in ("", "_min", "_max")} & {*read_columns(path)}
    edit(path, claim.row, **dict.fromkeys(ends, f"{value:.6g}"))


def _measured(path: Path, where: str) -> None:
    """Give a row without a measurement the numbers of the first one that has them."""
    rows = read_table(path)
    row = select(rows, where)
    assert row is not None, (path.name, where)
    if row["status"] != "ok":
        first = next(other for other in rows if other["status"] == "ok")
        cells = first | {name: cell for name, cell in row.items() if cell not in ("", None)}
        cells |= {"gate": "passed", "status": "ok", "reason": ""}
        edit(path, where, **{name: cells[name] for name in row})


def drawn(stem: str, folder: Path) -> Figure:
    """The figure of that stem, drawn from the tables in `folder`."""
    output = FIGURES[stem]
    with paper_style():
        return output.make(read_measured_sources(folder, output.required, output.optional))


def markers(lines: Sequence[Line2D], marker: str) -> list[tuple[float, float]]:
    """Positions of the points drawn with that marker."""
    points: list[Any] = [line.get_xydata() for line in lines if line.get_marker() == marker]
    return [(float(x), float(y)) for x, y in np.concatenate(points)] if points else []


def words(figure: Figure) -> str:
    """All text in a figure, spaces and line breaks plain."""
    texts = [item.get_text() for item in figure.findobj(Text) if isinstance(item, Text)]
    return "\n".join(texts).replace("\u00a0", " ").replace("\n", " ")
