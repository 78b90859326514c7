"""Which URLs the service requests: a message is written by others, and so is the name server.

`checked` judges a URL by its text. `open_socket` judges the address itself, at the last moment
before a connection to it is made: after any redirect, after the last look-up of the name (which may
answer differently each time), and however the host was spelled. aiohttp calls it for names and for
literal addresses; a resolver would not see the latter.
"""

import re
import socket
from typing import Any

from yarl import URL

from wallclock.fetch.addresses import is_public
from wallclock.fetch.retries import PermanentError

_MAX_LENGTH = 8192
#: A URL in which nothing has to be percent-encoded (RFC 3986).
_VALID = re.compile(
    r"\w+://[\w.:@%\[\]-]*(?:[/?#](?:[\w/.~!$&'()*+,;=:@?#-]|%[0-9A-Fa-f]{2})*)?", re.ASCII
)


class RefusedAddress(OSError):  # noqa: N818 - a decision
    """The address is not public. An OSError: other addresses of the name are then tried."""

    def __init__(self) -> None:
        # Without the address: aiohttp joins the messages of several unless they are equal; and who
        # wrote the message learns nothing about the network.
        super().__init__("the host's address is not public (allow_private=true allows it)")


def open_socket(info: tuple[Any, ...]) -> socket.socket:
    """A socket for one entry of `getaddrinfo`. Raises RefusedAddress."""
    family, kind, protocol, _, address = info
    if not is_public(address[0]):
        raise RefusedAddress
    return socket.socket(family, kind, protocol)


def exact(url: str) -> URL:
    """A URL as it is written, if it is valid: a signature may cover it. Raises ValueError."""
    return URL(url, encoded=_VALID.fullmatch(url) is not None)


def checked(url: str, ports: frozenset[int]) -> URL:
    """A URL that may be requested. `ports`: the permitted ones; empty for all.

    Raises PermanentError: it may not; the reason does not repeat it, as it may have a password.
    """
    if len(url) > _MAX_LENGTH:
        raise PermanentError(f"the URL is longer than {_MAX_LENGTH} characters")
    try:
        target = URL(url)
    except ValueError as error:
        raise PermanentError("not a URL") from error
    if target.scheme not in ("http", "https"):
        raise PermanentError("the URL's scheme is neither http nor https")
    if not target.raw_host:
        raise PermanentError("the URL has no host")
    if target.raw_user is not None or target.raw_password is not None:
        raise PermanentError("the URL has a user name or a password")
    if ports and target.port not in ports:
        raise PermanentError(f"port {target.port} is not among the setting ports")
    return exact(url)
