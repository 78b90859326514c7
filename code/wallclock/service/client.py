"""One pool of connections to hosts that messages name: time-outs, retries, how failures are told.

What is the same for downloads and callbacks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from wallclock.errors import first_line
from wallclock.fetch.retries import PermanentError, TransientError, is_transient, retry_async
from wallclock.service.addresses import RefusedAddress, checked, open_socket
from wallclock.service.module import ItemError
from wallclock.service.settings import ClientSettings

T = TypeVar("T")
Pause = Callable[[float], Awaitable[object]]

#: Read at a time: of a large body, so that the event loop is woken less often.
_BUFFER_BYTES = 1 << 18


class HttpClient:
    """An async context manager around the pool; it may be shared by any number of tasks.

    Args:
        pause: between two tries, in seconds; a true result: try no more.
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
        self._limits = settings
        self._ports = settings.allowed_ports()
        self._pause = pause
        self._resolver = resolver

    async def __aenter__(self) -> Self:
        limits = self._limits
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # as many as there are tasks
                resolver=self._resolver,
                socket_factory=None if limits.allow_private else open_socket,
            ),
            # The whole try is bounded by `_try_once`, redirects included.
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=limits.connect_s, sock_read=limits.read_s
            ),
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

    def _check_url(self, url: str) -> URL:
        return checked(url, self._ports)

    async def _try(self, call: Callable[[], Awaitable[T]]) -> T:
        """The call's result, after as many tries as there may be. Raises ItemError."""
        attempt = partial(self._try_once, call)
        try:
            return await retry_async(attempt, self._limits.attempts, self._pause)
        except (PermanentError, TransientError) as error:
            raise ItemError(self.stage, str(error), isinstance(error, PermanentError)) from error

    async def _try_once(self, call: Callable[[], Awaitable[T]]) -> T:
        limits = self._limits
        try:
            async with asyncio.timeout(limits.total_s):
                return await call()
        except aiohttp.ConnectionTimeoutError as error:
            raise TransientError(f"no connection within {limits.connect_s:g} s") from error
        except aiohttp.SocketTimeoutError as error:
            raise TransientError(f"silent for {limits.read_s:g} s") from error
        except TimeoutError as error:
            raise TransientError(f"not done within {limits.total_s:g} s") from error
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
    kind = TransientError if is_transient(response.status) else PermanentError
    return kind(f"HTTP {response.status}")
