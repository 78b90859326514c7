"""`python -m wallclock.paper figures|diff|report|check`: from records and tables alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from wallclock import provenance, records
from wallclock.errors import UserError
from wallclock.paper import check, claims, diff, publish, report, terminal

_DATA, _FIGURES = provenance.ROOT / "data", provenance.ROOT / "figures"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0, or 1 where folders differ or the request cannot be met."""
    options = _parser().parse_args(arguments)
    console = Console()
    try:
        return int(options.run(options, console))
    except UserError as error:
        print(f"wallclock: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m wallclock.paper", description=__doc__)
    commands = parser.add_subparsers(required=True)

    helps = {
        _figures: "rebuild CSVs, verdicts, figures, tables and report from the records",
        _diff: "our CSVs against the paper's numbers, or two folders of CSVs",
        _report: "one HTML file, from the CSVs and figures that are there",
        _check: "rebuild reference runs and compare with what is committed",
    }
    parsers = []
    for run, text in helps.items():
        parsers.append(commands.add_parser(run.__name__.strip("_"), help=text))
        parsers[-1].set_defaults(run=run)
    figures, compare, single, rebuild = parsers
    for added in (figures, compare, single):
        added.add_argument("--out", type=Path, default=_DATA, help="the folder of tables")
    for added in (figures, single):
        added.add_argument("--figures", type=Path, default=_FIGURES)
    compare.add_argument("--a", type=Path, help="a folder of CSVs")
    compare.add_argument("--b", type=Path, help="another")
    text = "relative, for timings (default 0.25)"
    compare.add_argument("--tolerance", type=float, default=0.25, help=text)
    text = "one run; default: every one in data/reference"
    rebuild.add_argument("--reference", type=Path, help=text)
    text = "write what the records make instead of comparing"
    rebuild.add_argument("--write", action="store_true", help=text)
    text = "first pack these records into --reference; writes"
    rebuild.add_argument("--pack", type=Path, metavar="RUNS", help=text)
    return parser


def _figures(options: argparse.Namespace, console: Console) -> int:
    published = publish.publish(options.out.resolve(), options.figures.resolve())
    if not published.tables:
        raise UserError(f"no records under {options.out}/runs; run `make quick` first")
    terminal.print_results(published.tables, console)
    for rendering in published.renderings:
        files = ", ".join(path.name for path in rendering.paths)
        line = f"{rendering.stem}: {files or f'not made: {rendering.skipped}'}"
        terminal.print_line(line, console)
    return 0


def _diff(options: argparse.Namespace, console: Console) -> int:
    if (options.a is None) != (options.b is None):
        raise UserError("comparing two folders needs both: make diff A=dir B=dir")
    if options.a is not None:
        differences = diff.compare(options.a, options.b, options.tolerance)
        terminal.print_differences(differences, console)
        return 1 if differences else 0
    verdicts = claims.judge(claims.load(claims.CLAIMS), options.out)
    claims.write(verdicts, options.out / claims.CSV)
    terminal.print_verdicts(verdicts, console)
    return 0


def _report(options: argparse.Namespace, console: Console) -> int:
    rendering = report.render(options.out.resolve(), options.figures.resolve())
    if rendering.skipped:
        raise UserError(f"no report: {rendering.skipped}; run `make quick` first")
    terminal.print_line(str(rendering.paths[0]), console)
    return 0


def _check(options: argparse.Namespace, console: Console) -> int:
    folder = _DATA / "reference"
    references = [options.reference] if options.reference else check.references(folder)
    if not references:
        raise UserError(f"no reference run in {folder}; give one: check --reference DIR")
    if options.pack:
        if not options.reference:
            raise UserError("--pack needs the folder to write: check --pack RUNS --reference DIR")
        records.pack(options.pack, options.reference / records.ARCHIVE)
    status = 0
    for reference in references:
        if options.write or options.pack:
            written = check.write(reference)
            line = f"{reference}: {len(written)} files written from its records"
            terminal.print_line(line, console)
            continue
        discrepancies = check.check(reference)
        words = ", byte for byte" if not discrepancies else ", but for these files:"
        terminal.print_line(f"{reference}: as its records make it{words}", console)
        if discrepancies:
            terminal.print_discrepancies(discrepancies, console)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
