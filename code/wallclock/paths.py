"""The one text form of a path, which is bytes: in ids, in JSON, on a terminal."""

import codecs
import os
import re
import sys
from contextlib import suppress
from typing import Any

#: A backslash that would be read as an escaped byte, or as an escaped backslash.
_LOOKS_ESCAPED = re.compile(r"\\(?=x([89a-f][0-9a-f]|5c))")
_ESCAPED = re.compile(rb"\\x([89a-f][0-9a-f]|5c)")


def text_of(path: str | os.PathLike[str]) -> str:
    r"""A path as text: bytes that are not UTF-8 as \xNN.

    A path that has such characters itself gets \x5c for their backslash: no two have one text.
    """
    name = os.fspath(path)
    if "\\x" in name:
        name = _LOOKS_ESCAPED.sub(r"\\x5c", name)
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def path_of(text: str) -> str:
    """The path whose text this is."""
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode()))


def print_any_text() -> None:
    """Let standard output and error take every text: what their encoding lacks is escaped."""
    codecs.register_error("wallclock", _escape)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a replaced stream, or none at all
            stream.reconfigure(errors="wallclock")  # type: ignore[union-attr]


def _escape(error: Any) -> tuple[str, int]:
    """A byte of a path as `text_of` has it, another character as `backslashreplace`."""
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":
        character = f"\\x{ord(character) & 0xFF:02x}"
    return character.encode("ascii", "backslashreplace").decode(), error.start + 1
