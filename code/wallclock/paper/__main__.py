"""`python -m wallclock.paper figures|diff|report|check|whatif`: from records and tables, without a GPU."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from wallclock import provenance, records
from wallclock.errors import UserError
from wallclock.paper import check, claims, diff, overview, publish, report, show, whatif


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; 0, or 1 where folders differ or the request cannot be met."""
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
    figures = commands.add_parser(
        "figures", help="rebuild CSVs, verdicts, figures, tables and report from the records"
    )
    figures.add_argument("--out", type=Path, default=provenance.ROOT / "data")
    figures.add_argument("--figures", type=Path, default=provenance.ROOT / "figures")
    figures.set_defaults(run=_figures)
    compare = commands.add_parser(
        "diff", help="our CSVs against the paper's numbers, or two folders of CSVs"
    )
    compare.add_argument("--out", type=Path, default=provenance.ROOT / "data")
    compare.add_argument("--a", type=Path, help="a folder of CSVs")
    compare.add_argument("--b", type=Path, help="another")
    compare.add_argument(
        "--tolerance", type=float, default=0.25, help="relative, for timings (default 0.25)"
    )
    compare.set_defaults(run=_diff)
    single = commands.add_parser(
        "report", help="one HTML file, from the CSVs and figures that are there"
    )
    single.add_argument("--out", type=Path, default=provenance.ROOT / "data")
    single.add_argument("--figures", type=Path, default=provenance.ROOT / "figures")
    single.set_defaults(run=_report)
    rebuild = commands.add_parser(
        "check", help="rebuild reference runs and compare with what is committed"
    )
    rebuild.add_argument(
        "--reference", type=Path, help="one run; default: every one in data/reference"
    )
    rebuild.add_argument(
        "--write", action="store_true", help="write what the records make instead of comparing"
    )
    rebuild.add_argument(
        "--pack",
        type=Path,
        metavar="RUNS",
        help="first pack these records into --reference; writes",
    )
    rebuild.set_defaults(run=_check)
    asked = commands.add_parser(
        "whatif", help="what another machine would bring, predicted from the serial tables"
    )
    asked.add_argument("--out", type=Path, default=provenance.ROOT / "data")
    asked.add_argument("--image-set", default="original", help="original (default) or small_256")
    asked.add_argument(
        "--decoder", default="pil", help="a decoder of the serial table (default pil)"
    )
    asked.add_argument("--cores", type=int)
    asked.add_argument("--workers", type=int)
    asked.add_argument("--batch", type=int)
    asked.add_argument("--storage-gbit", type=float, help="gigabits a second")
    asked.add_argument("--image-mb", type=float, help="megabytes of an image")
    asked.add_argument(
        "--accelerator", help="T4, H100, or how many times faster than this run's device"
    )
    asked.set_defaults(run=_whatif)
    return parser


def _whatif(options: argparse.Namespace, console: Console) -> int:
    own = whatif.Changes(**{name: getattr(options, name) for name in vars(whatif.Changes())})
    found = whatif.cases(options.out.resolve(), options.image_set, options.decoder, own)
    whatif.show(found, options.image_set, options.decoder, console)
    return 0


def _figures(options: argparse.Namespace, console: Console) -> int:
    published = publish.publish(options.out.resolve(), options.figures.resolve())
    if not published.tables:
        raise UserError(f"no records under {options.out}/runs; run `make quick` first")
    overview.print_tables(published.tables, console)
    for rendering in published.renderings:
        line = ", ".join(path.name for path in rendering.paths) or f"not made: {rendering.skipped}"
        console.print(f"{rendering.stem}: {line}", highlight=False, markup=False, soft_wrap=True)
    return 0


def _diff(options: argparse.Namespace, console: Console) -> int:
    if (options.a is None) != (options.b is None):
        raise UserError("comparing two folders needs both: make diff A=dir B=dir")
    if options.a is not None:
        differences = diff.compare(options.a, options.b, options.tolerance)
        show.print_differences(differences, console)
        return 1 if differences else 0
    verdicts = claims.judge(claims.load(publish.CLAIMS), options.out)
    claims.write(verdicts, options.out / "claims.csv")
    show.print_verdicts(verdicts, console)
    return 0


def _report(options: argparse.Namespace, console: Console) -> int:
    rendering = report.render(options.out.resolve(), options.figures.resolve())
    if rendering.skipped:
        raise UserError(f"no report: {rendering.skipped}; run `make quick` first")
    console.print(str(rendering.paths[0]), highlight=False, markup=False, soft_wrap=True)
    return 0


def _check(options: argparse.Namespace, console: Console) -> int:
    everywhere = provenance.ROOT / "data" / "reference"
    chosen = [options.reference] if options.reference else check.references(everywhere)
    if not chosen:
        raise UserError(f"no reference run in {everywhere}; give one: check --reference DIR")
    if options.pack:
        if not options.reference:
            raise UserError("--pack needs the folder to write: check --pack RUNS --reference DIR")
        records.pack(options.pack, options.reference / records.ARCHIVE)
    bad = 0
    for reference in chosen:
        if options.write or options.pack:
            written = check.write(reference)
            console.print(
                f"{reference}: {len(written)} files written from its records",
                highlight=False,
                markup=False,
            )
            continue
        discrepancies = check.check(reference)
        words = (
            "not as its records make it:"
            if discrepancies
            else "as its records make it, byte for byte"
        )
        console.print(f"{reference}: {words}", highlight=False, markup=False, soft_wrap=True)
        if discrepancies:
            show.print_discrepancies(discrepancies, console)
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
