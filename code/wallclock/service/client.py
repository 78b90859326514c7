"""One pool of connections to hosts that messages name: time-outs, retries, how failures are told.

What is the same for downloads and callbacks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Self, TypeVar

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from wallclock.constraints import Range
from wallclock.errors import UserError, first_line
from wallclock.fetch.retries import PermanentError, TransientError, retry_async
from wallclock.service.addresses import RefusedAddress, checked, open_socket
from wallclock.service.module import ItemError

T = TypeVar("T")
Pause = Callable[[float], Awaitable[object]]

_Seconds = Annotated[float, Range(0.001, 3600)]
#: Of the statuses below 500, those that a retry may mend.
_TRANSIENT_STATUS = frozenset({408, 425, 429})
#: Read at a time: of a large body, so that the event loop is woken less often.
_BUFFER_BYTES = 1 << 18


@dataclass(frozen=True)
class ClientSettings:
    """Requests to others. `ports`: of URLs, a list with commas; `allow_private`: any port and any
    address, for hosts of one's own. `connect_s`, `read_s` (silence) and `total_s` bound a try, of
    which there are `attempts`; `connections` the pool.
    """

    allow_private: bool = False
    ports: str = "80,443"
    connect_s: _Seconds = 5.0
    read_s: _Seconds = 10.0
    total_s: _Seconds = 30.0
    attempts: Annotated[int, Range(1, 100)] = 4
    connections: Annotated[int, Range(1, 10_000)] = 64

    def __post_init__(self) -> None:
        self.allowed_ports()

    def allowed_ports(self) -> frozenset[int]:
        """The ports; none for all. Raises UserError: they are no numbers."""
        try:
            ports = frozenset(int(port) for port in self.ports.split(","))
        except ValueError as error:
            raise UserError(f"ports={self.ports}: give numbers, as in 80,443") from error
        return frozenset() if self.allow_private else ports


class Client:
    """An async context manager around the pool; it may be shared by any number of tasks.

    Args:
        pause: between two tries, in seconds.
        resolver: of names; by default the system's, in threads.
    """

    stage: ClassVar[str]

    def __init__(
        self,
        settings: ClientSettings,
        *,
        pause: Pause = asyncio.sleep,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._limits, self._ports = settings, settings.allowed_ports()
        self._pause, self._resolver = pause, resolver

    async def __aenter__(self) -> Self:
        of, private = self._limits, self._limits.allow_private
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=of.connections,
                resolver=self._resolver,
                socket_factory=None if private else open_socket,
            ),
            # The whole try is bounded by `_once`, redirects included.
            timeout=aiohttp.ClientTimeout(None, sock_connect=of.connect_s, sock_read=of.read_s),
            headers={"Accept-Encoding": "identity", "User-Agent": "wallclock"},
            cookie_jar=aiohttp.DummyCookieJar(),
            # A small compressed body can be a large one; and proxies of the environment would
            # connect to any address.
            auto_decompress=False,
            trust_env=False,
            read_bufsize=_BUFFER_BYTES,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def _checked(self, url: str | URL) -> URL:
        return checked(url, self._ports)

    async def _tried(self, call: Callable[[], Awaitable[T]]) -> T:
        """The call's result, after as many tries as there may be. Raises ItemError."""
        try:
            return await retry_async(partial(self._once, call), self._limits.attempts, self._pause)
        except (PermanentError, TransientError) as error:
            raise ItemError(self.stage, str(error), isinstance(error, PermanentError)) from error

    async def _once(self, call: Callable[[], Awaitable[T]]) -> T:
        of = self._limits
        try:
            async with asyncio.timeout(of.total_s):
                return await call()
        except aiohttp.ConnectionTimeoutError as error:
            raise TransientError(f"no connection within {of.connect_s:g} s") from error
        except aiohttp.SocketTimeoutError as error:
            raise TransientError(f"silent for {of.read_s:g} s") from error
        except TimeoutError as error:
            raise TransientError(f"not done within {of.total_s:g} s") from error
        except aiohttp.ClientConnectorCertificateError as error:
            raise PermanentError(f"certificate: {first_line(error.certificate_error)}") from error
        except ValueError as error:  # also InvalidURL, and a host that cannot be encoded
            raise PermanentError("not a URL") from error
        except (aiohttp.ClientError, OSError) as error:
            cause = getattr(error, "os_error", None)
            if isinstance(cause, RefusedAddress):
                raise PermanentError(str(cause)) from error
            raise TransientError(first_line(error)) from error


def failure_of(response: Any) -> Exception:
    """What a status that is not a success means: a TransientError or a PermanentError."""
    status = response.status
    transient = status >= 500 or status in _TRANSIENT_STATUS
    return (TransientError if transient else PermanentError)(f"HTTP {status}")
