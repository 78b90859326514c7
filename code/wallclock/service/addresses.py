"""Which URLs the service requests: a message is written by others, and so is the name server.

`check` judges a URL by its text. `refusal` judges the address itself, at the last moment before a
connection to it is made: after any redirect, after the last look-up of the name (which may answer
differently each time), and however the host was spelled.
"""

from urllib.parse import urlsplit

from wallclock.fetch.addresses import is_public
from wallclock.fetch.retries import PermanentError

_MAX_LENGTH = 8192
#: Those of the schemes that are requested.
PORTS = {"http": 80, "https": 443}


def refusal(address: str) -> str:
    """Why an address may not be connected to; empty if it may."""
    # Without the address: who wrote the message learns nothing about the network.
    why = "the host's address is not public (allow_private=true allows it)"
    return "" if is_public(address) else why


def check(url: str, ports: frozenset[int]) -> None:
    """Check a URL that is to be requested. `ports`: the permitted ones; empty for all.

    Raises PermanentError: it may not be; the reason does not repeat it, as it may have a password.
    """
    if len(url) > _MAX_LENGTH:
        raise PermanentError(f"the URL is longer than {_MAX_LENGTH} characters")
    try:
        parts = urlsplit(url)
        port = parts.port if parts.port is not None else PORTS.get(parts.scheme)
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise PermanentError("not a URL") from error
    if parts.scheme not in PORTS:
        raise PermanentError("the URL's scheme is neither http nor https")
    if not parts.hostname:
        raise PermanentError("the URL has no host")
    if "@" in parts.netloc:
        raise PermanentError("the URL has a user name or a password")
    if ports and port not in ports:
        raise PermanentError(f"port {port} is not among the setting ports")
