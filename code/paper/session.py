"""One invocation: plan, run, publish, print the results."""

import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments import contents
from harness import provenance, records, runner
from harness.corpora import prepare
from harness.corpora.manifest import Manifest
from harness.drawing.format import count_noun
from harness.plan import Plan
from harness.processes import busiest_other
from harness.spec import Cell, Settings
from harness.table import Row, ok_rows, read_table
from paper import diagnosis, terminal
from paper import report as report_page
from paper.publish import Published, publish
from wallclock import checkpoint
from wallclock.errors import UsageError, UserError
from wallclock.progress import CorpusProgress, bars
from wallclock.recipe import ModelSpec


def run_session(settings: Settings, command: str) -> int:
    """Run what the settings ask for; return the exit status: 0, or 1 if a cell crashed.

    Raises UserError: a request that cannot be met.
    """
    console = Console()
    warnings = random_weights(settings)
    _print_lines([_inputs(settings), *warnings, *settings.notes], console)
    _print_lines(_about_other_programs(settings), console)
    for name in ("out", "figures"):
        _make_writable(name, getattr(settings, name))
    if settings.only == "data":
        _fetch_weights(settings.model, console)
    for name in settings.experiments:
        contents.check_columns(name)
    with bars(console) as progress:
        plan = Plan(settings, CorpusProgress(progress))
        cells = {
            name: contents.load(name).cells(plan, options)
            for name, options in settings.experiments.items()
        }
    if settings.only == "data":
        _print_corpora(plan, console)
        return 0
    report = runner.Report()
    try:
        published = _measure(plan, cells, _context(settings, command), report, console)
        _print_results(published, report, settings, console)
        sentence = closing_sentence(settings.out, settings.experiments)
        _print_lines([*(["", sentence] if sentence else []), *warnings], console)
    finally:
        _print_crashes(report, settings.runs)
    return 1 if report.crashed else 0


def _context(settings: Settings, command: str) -> dict[str, Any]:
    """What records say of the whole run."""
    context = {"command": command, "cost": asdict(settings.cost)}
    credit = prepare.credit(settings.corpus)
    return context | ({"credit": credit} if credit else {})


def _measure(
    plan: Plan,
    cells: Mapping[str, Sequence[Cell]],
    context: Mapping[str, Any],
    report: runner.Report,
    console: Console,
) -> Published:
    """Measure each experiment, and publish all that there is after each that brings something."""
    settings = plan.settings
    expected: list[Cell] = []
    with bars(console) as progress:
        run = runner.Runner(settings, context, report, progress)
        for name, grid in cells.items():
            run.add(grid)
            expect = getattr(contents.load(name), "expected_second_round", None)
            expected += expect(plan, settings.experiments[name]) if expect else []
        run.announce(expected)
        ran: list[str] = []
        for name in cells:
            known = report.summary()
            run.measure(name)
            second_round = getattr(contents.load(name), "second_round", None)
            if second_round:
                first = records.load_experiment(settings.runs, name)
                run.add(second_round(plan, settings.experiments[name], first))
                run.measure(name)
            ran.append(name)
            # With nothing new, all at once: a publication takes seconds.
            if report.summary() != known or name == [*cells][-1]:
                published = publish(settings.out, settings.figures, ran=ran)
                ran.clear()
    return published


def _print_crashes(report: runner.Report, runs: Path) -> None:
    """The last lines of a run in which cells crashed: which, and why."""
    lines = [
        f"{name} crashed once, and was measured at the second try: {reason}"
        for name, reason in report.recovered.items()
    ]
    if report.crashed:
        n = count_noun(len(report.crashed), "cell")
        fix = f"the same command tries again; output: {_short(runs)}/*/*/stderr.txt"
        lines.append(f"{n} crashed twice: {fix}")
    lines += [f"{name}: {reason}" for name, reason in report.crashed.items()]
    for line in lines:
        print(f"wallclock: {line}", file=sys.stderr)


def closing_sentence(folder: Path, ran: Collection[str]) -> str:
    """Compare the result of a run with what it competes with; empty if nothing was measured.

    Raises UserError if a table in `folder` is damaged.
    """

    def read_measured(csv: str) -> list[Row]:
        path = folder / csv
        return ok_rows(read_table(path)) if path.is_file() else []

    return contents.closing_sentence(ran, read_measured)


def _inputs(settings: Settings) -> str:
    """What a run is of, and the setting that changes each."""
    corpora = {
        "synthetic": "generated images (`make data` for the paper's; yours: corpus=folder)",
        "abo": "the paper's images, Amazon Berkeley Objects (generated ones: corpus=synthetic)",
        "folder": f"the images under {settings.corpus.path}",
    }
    weights = {
        "random": "random weights (pretrained ones: model.weights=pretrained)",
        "pretrained": "pretrained weights (random ones: model.weights=random)",
        "none": "a mock model (a real one: model=dinov2-small)",
    }
    parts = (corpora[settings.corpus.kind], weights[settings.model.weights])
    device = {"cpu": "the CPU (a GPU: device=cuda)", "cuda": "the GPU (the CPU: device=cpu)"}
    return f"{', '.join(parts)}, on {device[settings.device]}"


def random_weights(settings: Settings) -> list[str]:
    """What a diagnosis says first and last where no model was given; nothing otherwise."""
    model = settings.model
    if "diagnose" not in settings.experiments or model.weights != "random":
        return []
    return [
        f"RANDOM WEIGHTS: the network is {model.name} without training. Times are as with trained "
        "weights; for those of your model add MODEL=hub-id or MODEL=dir/ (model=any "
        "model.hub_id=ID or model.path=DIR)"
    ]


def _about_other_programs(settings: Settings) -> Iterator[str]:
    """What a diagnosis says first: whether others disturbed the last one, and what runs now."""
    if "diagnose" not in settings.experiments:
        return
    if diagnosis.discard_disturbed(settings.runs):
        yield "Something else ran during the last diagnosis: all of it is measured again."
    if busiest := busiest_other():
        yield f"Also running: {busiest}: this takes longer, and may give no advice."


def _make_writable(name: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"{name}={folder}: cannot write there: {error.strerror}") from error


def _print_results(
    published: Published, report: runner.Report, settings: Settings, console: Console
) -> None:
    """What this run measured: tables, or a job's diagnosis; where it all is; the judged claims."""
    ran = settings.experiments.keys() - {"diagnose"}
    csvs = {csv for name in ran for csv in contents.load(name).TABLES}
    terminal.print_results([path for path in published.tables if path.name in csvs], console)
    if "diagnose" in settings.experiments:
        _print_diagnosis(settings, console)
    _print_lines(["", *_locations(published, report, settings)], console)
    if ran:
        console.print()
        terminal.print_verdicts(published.verdicts, console, judged_of=ran)


def _print_diagnosis(settings: Settings, console: Console) -> None:
    job = diagnosis.load(settings.out)
    if job is None:
        diagnose = records.load_experiment(settings.runs, "diagnose")
        reasons = [record.reason for record in diagnose if record.reason]
        reason = reasons[0] if reasons else "no cell was measured"
        raise UserError(f"nothing to diagnose: {reason}")
    diagnosis.print_diagnosis(job, settings.figures / "diagnosis.html", console)
    if job.busy and (busiest := busiest_other()):
        _print_lines([f"The busiest other program now: {busiest}"], console)


def _fetch_weights(model: ModelSpec, console: Console) -> None:
    """Bring pretrained weights into the hub's cache: before the images, which take longer.

    Raises NoWeightsError where they cannot be had.
    """
    if model.weights == "pretrained":
        folder = checkpoint.weights_folder_of(model)
        _print_lines([f"weights of {model.path or model.hub_id}: {folder}"], console)


def _print_corpora(plan: Plan, console: Console) -> None:
    """The largest prepared slice of each image set."""
    manifests = [manifest for manifest, _ in plan.prepared.values()]
    manifests.sort(key=_n_images)
    # Of two of one set the later, larger one stays.
    largest = {manifest.image_set: manifest for manifest in manifests}
    for name, manifest in largest.items():
        n, stats = _n_images(manifest), manifest.size_stats()
        size = sum(item.bytes for item in manifest.items) / 1e6
        medians = f"{stats['median_kb']:.1f} KB and {stats['median_megapixels']:.2f} megapixels"
        line = f"{manifest.kind} {name}: {n:,} images, {size:,.1f} MB, median {medians}, in "
        remarks = prepare.remarks(plan.settings.corpus, name, n, plan.cache)
        _print_lines([line + _short(manifest.root), *remarks], console)


def _n_images(manifest: Manifest) -> int:
    return len(manifest.items)


def _locations(published: Published, report: runner.Report, settings: Settings) -> Iterator[str]:
    made = {rendering.stem: rendering for rendering in published.renderings if rendering.paths}
    page = made.pop(report_page.STEM, None)
    tables = count_noun(len(published.tables), "CSV")
    corpus = f"corpus {settings.corpus.kind}, weights {settings.model.weights}"
    yield f"{report.summary()} on {settings.device}, {corpus}"
    if published.n_failures:
        path = _short(settings.out / "failures.csv")
        yield f"failures  {published.n_failures} images could not be used: {path}"
    if page:
        yield f"report    {_short(page.paths[0])}"
    yield f"figures   {_short(settings.figures)}: {len(made)} figures and tables"
    yield f"tables    {_short(settings.out)}: {tables}; verdicts with reasons in claims.csv"
    yield f"records   {_short(settings.runs)}"


def _print_lines(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _short(path: Path) -> str:
    root = provenance.ROOT
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
