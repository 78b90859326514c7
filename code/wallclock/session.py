"""One invocation: plan, run, publish, say what came out."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
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
from wallclock.run.plan import Plan, Settings
from wallclock.run.progress import CorpusProgress, Screen
from wallclock.spec import Cell


def run_session(settings: Settings, command: str) -> int:
    """Run what the settings ask for; return the exit status: 0, or 1 if a cell crashed.

    Raises:
        UserError: a request that cannot be met.
    """
    screen = Screen(Console())
    export = {"export": settings.export} if settings.export else {}
    _make_writable({"out": settings.out, "figures": settings.figures, **export})
    plan, cells = _cells(settings, screen)
    if settings.only == "data":
        _say_data(plan, screen.console)
        return 0
    credit = prepare.credit(settings.corpus, plan.cache)
    context = {
        "command": command,
        "cost": dict(settings.cost),
        **({"credit": credit} if credit else {}),
    }
    report = runner.run(cells, settings.runs, settings.seed, context, screen, settings.export)
    published = publish(settings.out, settings.figures, ran=settings.experiments)
    _print_results(published, settings, screen.console)
    _print_locations(published, report, settings, screen.console)
    sentence = closing.closing_sentence(settings.out, settings.experiments)
    if sentence:
        terminal.print_line(f"\n{sentence}", screen.console)
    for name, words in report.crashed:
        print(f"\n{name} crashed:\n{words}", file=sys.stderr)
    return 1 if report.crashed else 0


def _print_results(published: Published, settings: Settings, console: Console) -> None:
    """The tables and verdicts of the paper's experiments; the diagnosis of one's own job."""
    if settings.experiments.keys() - set(experiments.OWN):
        terminal.print_results(published.tables, console)
        terminal.print_verdicts(published.verdicts, console)
    if "diagnose" in settings.experiments:
        diagnosis = diagnosis_words.load(settings.out)
        if diagnosis is None:
            raise UserError(f"nothing to diagnose: {_why_not(settings)}")
        page = settings.figures / "diagnosis.html"
        diagnosis_screen.print_diagnosis(diagnosis, page, console)


def _why_not(settings: Settings) -> str:
    """The first reason for which no stage could be measured."""
    some = records.load_experiment(settings.runs, "diagnose")
    return next((record.reason for record in some if record.reason), "no cell was measured")


def _make_writable(folders: Mapping[str, Path]) -> None:
    for name, folder in folders.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise UserError(f"{name}={folder}: cannot write there: {error.strerror}") from error


def _cells(settings: Settings, screen: Screen) -> tuple[Plan, list[Cell]]:
    with screen.bars() as bars:
        plan = Plan(settings, CorpusProgress(bars))
        cells: list[Cell] = []
        for name, options in settings.experiments.items():
            cells += experiments.load(name).cells(plan, options)
    return plan, cells


def _say_data(plan: Plan, console: Console) -> None:
    """What is on the disk now: of each image set its largest slice."""
    largest = {
        manifest.image_set: manifest
        for manifest in sorted(plan.manifests(), key=lambda one: len(one.items))
    }
    for manifest in largest.values():
        shape, size = manifest.size_stats(), sum(item.bytes for item in manifest.items)
        console.print(
            f"{manifest.kind} {manifest.image_set}: {len(manifest.items):,} images, "
            f"{size / 1e6:,.1f} MB, median {shape['median_kb']:.1f} KB and "
            f"{shape['median_megapixels']:.2f} megapixels, in {_short(manifest.root)}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        for line in prepare.remarks(
            plan.settings.corpus, manifest.image_set, len(manifest.items), plan.cache
        ):
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_locations(
    published: Published, report: runner.Report, settings: Settings, console: Console
) -> None:
    drawn = [rendering.stem for rendering in published.renderings if rendering.paths]
    lines = [
        f"{runner.summary_line(report)} on {settings.device}, corpus {settings.corpus.kind}, "
        f"weights {settings.model.weights}",
        f"tables    {_short(settings.out)}: {', '.join(path.name for path in published.tables)}, claims.csv",
        f"figures   {_short(settings.figures)}: {', '.join(drawn) or 'none'}",
        f"records   {_short(settings.runs)}",
    ]
    if published.n_failures:
        lines.insert(
            1,
            f"failures  {published.n_failures} images could not be used: {_short(published.failures)}",
        )
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _short(path: Path) -> str:
    return (
        str(path.relative_to(provenance.ROOT))
        if path.is_relative_to(provenance.ROOT)
        else str(path)
    )
