r"""Text from outside, on its way to a screen, a log, a page, or into OUT.

Names, URLs, JSON, and what libraries raise may be anything. `printable` is for people: one line of
bounded length. `without_secrets` is for data, which stays whole but for the secrets of URLs.
`text_of` is the one text form of a path, which is bytes.
"""

import codecs
import io
import os
import re
import sys
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

#: A backslash that would be read as an escaped byte, or as an escaped backslash.
_LOOKS_ESCAPED = re.compile(r"\\(?=x([89a-f][0-9a-f]|5c))")
_ESCAPED = re.compile(rb"\\x([89a-f][0-9a-f]|5c)")

#: Names of parameters that let their bearer in: of stores, of CDNs, and what all call a secret.
_SIGNATURE = (
    r"x-(?:amz|goog|oss|cos|obs|tos)-(?!process)[\w-]+|q-(?:sign|ak|key|header|url)[\w-]*"
    r"|[\w-]*(?:token_*|signature|[_-]sig|secret|passw(?:or)?d|access[_-]?(?:key[_-]?)?id)"
    r"|[\w-]*(?:access|secret|private|shared|subscription)[_-]?key"
    r"|key-pair-id|policy|sign?|hmac|hm|jwt|oh|pwd|pass|api[_-]?key|auth(?:[_-]?key|orization)?"
    r"|credentials?|hdn(?:ea|ts)"
)
#: Of such a URL, what says for how long and for what: Azure's, CloudFront's, and others'.
_TERMS = r"[\w-]*expir\w+|exp|ex|is|oe|hash-algorithm|s[eiprstv]|sip|spr|srt|sk(?:oid|tid|[estv])"
#: What begins a parameter, also of a URL that is percent-encoded in another one.
_MARK, _CODED_MARK = r"[?#]|&(?:amp;)?|\\u0026", r"%(?P<level>(?:25)*)(?:3f|23|26)"
#: What ends a percent-encoded parameter. A mark that is encoded once more belongs to its value.
_CODED_END = r"%(?!(?P=level)(?:25)+2[36])(?:25)*2[36]"
_REST = r"(?![:;,.)]{1,4}\s)[^&#\s\"'<>]"  # a message goes on behind
#: Left in the place of a parameter until what is around it has been joined.
_GONE = "\0\0"


def _parameters(names: str) -> re.Pattern[str]:
    plain = rf"({_MARK})(?:{names})=(?:(?!\\u0026){_REST})*"
    coded = rf"({_CODED_MARK})(?:{names})%(?:25)*3d(?:(?!{_CODED_END}){_REST})*"
    return re.compile(f"{plain}|{coded}", re.IGNORECASE)


_SIGNED, _WITH_TERMS = _parameters(_SIGNATURE), _parameters(_TERMS)
_GONE_BETWEEN = re.compile(rf"(?:&(?:amp;)?|\\u0026|%(?:25)*26){_GONE}", re.IGNORECASE)
_GONE_FIRST = re.compile(
    rf"[?#]{_GONE}(?!&|\\u0026)|(?<=[?#]){_GONE}(?:&(?:amp;)?|\\u0026)"
    rf"|%(?:25)*(?:3f|23){_GONE}(?!%(?:25)*26)|{_GONE}%(?:25)*26",
    re.IGNORECASE,
)
#: A name of which a letter is percent-encoded: its server reads it as any other.
_CODED_NAME = re.compile(r"(?<=[?&#])[\w-]*%[\w%-]*(?==)")
#: Two slashes of a URL that JSON, or a percent sign, escapes in part.
_SLASHES = r"(?:\\?/|%(?:25)*2f){2}"
#: A user, and perhaps a password. It may have a mark that ends a host, unless it may be a port.
_USER = re.compile(
    r"(?:\A[\w+.:-]{0,40}://[^\s/?#]*|\A//[^\s/?#@:]*:[^\s/?#]*"
    r"|:(?:\\?/){2}"
    r"(?:[^\s/?#\"<>]*|[^\s/?#\"<>@:\[]*:(?!\d*(?:[/?#\s\"'<>,;\\]|\Z))[^\s\"<>@]{1,200})"
    rf"|%(?:25)*3a{_SLASHES}(?:(?!%(?:25)*(?:2f|3f|23))[^\s/?#&\"<>])*)(?:@|%(?:25)*40)",
    re.IGNORECASE,
)
_BEFORE_USER = re.compile(rf".*?(?:\A|:|%(?:25)*3a){_SLASHES}", re.IGNORECASE)
#: Schemes in whose URLs a container, or a repository, is before the @.
_NO_USER = re.compile(r"(?:abfss?|wasbs?|github)\Z", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """The text, whose URLs lose user name, password, and the parameters of a signature."""
    if "@" in text or ("%" in text and "40" in text):
        text = _USER.sub(_without_user, text)
    if "=" not in text and "%" not in text:
        return text
    if "%" in text:
        text = _CODED_NAME.sub(_decoded_name, text)
    text, n_signed = _SIGNED.subn(_mark_of, text)
    if n_signed:
        text = _WITH_TERMS.sub(_mark_of, text)
        text = _GONE_BETWEEN.sub("", text)
        text = _GONE_FIRST.sub("", text)
    return text


def values_without_secrets(value: Any) -> Any:
    """Lists and dicts as of JSON, with each text, also as bytes of UTF-8, without secrets."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):  # a picture's bytes may look like a parameter
            return without_secrets(value.decode()).encode()
    if isinstance(value, list | tuple):
        return type(value)(map(values_without_secrets, value))
    if isinstance(value, dict):
        return {name: values_without_secrets(inner) for name, inner in value.items()}
    return value


def _mark_of(found: re.Match[str]) -> str:
    return f"{found[1] or found[2]}{_GONE}"


def _decoded_name(found: re.Match[str]) -> str:
    name = unquote(found[0])
    return name if _SIGNED.match(f"?{name}=") else found[0]


def _without_user(found: re.Match[str]) -> str:
    before = _BEFORE_USER.match(found[0])[0]  # type: ignore[index]
    scheme = found.string[max(found.start() - 8, 0) : found.start()] + before.partition("://")[0]
    return found[0] if _NO_USER.search(scheme) else before


def printable(text: str, most: int = 200) -> str:
    """Text from outside in one line of at most `most` characters, without secrets."""
    text = without_secrets(text)
    if len(text) > 2 * most:
        text = text[:most] + text[-most:]
    shown = "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)
    end = most // 3
    return shown if len(shown) <= most else f"{shown[: most - end - 1]}…{shown[-end:]}"


def _escaped(letter: str) -> str:
    """A character in ASCII; of a path's byte that is no UTF-8 as `text_of` has it."""
    if "\udc80" <= letter <= "\udcff":
        return f"\\x{ord(letter) & 0xFF:02x}"
    return letter.encode("unicode_escape").decode()


def text_of(path: str | os.PathLike[str]) -> str:
    r"""A path as text: no UTF-8 as \xNN, its own \xNN as \x5cxNN: no two have one text."""
    name = os.fspath(path)
    if "\\x" in name:
        name = _LOOKS_ESCAPED.sub(r"\\x5c", name)
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def path_of(text: str) -> str:
    """The path whose text this is."""
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode()))


class _Screen(io.FileIO):
    """A command's output or errors: libraries' texts have no secrets, a full disk ends no work."""

    def write(self, data: Any) -> int:
        """Write what can be written."""
        shown = without_secrets(bytes(data).decode("latin-1")).encode("latin-1")
        with suppress(OSError):
            while shown and (written := super().write(shown)):
                shown = shown[written:]
        return len(data)


def guard_screen() -> None:
    """Let standard output and error take every text, and lose its secrets.

    What their encoding lacks is escaped. What cannot be written is lost: the disk is full, or the
    reader gone.
    """
    codecs.register_error("wallclock", _escape)
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        with suppress(AttributeError, OSError, ValueError):  # a replaced stream, or none at all
            stream.reconfigure(errors="wallclock")
            if stream.fileno() in (1, 2):
                screen = io.BufferedWriter(_Screen(stream.fileno(), "w", closefd=False))
                by_line = stream.line_buffering or stream.write_through
                stream.flush()
                guarded = io.TextIOWrapper(
                    screen, stream.encoding, "wallclock", line_buffering=by_line
                )
                setattr(sys, name, guarded)


def _escape(error: Any) -> tuple[str, int]:
    return _escaped(error.object[error.start]), error.start + 1
