"""What a URL is, and how it is sent: as it is written, where that is valid: it may be signed."""

import os
import re
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

_URL = re.compile(r"[A-Za-z][\w+.-]*://")
#: How the places begin that are fetched, and what there is to say of other URLs.
REMOTE, UNKNOWN = ("http://", "https://", "s3://"), "give a URL of http, https, s3 or file"
#: A URL in which nothing has to be percent-encoded (RFC 3986).
_VALID = re.compile(
    r"\w+://[\w.:@%\[\]-]+(?:[/?#](?:[\w/.~!$&'()*+,;=:@?#-]|%[0-9A-Fa-f]{2})*)?", re.ASCII
)
#: What stays as it is in one that is not valid; a percent sign too, as browsers do.
_SAFE = "!#$%&'()*+,/:;=?@[]~"

#: Line breaks and tabs inside of a URL, as browsers drop them.
_DROPPED = dict.fromkeys(map(ord, "\t\r\n"))


def is_url(where: str) -> bool:
    """Whether a text is a URL, not a path."""
    return "://" in where and _URL.match(where) is not None


def place_of(text: str) -> str:
    """A path, or a URL with its scheme in small letters, without blanks; `file://` is a path."""
    url = text.strip()
    if not is_url(url):
        return text
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    if scheme.lower() == "file" and host.lower() in ("", "localhost"):
        return os.fsdecode(b"/" + unquote_to_bytes(path))
    return f"{scheme.lower()}://{rest}"


def sendable(url: str) -> str:
    """A URL that can be sent. Raises ValueError: it is none."""
    if _VALID.fullmatch(url):
        return url
    url = url.translate(_DROPPED).strip()
    parts = urlsplit(url)
    if not (host := parts.netloc):
        raise ValueError("no host")
    if not host.isascii():
        user, at, name = host.rpartition("@")
        name, colon, port = name.partition(":")
        import idna

        # Python's own codec knows IDNA 2003 alone, in which straße.de is another host.
        encoded = idna.encode(name, uts46=True).decode()
        host = quote(user, _SAFE) + at + encoded + colon + port
    rest = url.partition("://")[2][len(parts.netloc) :]
    return f"{parts.scheme}://{host}{quote(rest, _SAFE)}"


def onward(url: str, location: str) -> str:
    """Where a redirect goes; `location`: a character for each byte. Raises ValueError: no URL."""
    try:
        location = location.encode("latin-1").decode()
    except UnicodeError:
        location = quote(location.encode("latin-1"), _SAFE)
    return urljoin(url, location)
