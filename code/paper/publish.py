"""Records → CSVs → verdicts → figures, tables, report. Needs no GPU, no torch, no images."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from experiments import contents
from harness import records
from harness.drawing.rendering import Rendering
from harness.records import Record
from harness.table import write_table
from paper import claims, diagnosis, figures, footnotes, report, tables
from paper.claims import Verdict
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
    #: Figures, tables for people, diagnosis, report; also those that could not be made.
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
    for name in ran or ():
        stale |= contents.load(name).TABLES.keys()
    renderings = []
    for stem, csvs, render in _outputs():
        existing = tuple(sorted(figures_dir.glob(f"{stem}.*")))
        if ran is not None and existing and stale.isdisjoint(csvs):
            renderings.append(Rendering(stem, existing))
        else:
            renderings.append(render(out, figures_dir))
    _remove_stale(renderings, figures_dir, published.tables)
    renderings.append(report.render(out, figures_dir))
    return replace(published, renderings=renderings)


def write_tables(out: Path) -> Published:
    """Rebuild the tables and verdicts that the records under `out/runs` make; render nothing.

    Raises UserError if a record was edited, or the disk is full.
    """
    names = (*contents.ORDER, *contents.ON_REQUEST)
    by_name = {name: records.load_experiment(out / "runs", name) for name in names}
    written = []
    for name in names:
        used: list[Record] = []
        for source in contents.record_sources(name):
            used += by_name.get(source, ())
        written += _write_experiment(name, used, out)
    n_failures = _write_failures(chain.from_iterable(by_name.values()), out / "failures.csv")
    verdicts = claims.judge(claims.load(claims.CLAIMS), out)
    claims.write(verdicts, out / claims.CSV)
    return Published(written, n_failures, [], verdicts)


def _outputs() -> Iterator[tuple[str, tuple[str, ...], _Render]]:
    """Stem, CSVs and renderer of everything but the report."""
    for stem, figure in figures.FIGURES.items():
        yield stem, figure.csvs, partial(figures.render, stem)
    for stem, table in tables.TABLES.items():
        yield stem, table.csvs, partial(tables.render, stem)
    yield diagnosis.STEM, diagnosis.CSVS, diagnosis.render


def _contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.glob("*.csv")}


def _remove_stale(renderings: Sequence[Rendering], figures_dir: Path, csvs: Sequence[Path]) -> None:
    """Outputs of an earlier run that no record backs any more must not survive.

    `csvs`: tables of this run, which may lie in the same folder.
    """
    kept = {*csvs, *(path.with_suffix(".meta.json") for path in csvs)}
    for rendering in renderings:
        for path in list(figures_dir.glob(f"{rendering.stem}.*")):
            if path not in rendering.paths and path not in kept:
                path.unlink()


def _write_experiment(name: str, used: Sequence[Record], out: Path) -> list[Path]:
    """Write the tables of an experiment from the records that it uses; remove those without."""
    module = contents.load(name)
    written = []
    rows = module.tables(used) if used else {}
    for csv_name, columns in module.TABLES.items():
        path = out / csv_name
        if csv_name not in rows:
            # A table of an earlier run that no record backs any more must not survive.
            path.unlink(missing_ok=True)
            path.with_suffix(".meta.json").unlink(missing_ok=True)
            continue
        write_table(path, columns, rows[csv_name])
        write_text(path.with_suffix(".meta.json"), pretty_json(_provenance(name, csv_name, used)))
        written.append(path)
    return written


def _provenance(name: str, csv_name: str, used: Sequence[Record]) -> dict[str, Any]:
    """The provenance of a table."""
    first = used[0].environment
    environments = [record.environment for record in used]
    states = [made[at] for made in environments for at in ("before", "after") if at in made]
    commits = {state["git"].get("commit", "") for state in states}
    times = sorted(state["utc"] for state in states)
    weights = {record.values.get("weights_digest") for record in used} - {None}
    return {
        "machine": first["machine"],
        "other_machines": _other_machines(used),
        "versions": first["versions"],
        "code": first["code"],
        "csv": csv_name,
        "experiment": name,
        "command": first.get("command", ""),
        "commits": sorted(commits - {""}),
        "modified": any(state["git"].get("modified", False) for state in states),
        "measured": [*times[:1], *times[-1:]],
        "corpora": _corpora(used),
        "weights": sorted(weights),
        "records": [
            {"label": record.cell.label, "repeat": record.cell.repeat, "status": record.status}
            for record in used
        ],
    }


def _other_machines(used: Sequence[Record]) -> list[dict[str, Any]]:
    """Other machines than the first record's, where records of several were packed together."""
    kinds: dict[str, dict[str, Any]] = {}
    for record in used:
        machine = record.environment["machine"]
        kinds.setdefault(footnotes.name_of(machine), machine)
    return list(kinds.values())[1:]


def _corpora(used: Sequence[Record]) -> list[dict[str, Any]]:
    """The corpora of records, each once, with the sizes of its images where they were measured."""
    by_digest: dict[str, dict[str, Any]] = {}
    for record in used:
        corpus = record.cell.corpus
        if corpus is None:
            continue
        about: dict[str, Any] = {
            "kind": corpus.kind,
            "image_set": corpus.image_set,
            "n": corpus.n,
            "digest": corpus.digest,
        }
        if corpus.storage != "files":
            about["storage"] = corpus.storage
        if record.environment.get("credit"):
            about["credit"] = record.environment["credit"]
        sizes = {name: value for name, value in record.values.items() if _SIZE.match(name)}
        if sizes or corpus.digest not in by_digest:
            by_digest[corpus.digest] = about | sizes
    return list(by_digest.values())


def _write_failures(measured: Iterable[Record], path: Path) -> int:
    """List every image that failed, once, however many cells it failed in."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for record in measured:
        corpus = record.cell.corpus
        if corpus is None:
            continue
        for failure in record.failures:
            row = {"corpus": corpus.kind, "image_set": corpus.image_set, **failure}
            rows.setdefault(tuple(row.values()), row)
    write_table(path, _FAILURE_COLUMNS, list(rows.values()))
    return len(rows)
