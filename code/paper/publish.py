"""Records → CSVs → verdicts → figures, tables, report. Needs no GPU, no torch, no images."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import experiments
from experiments import layers
from harness import records
from harness.records import Record
from paper import claims, diagnosis, figures, perfetto, report, tables
from paper.claims import Verdict
from paper.csvfile import write_table
from paper.rendering import Rendering
from wallclock.files import pretty_json, write_text

_FAILURE_COLUMNS = ("corpus", "image_set", "id", "stage", "reason")
#: The values of a record that describe the sizes of its images.
_SIZE = re.compile("median_|max_")
#: Renders one output from the folder of tables into the folder of figures.
_Render = Callable[[Path, Path], Rendering]


@dataclass(frozen=True)
class Published:
    """What a run left behind: its CSVs, the outputs, the verdict on every claim."""

    tables: list[Path]
    n_failures: int
    #: Figures, tables for people, traces, diagnosis, report; also those that could not be made.
    renderings: list[Rendering]
    verdicts: list[Verdict]


def publish(out: Path, figures_dir: Path, ran: Collection[str] | None = None) -> Published:
    """Rebuild all that the records under `out/runs` can fill, into `out` and `figures_dir`.

    Tables, verdicts and the report are always rebuilt. Figures are too, unless `ran` names the
    experiments of this run: then one that shows none of their tables, and no table whose content
    changed, stays as it is. Raises UserError if a record was edited, or the disk is full.
    """
    before = _contents(out)
    published = write_tables(out)
    after = _contents(out)
    stale = {name for name in before | after if before.get(name) != after.get(name)}
    stale |= {csv for name in ran or () for csv in experiments.load(name).TABLES}
    renderings = []
    for stem, csvs, render in _outputs():
        existing = tuple(sorted(figures_dir.glob(f"{stem}.*")))
        keep = ran is not None and existing and stale.isdisjoint(csvs)
        renderings.append(Rendering(stem, existing) if keep else render(out, figures_dir))
    _remove_stale(renderings, figures_dir)
    renderings.append(report.render(out, figures_dir))
    return replace(published, renderings=renderings)


def write_tables(out: Path) -> Published:
    """Rebuild the tables and verdicts that the records under `out/runs` make; render nothing.

    Raises UserError if a record was edited, or the disk is full.
    """
    names = (*experiments.ORDER, *experiments.ON_REQUEST)
    by_name = {name: records.load_experiment(out / "runs", name) for name in names}
    written = []
    for name in names:
        loaded = (by_name.get(source, ()) for source in experiments.record_sources(name))
        written += _write_experiment(name, list(chain.from_iterable(loaded)), out)
    n_failures = _write_failures(chain.from_iterable(by_name.values()), out / "failures.csv")
    verdicts = claims.judge(claims.load(claims.CLAIMS), out)
    claims.write(verdicts, out / claims.CSV)
    return Published(written, n_failures, [], verdicts)


def _outputs() -> Iterator[tuple[str, tuple[str, ...], _Render]]:
    """Stem, CSVs and renderer of everything but the report."""
    for stem, figure in figures.FIGURES.items():
        yield stem, figure.sources, partial(figures.render, stem)
    for stem, table in tables.TABLES.items():
        yield stem, table.sources, partial(tables.render, stem)
    for stem, csv in perfetto.TRACES.items():
        yield stem, (csv,), partial(perfetto.render, stem)
    yield perfetto.FORWARD_STEM, tuple(layers.TABLES), perfetto.render_forward
    yield diagnosis.STEM, diagnosis.TABLES, diagnosis.render


def _contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.glob("*.csv")}


def _remove_stale(renderings: Sequence[Rendering], figures_dir: Path) -> None:
    """Outputs of an earlier run that no record backs any more must not survive."""
    for rendering in renderings:
        for path in {*figures_dir.glob(f"{rendering.stem}.*")} - {*rendering.paths}:
            path.unlink()


def _write_experiment(name: str, sources: Sequence[Record], out: Path) -> list[Path]:
    module = experiments.load(name)
    written = []
    rows = module.tables(sources) if sources else {}
    for csv_name, columns in module.TABLES.items():
        path = out / csv_name
        if csv_name not in rows:
            # A table of an earlier run that no record backs any more must not survive.
            path.unlink(missing_ok=True)
            path.with_suffix(".meta.json").unlink(missing_ok=True)
            continue
        write_table(path, columns, rows[csv_name])
        write_text(path.with_suffix(".meta.json"), pretty_json(_about(name, csv_name, sources)))
        written.append(path)
    return written


def _about(name: str, csv_name: str, sources: Sequence[Record]) -> dict[str, Any]:
    """The provenance of a table."""
    first = sources[0].environment
    commits = {record.environment["before"]["git"].get("commit", "") for record in sources}
    weights = {record.values.get("weights_digest") for record in sources} - {None}
    return {
        **{name: first[name] for name in ("machine", "versions", "code")},
        "csv": csv_name,
        "experiment": name,
        "command": first.get("command", ""),
        "commits": sorted(commits),
        "corpora": _corpora(sources),
        "weights": sorted(weights),
        "records": [
            {"label": record.cell.label, "repeat": record.cell.repeat, "status": record.status}
            for record in sources
        ],
    }


def _corpora(sources: Sequence[Record]) -> list[dict[str, Any]]:
    by_digest: dict[str, dict[str, Any]] = {}
    for record in sources:
        if corpus := record.cell.corpus:
            names = ["kind", "image_set", "n", "digest"] + ["storage"] * (corpus.storage != "files")
            about = {name: getattr(corpus, name) for name in names}
            if record.environment.get("credit"):
                about["credit"] = record.environment["credit"]
            sizes = {name: record.values[name] for name in record.values if _SIZE.match(name)}
            if sizes or corpus.digest not in by_digest:
                by_digest[corpus.digest] = about | sizes
    return list(by_digest.values())


def _write_failures(everything: Iterable[Record], path: Path) -> int:
    """List every image that failed, once, however many cells it failed in."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for record in everything:
        if corpus := record.cell.corpus:
            for failure in record.failures:
                row = {"corpus": corpus.kind, "image_set": corpus.image_set, **failure}
                rows.setdefault(tuple(row.values()), row)
    write_table(path, _FAILURE_COLUMNS, list(rows.values()))
    return len(rows)
