"""One invocation: plan, run, publish, print the results."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

import experiments
from wallclock import provenance, records
from wallclock.corpus import prepare
from wallclock.errors import UserError
from wallclock.paper import closing, terminal
from wallclock.paper.diagnosis import screen as diagnosis_screen
from wallclock.paper.diagnosis import words as diagnosis_words
from wallclock.paper.publish import Published, publish
from wallclock.run import runner
from wallclock.run.plan import Plan
from wallclock.run.progress import CorpusProgress, Screen
from wallclock.spec import Settings


def run_session(settings: Settings, command: str) -> int:
    """Run what the settings ask for; return the exit status: 0, or 1 if a cell crashed.

    Raises:
        UserError: a request that cannot be met.
    """
    screen = Screen(Console())
    _print_lines(settings.notes, screen.console)
    for name in ("out", "figures", "export"):
        if folder := getattr(settings, name):
            _make_writable(name, folder)
    cells = []
    with screen.bars() as bars:
        plan = Plan(settings, CorpusProgress(bars))
        for name, options in settings.experiments.items():
            cells += experiments.load(name).cells(plan, options)
    if settings.only == "data":
        _print_corpora(plan, screen.console)
        return 0
    context = {"command": command, "cost": asdict(settings.cost)}
    if credit := prepare.credit(settings.corpus, plan.cache):
        context["credit"] = credit
    report = runner.run(cells, settings, context, screen)
    published = publish(settings.out, settings.figures, ran=settings.experiments)
    _print_results(published, settings, screen.console)
    _print_locations(published, report, settings, screen.console)
    if sentence := closing.closing_sentence(settings.out, settings.experiments):
        _print_lines(["", sentence], screen.console)
    for name, stderr in report.crashed:
        print(f"\n{name} crashed:\n{stderr}", file=sys.stderr)
    return 1 if report.crashed else 0


def _make_writable(name: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"{name}={folder}: cannot write there: {error.strerror}") from error


def _print_results(published: Published, settings: Settings, console: Console) -> None:
    """The tables and verdicts of the paper's experiments; the diagnosis of a user's own job."""
    if settings.experiments.keys() - set(experiments.ON_REQUEST):
        terminal.print_results(published.tables, console)
        terminal.print_verdicts(published.verdicts, console)
    if "diagnose" in settings.experiments:
        diagnosis = diagnosis_words.load(settings.out)
        if diagnosis is None:
            diagnose = records.load_experiment(settings.runs, "diagnose")
            reasons = [record.reason for record in diagnose if record.reason]
            raise UserError(f"nothing to diagnose: {[*reasons, 'no cell was measured'][0]}")
        page = settings.figures / "diagnosis.html"
        diagnosis_screen.print_diagnosis(diagnosis, page, console)


def _print_corpora(plan: Plan, console: Console) -> None:
    """The largest prepared slice of each image set."""
    manifests = sorted(plan.manifests(), key=lambda manifest: len(manifest.items))
    for name, manifest in {manifest.image_set: manifest for manifest in manifests}.items():
        stats, n = manifest.size_stats(), len(manifest.items)
        size = sum(item.bytes for item in manifest.items) / 1e6
        medians = f"{stats['median_kb']:.1f} KB and {stats['median_megapixels']:.2f} megapixels"
        line = f"{manifest.kind} {name}: {n:,} images, {size:,.1f} MB, median {medians}, in "
        remarks = prepare.remarks(plan.settings.corpus, name, n, plan.cache)
        _print_lines([line + _short(manifest.root), *remarks], console)


def _print_locations(
    published: Published, report: runner.Report, settings: Settings, console: Console
) -> None:
    figures = [rendering.stem for rendering in published.renderings if rendering.paths]
    tables = [*(path.name for path in published.tables), "claims.csv"]
    failures = f"{published.n_failures} images could not be used: {_short(published.failures)}"
    lines = [
        f"{report.summary()} on {settings.device}, corpus {settings.corpus.kind}, "
        f"weights {settings.model.weights}",
        *([f"failures  {failures}"] if published.n_failures else []),
        f"tables    {_short(settings.out)}: {', '.join(tables)}",
        f"figures   {_short(settings.figures)}: {', '.join(figures) or 'none'}",
        f"records   {_short(settings.runs)}",
    ]
    _print_lines(lines, console)


def _print_lines(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _short(path: Path) -> str:
    root = provenance.ROOT
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
