"""`wallclock embed SRC OUT …`, `wallclock verify OUT …`, `serve QUEUE_URL …`, `trace SCRIPT …`."""

import os
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from wallclock import __version__, native
from wallclock.clock import collect_rarely
from wallclock.constraints import Setting, describe, values_of
from wallclock.errors import UserError, check_name, import_extra
from wallclock.machine import check_address_space
from wallclock.outside import guard_screen, printable
from wallclock.trace import command as tracing

#: Columns of the help: of a line, and before a setting's meaning.
_WIDTH, _INDENT = 80, 27
#: Characters of a last line.
_MOST = 2000
#: Seconds from a signal until the process ends in any case; commits are atomic.
_GRACE_S = 4.0
_OF_EMBED = """\
SRC: a folder; a list (.csv, .tsv, .jsonl, .parquet, .arrow) with a column path
or url and perhaps id; a .txt with one a line; s3://bucket/prefix; a list's URL.
OUT: a folder or s3://bucket/prefix: new, or from an earlier run of this job."""
_OF_VERIFY = """\
OUT: a folder or s3://bucket/prefix that wallclock embed has finished.
SRC: of that job, where its URL has a password or a signature: OUT keeps none."""


def _asks_for_help(words: Sequence[str]) -> bool:
    return "--help" in words or "-h" in words


@dataclass(frozen=True)
class Command:
    """A command of `wallclock`. Both functions take the words after its name."""

    usage: str
    summary: str
    #: Words that it needs at least.
    n_required: int
    #: Returns the exit status.
    run: Callable[[Sequence[str]], int]
    #: Returns the rest of its help, made from the settings.
    explain: Callable[[Sequence[str]], str]
    #: What a signal's line says of the work.
    stopped: str
    #: Whether the words ask for help.
    wants_help: Callable[[Sequence[str]], bool] = _asks_for_help


class _Stopped(BaseException):
    """SIGTERM or Ctrl-C arrived."""

    def __init__(self, number: int) -> None:
        self.status = 128 + number
        super().__init__(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 for success, 1 for a request that cannot be met.

    2 for a mistake in what was typed, for a source that is no list of images, and for a pretrained
    model that cannot be had.
    """
    guard_screen()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        print(_overview(), file=sys.stderr)
        return 2
    name, rest = words[0], words[1:]
    if name in ("--help", "-h", "help"):
        print(_overview())
        return 0
    if name == "--version":
        print(f"wallclock {__version__} (native module: {native.described()})")
        return 0
    try:
        check_name(name, COMMANDS, "command")
    except UserError as error:
        return _report(error)
    command = COMMANDS[name]
    usage = f"usage: wallclock {name} {command.usage}"
    try:
        if command.wants_help(rest):
            print(f"{usage}\n{command.summary}\n\n{command.explain(rest)}")
            return 0
        if len(rest) < command.n_required:
            print(f"{usage}; wallclock {name} --help lists the settings", file=sys.stderr)
            return 2
        return _run(command, rest)
    except UserError as error:
        return _report(error)


def _report(error: UserError) -> int:
    print(f"wallclock: {error}", file=sys.stderr)
    return error.status


def _run(command: Command, words: Sequence[str]) -> int:
    """The command's exit status, also of one that a signal ends."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, partial(_stop, command.stopped))
    try:
        # What Pillow thinks of an image is in the image's failure, if it is one.
        warnings.filterwarnings("ignore", module="PIL")
        collect_rarely()
        return command.run(words)
    except _Stopped as stopped:
        return stopped.status
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "start new thread" not in str(error):
            raise
        fix = "set fewer workers= or a smaller batch=, or raise ulimit"
        raise UserError(f"no memory, or no thread, is left; {fix}") from error


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
    raise _Stopped(number)


# --- commands -----------------------------------------------------------------------------------


def _embed(words: Sequence[str]) -> int:
    from wallclock.job.settings import JobSettings

    check_address_space()
    values = values_of(JobSettings, words[2:])
    start = _import_job("wallclock.job.start", "wallclock embed")
    console = _import_job("rich.console", "wallclock embed").Console(stderr=True)
    outcome = start.embed(words[0], words[1], console=console, **values)
    print(f"wallclock: {printable(str(outcome), _MOST)}")
    return 1 if outcome.unreached else 0


def _verify(words: Sequence[str]) -> int:
    from wallclock.job.settings import VerifySettings

    check_address_space()
    given = [word for word in words[1:2] if "://" in word or os.path.exists(word)]
    values = values_of(VerifySettings, words[1 + len(given) :])
    verify = _import_job("wallclock.job.verify", "wallclock verify").verify
    verdict = verify(words[0], *given, **values)
    print(f"wallclock: {printable(str(verdict), _MOST)}")
    return 1 if verdict.faults else 0


def _import_job(module: str, command: str) -> Any:
    """Import a module of a job; where the extra `embed` is not installed, name pyarrow first."""
    import_extra("pyarrow", command, "embed")
    return import_extra(module, command, "embed")


def _serve(words: Sequence[str]) -> int:
    check_address_space()
    worker = import_extra("wallclock.service.worker", "wallclock serve", "queue")
    status: int = worker.serve(words[0], words[1:])
    # A thread may still be in a call that nothing waits for.
    sys.stderr.flush()
    os._exit(status)


# --- help ---------------------------------------------------------------------------------------


def _overview() -> str:
    usages = [f"wallclock {name} {command.usage}" for name, command in COMMANDS.items()]
    summaries = [f"{name:<7}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: " + "\n       ".join(usages),
            "",
            *summaries,
            "",
            "wallclock COMMAND --help lists a command's settings; wallclock --version",
        ]
    )


def _lines(settings: Iterable[Setting]) -> str:
    """A line or two for each setting: its name and default, what it means, what it may be."""
    lines = []
    for setting in settings:
        head = f"  {setting.name}={setting.default}"
        texts = textwrap.wrap(setting.meaning, _WIDTH - _INDENT)
        if setting.allowed:
            allowed = f"({setting.allowed})"
            if texts and len(texts[-1]) + 1 + len(allowed) <= _WIDTH - _INDENT:
                texts[-1] += f" {allowed}"
            else:
                texts.append(allowed)
        if texts and len(head) < _INDENT:
            head = head.ljust(_INDENT) + texts.pop(0)
        lines.append(head)
        lines += [" " * _INDENT + text for text in texts]
    return "\n".join(lines)


def _explain_job(about: str, settings: str, words: Sequence[str]) -> str:
    """What its SRC and OUT are, and a class of settings of the job's."""
    from wallclock.job import settings as job

    lines = _lines(describe(getattr(job, settings)))
    return f"{about}\n\nsettings, key=value, with their defaults:\n{lines}"


def _explain_serve(words: Sequence[str]) -> str:
    from wallclock.service import settings

    module = settings.last_text(words, "module") or settings.ServiceSettings.module
    return (
        "QUEUE_URL: of an SQS queue. docs/service.md explains messages and modules.\n\n"
        "settings, key=value, with their defaults:\n"
        f"{_lines(describe(settings.ServiceSettings))}\n\n"
        f"of {module}:\n{_lines_of_module(module)}"
    )


def _lines_of_module(name: str) -> str:
    """The settings that a module of the service adds; why not, where it cannot be imported."""
    from wallclock.service import settings

    sys.path.insert(0, os.getcwd())  # where a user's module is
    try:
        module = settings.find_module(name)
    except UserError as error:
        return textwrap.fill(str(error), _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return _lines(settings.describe_module(module))


COMMANDS = {
    "embed": Command(
        usage="SRC OUT [key=value ...]",
        summary="images to vectors; run the same command again to resume",
        n_required=2,
        run=_embed,
        explain=partial(_explain_job, _OF_EMBED, "JobSettings"),
        stopped="finished parts are kept; run the same command again to resume",
    ),
    "verify": Command(
        usage="OUT [SRC] [key=value ...]",
        summary="re-embed a sample with Pillow and compare; exits 1 on a mismatch",
        n_required=1,
        run=_verify,
        explain=partial(_explain_job, _OF_VERIFY, "VerifySettings"),
        stopped="nothing was written",
    ),
    "serve": Command(
        usage="QUEUE_URL [key=value ...]",
        summary="images of a queue to results, sent to callbacks",
        n_required=1,
        run=_serve,
        explain=_explain_serve,
        stopped="no message was taken yet",
    ),
    "trace": Command(
        usage="[OPTION ...] SCRIPT.PY [ARG ...] | -m MODULE [ARG ...]",
        summary="run a program of yours, say where its wall time goes and what to fix",
        n_required=1,
        run=tracing.trace,
        explain=tracing.explain,
        stopped="the program has ended, its report is lost",
        wants_help=tracing.wants_help,
    ),
}


if __name__ == "__main__":
    sys.exit(main())
