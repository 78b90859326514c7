"""Which URLs the service requests: a message is written by others, and so is the name server.

`checked` judges a URL by its text. `open_socket` judges the address itself, at the last moment
before a connection to it is made: after any redirect, after the last look-up of the name (which may
answer differently each time), and however the host was spelled. aiohttp calls it for names and for
literal addresses; a resolver would not see the latter.
"""

import socket
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from yarl import URL

from wallclock.fetch.retries import PermanentError

_MAX_LENGTH = 8192
#: Global in name only: IETF assignments with Oracle's metadata service, 6to4 relays, and the
#: address of Azure's host agent.
_NOT_PUBLIC = [ip_network(net) for net in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")]
_UNICAST, _NAT64 = ip_network("2000::/3"), ip_network("64:ff9b::/96")


class RefusedAddress(OSError):  # noqa: N818 - a decision
    """The address is not public. An OSError: other addresses of the name are then tried."""

    def __init__(self) -> None:
        # Without the address: aiohttp joins the messages of several unless they are equal; and who
        # wrote the message learns nothing about the network.
        super().__init__("the host's address is not public (allow_private=true allows it)")


@lru_cache(4096)
def is_public(address: str) -> bool:
    """Whether an IPv4 or IPv6 address is global unicast, and so is one that it embeds.

    Private, loopback, link-local, shared (CGNAT), multicast, reserved and unspecified ones are not.
    """
    ip = ip_address(address)
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is None:
            return ip in _UNICAST and ip.is_global
        ip = inner
    return ip.is_global and not ip.is_multicast and not any(ip in net for net in _NOT_PUBLIC)


def open_socket(info: tuple[Any, ...]) -> socket.socket:
    """A socket for one entry of `getaddrinfo`. Raises RefusedAddress."""
    family, kind, protocol, _, address = info
    if not is_public(address[0]):
        raise RefusedAddress
    return socket.socket(family, kind, protocol)


def checked(url: str | URL, ports: frozenset[int]) -> URL:
    """A URL that may be requested. `ports`: the permitted ones; empty for all.

    Raises PermanentError: it may not; the reason does not repeat it, as it may have a password.
    """
    if len(str(url)) > _MAX_LENGTH:
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
    return target
