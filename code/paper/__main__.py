"""`python -m paper figures|diff|report|check`: from records and tables alone."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from harness import provenance, records
from paper import check, claims, diff, publish, report, terminal
from wallclock.errors import UserError

_DATA = provenance.ROOT / "data"
_FLAGS: dict[str, dict[str, Any]] = {
    "out": {"type": Path, "default": _DATA, "help": "the folder of tables"},
    "figures": {"type": Path, "default": provenance.ROOT / "figures"},
    "a": {"type": Path, "help": "a folder of CSVs"},
    "b": {"type": Path, "help": "another"},
    "tolerance": {"type": float, "default": 0.25, "help": "relative, for timings (default 0.25)"},
    "reference": {"type": Path, "help": "one run; default: every one in data/reference"},
    "write": {"action": "store_true", "help": "write what the records make instead of comparing"},
    "pack": {
        "type": Path,
        "nargs": "+",
        "metavar": "RUNS",
        "help": "first pack the records in these folders into --reference; writes",
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0, or 1 where folders differ or the request cannot be met."""
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for run, flags in {
        _figures: ("out", "figures"),
        _diff: ("out", "a", "b", "tolerance"),
        _report: ("out", "figures"),
        _check: ("reference", "write", "pack"),
    }.items():
        command = commands.add_parser(run.__name__.strip("_"), help=run.__doc__)
        command.set_defaults(run=run)
        for name in flags:
            command.add_argument(f"--{name}", **_FLAGS[name])
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options, Console()))
    except UserError as error:
        print(f"wallclock: {error}", file=sys.stderr)
        return 1


def _figures(options: argparse.Namespace, console: Console) -> int:
    """Rebuild CSVs, verdicts, figures, tables and report from the records."""
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
    """Compare our CSVs with the paper's numbers, or two folders of CSVs."""
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
        raise UserError(f"no reference run in {folder}; give one: check --reference DIR")
    if options.pack:
        if not options.reference:
            raise UserError(
                "--pack needs the folder to write: check --pack RUNS [RUNS ...] --reference DIR"
            )
        records.pack(options.pack, options.reference / records.ARCHIVE)
    status = 0
    for reference in references:
        if options.write or options.pack:
            n_files = len(check.write(reference))
            terminal.print_line(f"{reference}: {n_files} files written from its records", console)
            continue
        differences = check.check(reference)
        status |= bool(differences)
        words = ", but for these files:" if differences else ", byte for byte"
        terminal.print_line(f"{reference}: as its records make it{words}", console)
        for name, difference in differences.items():
            terminal.print_line(f"{name}  {difference}", console)
    return status


if __name__ == "__main__":
    sys.exit(main())
