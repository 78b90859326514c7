"""Records → CSVs → verdicts → figures, tables, report. Needs no GPU, no torch, no images: a laptop can redo it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import experiments
from wallclock import provenance, records
from wallclock.files import pretty_json, write_text
from wallclock.paper import claims, diagnosis_page, figures, perfetto, report, tables
from wallclock.paper.claims import Verdict
from wallclock.paper.csvfile import write_table
from wallclock.paper.rendering import Rendering
from wallclock.records import Record

#: The cited numbers, as data.
CLAIMS = provenance.ROOT / "data" / "paper" / "claims.csv"

_FAILURE_COLUMNS = ("corpus", "image_set", "id", "stage", "reason")


@dataclass(frozen=True)
class Published:
    """What was written: CSVs by path, all that lies in the figures' folder, and the verdict on every claim."""

    tables: list[Path]
    failures: Path
    n_failures: int
    #: Figures, tables for people, traces, the report; in that order, and those that could not be made too.
    renderings: list[Rendering]
    verdicts: list[Verdict]


def publish(out: Path, figures_dir: Path) -> Published:
    """Rebuild all that the records under `out/runs` can fill, into `out` and `figures_dir`.

    Raises:
        UserError: a record was edited, or the disk is full.
    """
    found = {
        name: records.load_experiment(out / "runs", name)
        for name in (*experiments.ORDER, *experiments.ON_REQUEST)
    }
    read = {
        name: [record for one in experiments.record_sources(name) for record in found.get(one, ())]
        for name in found
    }
    written = [path for name, some in read.items() for path in _write_tables(name, some, out)]
    everything = [record for some in found.values() for record in some]
    n_failures = _write_failures(everything, out / "failures.csv")
    verdicts = claims.judge(claims.load(CLAIMS), out)
    claims.write(verdicts, out / "claims.csv")
    renderings = [
        *figures.render_all(out, figures_dir),
        *tables.render_all(out, figures_dir),
        *perfetto.render_all(out, figures_dir),
        perfetto.render_forward(out, figures_dir),
    ]
    renderings.append(diagnosis_page.render(out, figures_dir))
    _remove_stale(renderings, figures_dir)
    renderings.append(report.render(out, figures_dir))
    return Published(written, out / "failures.csv", n_failures, renderings, verdicts)


def _remove_stale(renderings: Sequence[Rendering], figures_dir: Path) -> None:
    """What nothing backs any more must not survive from an earlier run."""
    for rendering in renderings:
        for path in figures_dir.glob(f"{rendering.stem}.*"):
            if path not in rendering.paths:
                path.unlink()


def _write_tables(name: str, some: Sequence[Record], out: Path) -> list[Path]:
    module = experiments.load(name)
    written = []
    made = module.tables(some) if some else {}
    for csv_name, columns in module.TABLES.items():
        path = out / csv_name
        if csv_name not in made:
            # What no present record backs must not survive from an earlier run.
            path.unlink(missing_ok=True)
            path.with_suffix(".meta.json").unlink(missing_ok=True)
            continue
        write_table(path, columns, made[csv_name])
        write_text(path.with_suffix(".meta.json"), pretty_json(_about(name, csv_name, some)))
        written.append(path)
    return written


def _about(name: str, csv_name: str, some: Sequence[Record]) -> dict[str, Any]:
    """What a table was made of and on."""
    first = some[0].environment
    return {
        "csv": csv_name,
        "experiment": name,
        "command": first.get("command", ""),
        "machine": first["machine"],
        "versions": first["versions"],
        "code": first["code"],
        "commits": sorted(
            {record.environment["before"]["git"].get("commit", "") for record in some}
        ),
        "corpora": _corpora(some),
        "weights": sorted(
            {
                record.values["weights_digest"]
                for record in some
                if "weights_digest" in record.values
            }
        ),
        "records": [
            {"label": record.cell.label, "repeat": record.cell.repeat, "status": record.status}
            for record in some
        ],
    }


def _corpora(some: Sequence[Record]) -> list[Mapping[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for record in some:
        corpus = record.cell.corpus
        if corpus is not None:
            sizes = {
                name: value
                for name, value in record.values.items()
                if name.startswith(("median_", "max_"))
            }
            about: dict[str, Any] = {"kind": corpus.kind, "image_set": corpus.image_set}
            about |= {"n": corpus.n, "digest": corpus.digest}
            if corpus.storage != "files":
                about["storage"] = corpus.storage
            if record.environment.get("credit"):
                about["credit"] = record.environment["credit"]
            if sizes or corpus.digest not in found:
                found[corpus.digest] = {**about, **sizes}
    return list(found.values())


def _write_failures(some: Sequence[Record], path: Path) -> int:
    """List every image that failed, once, however many cells met it."""
    rows: dict[tuple[str, ...], dict[str, object]] = {}
    for record in some:
        corpus = record.cell.corpus
        if corpus is None:
            continue
        for failure in record.failures:
            row = {"corpus": corpus.kind, "image_set": corpus.image_set, **failure}
            rows.setdefault(tuple(row.values()), dict(row))
    write_table(path, _FAILURE_COLUMNS, list(rows.values()))
    return len(rows)
