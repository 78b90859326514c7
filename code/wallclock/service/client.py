"""Requests to URLs that messages name: which are refused, time-outs; downloads, and their retries.

A URL is judged by its text, its host's address before each connection is made: after every
redirect, and after the last look-up of the name, which may answer differently each time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self
from urllib.parse import urlsplit

from wallclock.fetch.addresses import is_public
from wallclock.fetch.request import Answer, Request
from wallclock.fetch.retries import (
    CertificateError,
    PermanentError,
    RequestError,
    pause_s,
    status_error,
)
from wallclock.fetch.transfers import Transfers
from wallclock.service.interface import ItemError
from wallclock.service.settings import ServiceSettings

#: Those of the schemes that are requested.
PORTS = {"http": 80, "https": 443}
#: Without the address: who wrote the message learns nothing about the network.
_NOT_PUBLIC = "the host's address is not public (allow_private=true allows it)"


class HttpClient:
    """A pool of connections, as an async context manager; any number of tasks may share it.

    `allow_private`: whether any address and port may be requested.
    """

    def __init__(self, settings: ServiceSettings, connections: int, allow_private: bool) -> None:
        self._settings, self._connections = settings, connections
        self._ports = frozenset[int]() if allow_private else settings.allowed_ports()
        # Where any address may be requested, even so, no proxy is asked.
        self._judge = lambda address: "" if allow_private or is_public(address) else _NOT_PUBLIC

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transfers = Transfers(self._connections, "wallclock", self._judge, loop)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transfers.close()

    def _check(self, url: str) -> None:
        """Raise PermanentError, which does not repeat the URL: it may have a password."""
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
        if parts.hostname.startswith("-"):  # resolvers refuse it: a retry would not help
            raise PermanentError("the URL's host begins with a hyphen")
        if "@" in parts.netloc:
            raise PermanentError("the URL has a user name or a password")
        if self._ports and port not in self._ports:
            raise PermanentError(f"port {port} is not among the setting ports")

    async def _request(self, url: str, *headers: str, **options: Any) -> Answer:
        settings = self._settings
        request = Request(
            url,
            headers=("Accept-Encoding: identity", *headers),
            check=self._check,
            connect_s=settings.connect_s,
            silent_s=settings.read_s,
            total_s=settings.total_s,
            **options,
        )
        answer = asyncio.get_running_loop().create_future()

        def settle(result: Answer | Exception) -> None:
            if not answer.done():  # else nobody waits any more
                answer.set_result(result)

        self._transfers.submit(request, settle)
        result: Answer | Exception = await answer
        if isinstance(result, CertificateError):
            raise PermanentError(str(result))
        if isinstance(result, Exception):
            raise result
        return result


class Downloader(HttpClient):
    """GETs of images from the URLs of messages. `pause`: waits between two tries, in seconds."""

    def __init__(
        self, settings: ServiceSettings, pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        super().__init__(settings, settings.downloads, settings.allow_private)
        self._pause = pause

    async def get(self, url: str) -> bytes:
        """The bytes behind a URL, whole. Raises ItemError, in one line why not."""
        attempt = 0
        while True:
            try:
                return await self._get(url)
            except RequestError as error:
                attempt += 1
                is_final = isinstance(error, PermanentError)
                if is_final or attempt >= self._settings.attempts:
                    raise ItemError("download", str(error), is_final) from error
                seconds = pause_s(attempt - 1, error)
            await self._pause(seconds)

    async def _get(self, url: str) -> bytes:
        most, redirects = self._settings.max_bytes, self._settings.max_redirects
        answer = await self._request(url, max_bytes=most, redirects=redirects)
        if answer.status != 200:
            raise status_error(answer.status, answer.retry_after_s)
        # A small compressed body can be a large one.
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise PermanentError("the body is compressed, though identity was asked for")
        return answer.body
