"""`wallclock trace script.py …`: runs a program with counters inside, and reports on it."""

import argparse
import os
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from wallclock.errors import UsageError, UserError, import_extra
from wallclock.machine import require_linux
from wallclock.options import Parser
from wallclock.trace import page
from wallclock.trace.collect import collect
from wallclock.trace.run import run
from wallclock.trace.trial import try_loader


def parser() -> Parser:
    """The options of the command, which end where the script begins."""
    made = Parser(
        "trace",
        "[options] SCRIPT.PY [ARG ...] | -m MODULE [ARG ...]",
        "Runs the program with this Python, unchanged: its input, output, signals and exit status"
        " are its own. The report goes to standard error. All words after the script are the"
        " script's. docs/trace.md says what is seen, and what is not.",
    )
    add = made.add_argument_group("options, before the script").add_argument
    add("--json", type=Path, metavar="FILE", help="write the trace and the verdict as JSON")
    add("--html", type=Path, metavar="FILE", help="write the report as a page of HTML")
    text = "then measure open_images on the program's own images"
    add("--try", action="store_true", dest="tries", help=text)
    add("-h", "--help", action="store_true", help=argparse.SUPPRESS)
    add("-m", nargs=argparse.REMAINDER, dest="module", help=argparse.SUPPRESS)
    add("script", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return made


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options, and `program`: what Python is given, the script's own words included.

    Raises UsageError: an option is unknown or lacks its value, or there is no program.
    """
    given = parser().parse_args(words)
    given.program = ("-m", *given.module) if given.module else (*given.script,)
    if given.help:
        return given
    if not given.program:
        raise UsageError("trace needs a program: script.py args, or -m module args")
    if given.script and not os.path.exists(given.script[0]):
        raise UsageError(f"no script {given.script[0]}; give a Python file, or -m and a module")
    return given


def wants_help(words: Sequence[str]) -> bool:
    """Whether the options ask for help; words behind the script are the program's."""
    return bool(words) and parse(words).help is True


def trace(words: Sequence[str]) -> int:
    """Run the program and report on standard error; its exit status, 128 + n after signal n.

    Raises UserError: a file cannot be written, a library of the report is missing, or the system
    is not Linux.
    """
    request = parse(words)
    require_linux("wallclock trace")
    for path in filter(None, (request.json, request.html)):
        if path.is_dir() or not os.access(path.absolute().parent, os.W_OK):
            raise UserError(f"{path} cannot be written: name a file in a folder that can")
    console = import_extra("rich.console", "wallclock trace", "trace").Console(stderr=True)
    if request.html is not None and find_spec("jinja2") is None:
        raise UserError("--html needs jinja2, which is not installed: pip install jinja2")
    with tempfile.TemporaryDirectory(prefix="wallclock-trace-", ignore_cleanup_errors=True) as made:
        ended = run(request.program, Path(made), records_paths=request.tries)
        traced = collect(Path(made), ended)
    page.report(traced, console)
    trial = try_loader(traced) if request.tries else None
    if trial is not None:
        console.print()
        page.print_text(trial.text, console)
    if request.json is not None:
        page.write_json(traced, request.json, trial)
    if request.html is not None:
        page.write_html(traced, request.html, trial)
    return traced.exit_code
