"""`wallclock embed SRC OUT …`, `wallclock verify OUT [n=64]`, `wallclock serve QUEUE_URL …`."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

USAGE = """\
usage: wallclock embed SRC OUT [key=value ...]    images to vectors; the same command goes on
       wallclock verify OUT [n=64]                embed a sample again with Pillow, compare
       wallclock serve QUEUE_URL [config=FILE] [key=value ...]    images of a queue, to callbacks

SRC: a folder, a list (CSV or Parquet of id and path or url; or one a line), s3://bucket/prefix, or
the URL of a list. OUT: a folder, or s3://bucket/prefix. Settings of serve: docs/service.md; of
embed:
"""
#: Seconds from a signal until the process ends in any case; commits are atomic.
_GRACE_S = 4.0


class _Stopped(BaseException):
    """SIGTERM or Ctrl-C arrived."""

    def __init__(self, number: int) -> None:
        self.status = 128 + number
        super().__init__(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 for success, 1 for a request that cannot be met, 2 for a wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands: dict[str, tuple[Callable[[list[str]], int], int]] = {
        "embed": (_embed, 2),
        "verify": (_verify, 1),
        "serve": (_serve, 1),
    }
    command, least = commands.get(words[0] if words else "", (None, 0))
    if command is None or len(words) <= least or "--help" in words:
        print(USAGE + _settings(), file=sys.stdout if "--help" in words else sys.stderr)
        return 0 if "--help" in words else 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    # What Pillow thinks of an image is in the image's failure, if it is one.
    warnings.filterwarnings("ignore", module="PIL")
    try:
        from wallclock.clock import collect_rarely
        from wallclock.errors import UserError

        collect_rarely()
        try:
            return command(words[1:])
        except UserError as error:
            print(f"wallclock: {error}", file=sys.stderr)
            return 1
    except _Stopped as stopped:
        return stopped.status


def _stop(number: int, frame: FrameType | None) -> None:
    """Say how to go on; unwind, or end at the latest when the grace is over."""
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, signal.SIG_IGN)
    line = "stopped; whole parts are kept, the same command goes on"
    os.write(2, f"\nwallclock: {line}\n".encode())
    timer = threading.Timer(_GRACE_S, os._exit, [128 + number])
    timer.daemon = True
    timer.start()
    raise _Stopped(number)


def _settings() -> str:
    from dataclasses import fields

    from wallclock.job.settings import JobSettings

    return "\n".join(f"  {item.name}={item.default}" for item in fields(JobSettings))


def _embed(words: list[str]) -> int:
    from rich.console import Console

    from wallclock.constraints import values_of
    from wallclock.job import embed
    from wallclock.job.settings import JobSettings

    values = values_of(JobSettings, words[2:])
    outcome = embed(words[0], words[1], console=Console(stderr=True), **values)
    print(f"wallclock: {outcome}")
    return 0


def _verify(words: list[str]) -> int:
    from wallclock.constraints import values_of
    from wallclock.job.verify import VerifySettings, verify

    verdict = verify(words[0], **values_of(VerifySettings, words[1:]))
    print(f"wallclock: {verdict}")
    return 1 if verdict.faults else 0


def _serve(words: list[str]) -> int:
    try:
        from wallclock.service.start import serve
    except ModuleNotFoundError as error:
        from wallclock.errors import UserError

        fix = "pip install 'wallclock[queue]'"
        raise UserError(f"serve needs {error.name}, which is not installed: {fix}") from error
    files = [word.partition("=")[2] for word in words if word.startswith("config=")]
    values = _file(files[-1]) if files else {}
    status = serve(words[0], [one for one in words[1:] if not one.startswith("config=")], values)
    # A thread may still be in a call that nothing waits for.
    sys.stderr.flush()
    os._exit(status)


def _file(path: str) -> dict[str, Any]:
    """The settings in a YAML file, interpolations resolved."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from wallclock.errors import UserError, first_line

    try:
        values: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, OmegaConfBaseException, YAMLError) as error:
        raise UserError(f"config={path}: {first_line(error)}") from error
    if not isinstance(values, dict):
        raise UserError(f"config={path}: give it lines of `setting: value`")
    return values


if __name__ == "__main__":
    sys.exit(main())
