"""The errors a user can cause, and the failures an image can have.

A `UserError` is printed as one line, without a traceback; everything else that escapes is a bug
and keeps its traceback.
"""

import difflib
import errno
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

from wallclock.outside import printable

P = ParamSpec("P")
R = TypeVar("R")

_OBJECT = re.compile(r" ?<[\w.]+ object at 0x[0-9a-f]+>")
#: The name of this project's wheel. The import name `wallclock` is another project's on PyPI.
DISTRIBUTION = "wallclock-images"
VERSION = "0.2.0"
_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}


class UserError(Exception):
    """A request that cannot be met. The message names the cause and the fix, in one line."""

    #: The exit status of a command that it ends, and the most characters of its message.
    status: int = 1
    most: int = 380

    def __init__(self, message: object, cure: str = "") -> None:
        self.reason: str = str(message)
        self.cure: str = cure
        super().__init__(printable(f"{message}; {cure}" if cure else self.reason, self.most))


class UsageError(UserError):
    """What was typed is no command, no setting, or no value of one."""

    status: int = 2
    most: int = 2000  # it may list all settings


class SourceError(UserError):
    """What is to be embedded is not there, or is no list of images."""

    status = 2


class NoWeightsError(UserError):
    """The files of a pretrained model cannot be had, neither from the disk nor from a hub."""

    status = 2


class Unavailable(UserError):  # noqa: N818 - of the suite a result, not a fault
    """A library, a provider or a device is missing: of a cell, a row with this as its reason."""


def install_hint(extra: str) -> str:
    """The command that installs what an extra brings, from where this package came."""
    from importlib.metadata import PackageNotFoundError, distribution

    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        return f"pip install '{checkout}[{extra}]'"
    name, origin = DISTRIBUTION, ""
    with suppress(PackageNotFoundError, ValueError):  # of an index nothing is recorded
        recorded = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        url, system = recorded.get("url", ""), recorded.get("vcs_info", {}).get("vcs")
        if url.startswith("file:") and not system:
            name = unquote(urlsplit(url).path)
        elif url:
            origin = f" @ {system}+{url}" if system else f" @ {url}"
    return f"pip install '{name}[{extra}]{origin}'"


def import_extra(module: str, what: str, extra: str) -> Any:
    """Import a library that only an extra of the wheel brings. Raises UserError: what needs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = f"{what} needs {error.name}, which is not installed"
        raise UserError(f"{missing}: {install_hint(extra)}") from error


class ImageError(Exception):
    """One image failed in a stage. It is counted and listed in failures.csv; the run goes on."""

    #: Which one, where its text has to say so.
    image = ""

    def __init__(self, stage: str, reason: str) -> None:
        # An address says nothing, and would make failures.csv differ from run to run.
        self.stage: str = stage
        self.reason: str = printable(_OBJECT.sub("", reason))
        super().__init__(stage, self.reason)  # with which it is made again, where it is pickled

    def __str__(self) -> str:
        return ": ".join(filter(None, (printable(self.image), self.stage, self.reason)))


class NotReachedError(ImageError):
    """An image that could not be had: the world's failure, which a later run may not meet again.

    `unreached`: "one", where others were reached meanwhile; "all", where nothing was, until the
    reader gave up; "untried", of a host that had answered.
    """

    def __init__(self, stage: str, reason: str, unreached: str = "one") -> None:
        super().__init__(stage, reason)
        self.unreached = unreached


def image_errors(stage: str, library: str, call: Callable[P, R]) -> Callable[P, R]:
    """`call`, whose errors become the image's; the machine's, and a `UserError`, end the run."""

    @wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except (ImageError, UserError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
                raise
            raise ImageError(stage, f"{library}: {reason_of(error)}") from error

    return checked


def reason_of(error: Exception) -> str:
    """What a library says of an image; with the error's type where that is an unusual one."""
    usual = isinstance(error, (OSError, ValueError, SyntaxError))
    return first_line(error) if usual else f"{type(error).__name__}: {first_line(error)}"


def describe(failure: Mapping[str, str]) -> str:
    """'a.jpg, in decode: truncated JPEG': a failure as records hold it, for a message."""
    return f"{printable(failure['id'])}, in {failure['stage']}: {failure['reason']}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, with the next one behind a colon; else its type."""
    first, *rest = [*filter(None, map(str.strip, str(error).splitlines()))] or [
        type(error).__name__
    ]
    return printable(" ".join([first, *rest[:1]]) if first.endswith(":") else first)


def check_name(name: str, valid: Iterable[str], kind: str) -> str:
    """Return `name` if it is one of `valid`; otherwise raise `UsageError` with the nearest."""
    names = sorted(valid)
    if name in names:
        return name
    listed = ", ".join(filter(None, names))
    if "" in names:
        listed += ", or empty"
    nearest = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if nearest:
        hint = f"did you mean {' or '.join(nearest)}? (all: {listed})"
    else:
        hint = f"valid: {listed}"
    raise UsageError(f"no {kind} is called '{printable(str(name), 60)}'; {hint}")
