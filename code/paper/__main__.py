"""`python -m paper doctor|figures|diff|report|check|analytic|footnotes`: no torch, no images."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness import provenance
from paper import (
    calculator,
    check,
    claims,
    diff,
    doctor,
    footnotes,
    packing,
    publish,
    report,
    terminal,
)
from paper.usage import OneLineParser
from wallclock.doctor import render
from wallclock.errors import UsageError, UserError
from wallclock.files import write_text
from wallclock.outside import guard_screen

_DATA = provenance.ROOT / "data"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0, 1 where folders differ or it cannot be met, 2 for a mistake.

    3: nothing differs in what both folders ran, but one lacks rows of the other.
    """
    guard_screen()
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options, Console()))
    except UserError as error:
        print(f"wallclock: {error}", file=sys.stderr)
        return error.status


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="python -m paper", description=__doc__)
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("doctor", help=_doctor.__doc__)
    command.set_defaults(run=_doctor)
    command.add_argument("--out", type=Path, default=_DATA, help="the folder that a run writes to")
    command.add_argument("--profile", choices=("paper", "quick"), default="paper")

    command = commands.add_parser("figures", help=_figures.__doc__)
    command.set_defaults(run=_figures)
    _add_folders(command)

    command = commands.add_parser("diff", help=_diff.__doc__)
    command.set_defaults(run=_diff)
    command.add_argument("--out", type=Path, default=_DATA, help="the folder of tables")
    command.add_argument("--a", type=Path, help="a folder of CSVs")
    command.add_argument("--b", type=Path, help="another")
    tolerance = "relative, for timings (default 0.25)"
    command.add_argument("--tolerance", type=float, default=0.25, help=tolerance)
    detail = command.add_mutually_exclusive_group()
    for name, about in (("all", "list every number"), ("short", "print the counts alone")):
        detail.add_argument(
            f"--{name}", action="store_const", const=name, dest="detail", default="", help=about
        )

    command = commands.add_parser("report", help=_report.__doc__)
    command.set_defaults(run=_report)
    _add_folders(command)

    command = commands.add_parser("check", help=_check.__doc__)
    command.set_defaults(run=_check)
    reference = "one run; default: every one in data/reference"
    command.add_argument("--reference", type=Path, help=reference)
    write = "write what the records make instead of comparing"
    command.add_argument("--write", action="store_true", help=write)
    pack = "first pack the records in these folders into --reference; writes"
    command.add_argument("--pack", type=Path, nargs="+", metavar="RUNS", help=pack)

    about = calculator.__doc__
    command = commands.add_parser("analytic", help=_analytic.__doc__, description=about)
    command.set_defaults(run=_analytic)
    calculator.add_options(command)

    command = commands.add_parser("footnotes", help=_footnotes.__doc__)
    command.set_defaults(run=_footnotes)
    command.add_argument("--write", action="store_true", help="write the lines")
    return parser


def _add_folders(command: argparse.ArgumentParser) -> None:
    command.add_argument("--out", type=Path, default=_DATA, help="the folder of tables")
    figures = provenance.ROOT / "figures"
    command.add_argument("--figures", type=Path, default=figures, help="the folder of figures")


def _doctor(options: argparse.Namespace, console: Console) -> int:
    """Say what a run would miss on this machine, and what to do; 1 where it cannot measure."""
    findings = [*doctor.examine(options.out, quick=options.profile == "quick")]
    terminal.print_line(render(findings), console)
    return int(any(finding.stops for finding in findings))


def _figures(options: argparse.Namespace, console: Console) -> int:
    """Rebuild CSVs, verdicts, figures, tables and report from the records."""
    # Before anything is published: tables that no record backs are removed.
    if next((options.out / "runs").glob("*"), None) is None:
        raise UserError(f"no records under {options.out}/runs; run `make quick` first")
    published = publish.publish(options.out.resolve(), options.figures.resolve())
    if not published.tables:
        raise UserError(f"no complete records under {options.out}/runs; run `make quick` first")
    terminal.print_results(published.tables, console)
    for rendering in published.renderings:
        files = ", ".join(path.name for path in rendering.paths)
        outcome = files or f"not made: {rendering.skipped}"
        terminal.print_line(f"{rendering.stem}: {outcome}", console)
    return 0


def _diff(options: argparse.Namespace, console: Console) -> int:
    """Compare our CSVs with the paper's numbers, or two folders of CSVs in what both ran."""
    if (options.a is None) != (options.b is None):
        raise UsageError("comparing two folders needs both: make diff A=dir B=dir")
    if options.a is not None:
        comparison = diff.compare(options.a, options.b, options.tolerance)
        terminal.print_comparison(comparison, options.tolerance, console, options.detail)
        return comparison.status
    verdicts = claims.judge(claims.load(claims.CLAIMS), options.out)
    claims.write(verdicts, options.out / claims.CSV)
    if options.detail == "all":
        terminal.print_verdicts(verdicts, console)
        return 0
    if not options.detail:
        terminal.print_headlines(verdicts, console)
    terminal.print_counts(verdicts, console)
    return 0


def _report(options: argparse.Namespace, console: Console) -> int:
    """Write one HTML file from the CSVs and figures that are there."""
    rendering = report.render(options.out.resolve(), options.figures.resolve())
    if rendering.skipped:
        raise UserError(f"no report: {rendering.skipped}; run `make quick` first")
    terminal.print_line(str(rendering.paths[0]), console)
    return 0


def _check(options: argparse.Namespace, console: Console) -> int:
    """Rebuild reference runs and compare with what is committed."""
    folder = _DATA / "reference"
    references = [options.reference] if options.reference else check.references(folder)
    if not references:
        raise UserError(
            f"no reference run in {folder}; give one: python -m paper check --reference DIR"
        )
    if options.pack:
        if not options.reference:
            raise UsageError(
                "--pack needs the folder to write: "
                "python -m paper check --pack RUNS [RUNS ...] --reference DIR"
            )
        packing.pack(options.pack, options.reference / packing.ARCHIVE)
    status = 0
    for reference in references:
        if options.write or options.pack:
            n_files = len(check.write(reference))
            terminal.print_line(f"{reference}: {n_files} files written from its records", console)
            continue
        differences = check.check(reference)
        if differences:
            status = 1
        result = ", but for these files:" if differences else ", byte for byte"
        terminal.print_line(f"{reference}: as its records make it{result}", console)
        for name, difference in differences.items():
            terminal.print_line(f"{name}  {difference}", console)
    return status


def _analytic(options: argparse.Namespace, console: Console) -> int:
    """Print the analytic model of your own sample size, rates, workers, batch and step."""
    calculator.print_case(options, console)
    return 0


def _footnotes(options: argparse.Namespace, console: Console) -> int:
    """Compare the documents' numbers, and where they were measured, with the tables."""
    differing = footnotes.differing(footnotes.documents())
    for path, text in differing.items():
        for old, new in footnotes.changes(path.read_text(encoding="utf-8"), text):
            terminal.print_line(f"{path.relative_to(provenance.ROOT)}: {old} → {new}", console)
        if options.write:
            write_text(path, text)
    if differing and not options.write:
        terminal.print_line("run python -m paper footnotes --write", console)
    return 1 if differing and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
