"""`wallclock trace script.py …`: runs a program with counters inside, and reports on it."""

import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wallclock.errors import UsageError, UserError, import_extra
from wallclock.trace.collect import collect, image_paths
from wallclock.trace.run import Ended, run

#: Options of the command with what they take, empty for nothing; all come before the program.
OPTIONS = {
    "--json": ("FILE", "write the trace and the verdict as JSON"),
    "--html": ("FILE", "write the report as a page of HTML"),
    "--seconds": ("N", "interrupt the program after N seconds, as Ctrl-C does"),
    "--try": ("", "then measure open_images on the program's own images"),
}


@dataclass(frozen=True)
class Request:
    """The command's words. `program`: what Python is given, the script's own words included."""

    program: tuple[str, ...]
    json: Path | None = None
    html: Path | None = None
    seconds: float = 0.0
    tries: bool = False


def parse(words: Sequence[str]) -> Request:
    """Read the options up to the program.

    Raises UsageError: an option is unknown or lacks its value, or there is no program.
    """
    request = Request(())
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        name, has_value, value = rest.pop(0).partition("=")
        if name not in OPTIONS:
            listed = ", ".join((*OPTIONS, "-m"))
            raise UsageError(f"trace has no option {name}; valid before the script: {listed}")
        if not OPTIONS[name][0]:
            if has_value:
                raise UsageError(f"{name} takes no value")
            request = replace(request, tries=True)
            continue
        if not has_value:
            if not rest:
                raise UsageError(f"{name} needs a value: {name} {OPTIONS[name][0]}")
            value = rest.pop(0)
        given: dict[str, Any] = {name.removeprefix("--"): _value(name, value)}
        request = replace(request, **given)
    if not rest or rest == ["-m"]:
        raise UsageError("trace needs a program: script.py args, or -m module args")
    if rest[0] != "-m" and not Path(rest[0]).exists():
        raise UsageError(f"no script {rest[0]}; give a Python file, or -m and a module")
    return replace(request, program=tuple(rest))


def _value(name: str, text: str) -> Path | float:
    """An option's value: seconds, or the path of a file."""
    if name != "--seconds":
        return Path(text)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"--seconds needs a positive number, not {text}")
    return seconds


def wants_help(words: Sequence[str]) -> bool:
    """Whether a word before the program asks for help: later ones are the program's."""
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        word = rest.pop(0)
        if word in ("-h", "--help"):
            return True
        if word in OPTIONS and OPTIONS[word][0] and rest:
            rest.pop(0)
    return False


def trace(words: Sequence[str]) -> int:
    """Run the program and report on standard error; its exit status.

    A program that a signal ended ends this process by the same signal.

    Raises UserError: a file cannot be written, or a library of the report is missing.
    """
    request = parse(words)
    for path in filter(None, (request.json, request.html)):
        _check_writable(path)
    page = import_extra("wallclock.trace.page", "wallclock trace", "embed")
    console = import_extra("rich.console", "wallclock trace", "embed").Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="wallclock-trace-"))
    try:
        ended = run(request.program, folder, request.seconds, records_paths=request.tries)
        traced, paths = collect(folder, ended), image_paths(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    page.report(traced, console)
    trial = None
    if request.tries:
        from wallclock.trace.trial import try_loader

        trial = try_loader(traced, paths)
        page.report_trial(trial, console)
    if request.json is not None:
        page.write_json(traced, request.json, trial)
    if request.html is not None:
        page.write_html(traced, request.html, trial)
    return _end_alike(ended)


def _check_writable(path: Path) -> None:
    folder = path.absolute().parent
    if path.is_dir() or not os.access(folder, os.W_OK):
        raise UserError(f"{path} cannot be written: name a file in a folder that can")


def _end_alike(ended: Ended) -> int:
    """The program's exit status; 0 for one that ended because its `--seconds` were over."""
    if ended.is_cut and ended.exit_code == 128 + signal.SIGINT:
        return 0
    if ended.status < 0:
        sys.stdout.flush()
        sys.stderr.flush()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -ended.status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-ended.status, signal.SIG_DFL)
        os.kill(os.getpid(), -ended.status)
    return ended.exit_code


def explain(words: Sequence[str]) -> str:
    """The command's help after its usage."""
    lines = [f"  {f'{name} {value}':<18}{text}" for name, (value, text) in OPTIONS.items()]
    return (
        "Runs the program with this Python, unchanged: its input, output, signals and\n"
        "exit status are its own. The report goes to standard error. All words after\n"
        "the script are the script's. docs/trace.md: what is seen, and what is not.\n\n"
        "options, before the script:\n" + "\n".join(lines)
    )
