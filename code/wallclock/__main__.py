"""The command `wallclock`: demo, doctor, trace, embed, verify, serve."""

import os
import signal
import sys
import threading
import warnings
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType

from wallclock import __version__, doctor
from wallclock.clock import collect_rarely
from wallclock.constraints import describe
from wallclock.errors import UserError, check_name, import_extra
from wallclock.job import load
from wallclock.machine import check_address_space
from wallclock.options import Parser
from wallclock.outside import guard_screen, printable
from wallclock.trace import command as tracing

#: Characters of a last line.
_MOST = 2000
#: Seconds from a signal until the process ends in any case; commits are atomic.
_GRACE_S = 4.0
_OVERVIEW = """\
wallclock demo                    where time goes on this machine, in seconds
wallclock doctor                  what runs here, and how to get what is missing
wallclock trace script.py         where your program spends its time, and fixes
wallclock embed photos/ vectors/  images to vectors; run it again to resume
wallclock verify vectors/         check every byte, and re-embed a sample
wallclock serve QUEUE_URL         answer the images of a queue by callbacks

wallclock COMMAND --help lists its options; wallclock --version
"""
_OF_EMBED = (
    "SRC is a folder, a list (.csv, .tsv, .jsonl, .parquet, .arrow with a column path or url; .txt"
    " with one a line), tars, s3://bucket/prefix, or the URL of one. OUT is a folder or"
    " s3://bucket/prefix: new, or from an earlier run of this job."
)
_OF_VERIFY = (
    "OUT is a folder or bucket that wallclock embed wrote. If SRC's URL has a password or a"
    " signature, give it again: OUT does not store it. Exits with 1 on a mismatch."
)
_OF_DOCTOR = "Show what is installed and what works here. Exits with 1 if something does not work."
_DOCTOR = partial(Parser, "doctor", "", _OF_DOCTOR)
_DEMO = partial(Parser, "demo", "", "Time a hundred generated photos in two loaders, with a chart.")
#: Settings of `embed` that --help lists first.
_USUAL = ("model", "preprocess", "normalize", "batch", "device", "dtype", "workers", "prune")


@dataclass(frozen=True)
class Command:
    """A command of `wallclock`. The functions take the words after its name.

    `parser`: of `serve` it depends on the module that the words name. `run` returns the exit
    status. `stopped`: what a signal's line says of the work.
    """

    parser: Callable[[Sequence[str]], ArgumentParser]
    run: Callable[[Sequence[str]], int]
    stopped: str
    wants_help: Callable[[Sequence[str]], bool] = lambda words: "--help" in words or "-h" in words


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 for success, 1 for a request that cannot be met.

    2 for a mistake in what was typed, for a source that is no list of images, and for a pretrained
    model that cannot be loaded.
    """
    guard_screen()
    words = list(sys.argv[1:] if arguments is None else arguments)
    name, rest = words[0] if words else "", words[1:]
    if name in ("", "--help", "-h", "help"):
        print(_OVERVIEW, end="", file=sys.stdout if name else sys.stderr)
        return 0 if name else 2
    if name == "--version":
        print(f"wallclock {__version__}")
        return 0
    try:
        if name == "--completion":
            print(_completion(rest))
            return 0
        check_name(name, COMMANDS, "command")
        command = COMMANDS[name]
        if command.wants_help(rest):
            print(command.parser(rest).format_help(), end="")
            return 0
        return _run(command, rest)
    except UserError as error:
        print(f"wallclock: {error}", file=sys.stderr)
        return error.status


def _run(command: Command, words: Sequence[str]) -> int:
    """The command's exit status; SIGTERM and Ctrl-C raise SystemExit."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, partial(_stop, command.stopped))
    try:
        # What Pillow thinks of an image is in the image's failure, if it is one.
        warnings.filterwarnings("ignore", module="PIL")
        collect_rarely()
        return command.run(words)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "start new thread" not in str(error):
            raise
        fix = "set fewer workers= or a smaller batch=, or raise ulimit"
        raise UserError(f"out of memory or threads; {fix}") from error


def _stop(stopped: str, number: int, frame: FrameType | None) -> None:
    """Say how to go on; unwind, or end at the latest when the grace is over."""
    for ignored in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _GRACE_S + 1)  # also where no thread can be started
    with suppress(OSError):  # no room there, or it is closed
        os.write(2, f"\nwallclock: stopped; {stopped}\n".encode())
    timer = threading.Timer(_GRACE_S, os._exit, [128 + number])
    timer.daemon = True
    with suppress(RuntimeError):
        timer.start()
    raise SystemExit(128 + number)


def embed_parser(words: Sequence[str] = ()) -> Parser:
    """The arguments and settings of `wallclock embed`."""
    from wallclock.job.settings import JobSettings

    parser = Parser("embed", "SRC OUT [options]", _OF_EMBED)
    parser.add_argument("src", metavar="SRC", help=SUPPRESS)
    parser.add_argument("out", metavar="OUT", help=SUPPRESS)
    parser.add_settings(describe(JobSettings), _USUAL)
    return parser


def _embed(words: Sequence[str]) -> int:
    given, values = embed_parser().read(words)
    check_address_space()
    start = load("wallclock.job.start", "wallclock embed", given.src)
    console = load("rich.console", "wallclock embed").Console(stderr=True)
    outcome = start.embed(given.src, given.out, console=console, **values)
    print(f"wallclock: {printable(str(outcome), _MOST)}")
    return 1 if outcome.unreached else 0


def _verify_parser(words: Sequence[str] = ()) -> Parser:
    from wallclock.job.settings import VerifySettings

    parser = Parser("verify", "OUT [SRC] [options]", _OF_VERIFY)
    parser.add_argument("out", metavar="OUT", help=SUPPRESS)
    parser.add_argument("src", metavar="SRC", nargs="?", help=SUPPRESS)
    parser.add_settings(describe(VerifySettings), ("n", "seed"))
    return parser


def _verify(words: Sequence[str]) -> int:
    given, values = _verify_parser().read(words)
    check_address_space()
    verify = load("wallclock.job.verify", "wallclock verify", given.out).verify
    sources = [] if given.src is None else [given.src]
    verdict = verify(given.out, *sources, **values)
    print(f"wallclock: {printable(str(verdict), _MOST)}")
    return 1 if verdict.faults else 0


def _serve_parser(words: Sequence[str]) -> Parser:
    from wallclock.service import settings

    sys.path.insert(0, os.getcwd())  # where a user's module is
    name = settings.module_name(words)
    try:
        return settings.parser(name, settings.find_module(name))
    except UserError as error:
        parser = settings.parser(name, None)
        parser.epilog = str(error)
        return parser


def _serve(words: Sequence[str]) -> int:
    from wallclock.service.settings import extras

    check_address_space()
    worker = import_extra("wallclock.service.worker", "wallclock serve", extras(words))
    status: int = worker.serve(words)
    # A thread may still be in a call that nothing waits for.
    sys.stderr.flush()
    os._exit(status)


def _demo(words: Sequence[str]) -> int:
    _DEMO().read(words)
    import_extra("wallclock.demo", "wallclock demo", "torch").demo()
    return 0


def _doctor(words: Sequence[str]) -> int:
    _DOCTOR().read(words)
    findings = [*doctor.examine()]
    print(doctor.render(findings))
    return int(any(finding.stops for finding in findings))


def _completion(words: Sequence[str]) -> str:
    """The script that completes commands and options in a shell: bash, zsh or tcsh."""
    shtab = import_extra("shtab", "wallclock --completion", "completion")
    shell = check_name(words[0] if words else "", shtab.SUPPORTED_SHELLS, "shell")
    every = ArgumentParser(prog="wallclock")
    commands = every.add_subparsers()
    for name, command in COMMANDS.items():
        parser = command.parser(())  # what has no help is not completed
        commands.add_parser(name, parents=[parser], help=parser.usage, add_help=False)
    return str(shtab.complete(every, shell))


COMMANDS = {
    "demo": Command(lambda words: _DEMO(), _demo, "nothing was written"),
    "doctor": Command(lambda words: _DOCTOR(), _doctor, "nothing was changed"),
    "trace": Command(
        parser=lambda words: tracing.parser(),
        run=tracing.trace,
        stopped="the program has ended, its report is lost",
        wants_help=tracing.wants_help,
    ),
    "embed": Command(
        parser=embed_parser,
        run=_embed,
        stopped="finished parts are kept; run the same command again to resume",
    ),
    "verify": Command(parser=_verify_parser, run=_verify, stopped="nothing was written"),
    "serve": Command(parser=_serve_parser, run=_serve, stopped="no message was taken yet"),
}


if __name__ == "__main__":
    sys.exit(main())
