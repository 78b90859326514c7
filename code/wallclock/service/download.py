"""Images from the URLs of messages, which are not trusted, and neither are the servers."""

from functools import partial
from typing import Any

import aiohttp
from yarl import URL

from wallclock.fetch.retries import PermanentError
from wallclock.service.client import HttpClient, failure_of
from wallclock.service.settings import DownloadSettings

_DEFAULT_SETTINGS = DownloadSettings()
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Downloader(HttpClient):
    """GETs; see `HttpClient`."""

    stage = "download"

    def __init__(self, settings: DownloadSettings = _DEFAULT_SETTINGS, **options: Any) -> None:
        super().__init__(settings, **options)
        self._settings = settings

    async def get(self, url: str) -> bytes:
        """The bytes behind a URL, whole. Raises ItemError, in one line why not."""
        return await self._try(partial(self._get, url))

    async def _get(self, url: str) -> bytes:
        for _ in range(self._settings.max_redirects + 1):
            target = self._check_url(url)
            async with self._session.get(target, allow_redirects=False) as response:
                if response.status == 200:
                    return await self._body(response)
                if response.status not in _REDIRECTS:
                    raise failure_of(response)
                url = _onward(target, response.headers.get("Location", ""))
        raise PermanentError(f"more than {self._settings.max_redirects} redirects")

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise PermanentError("the body is compressed, though identity was asked for")
        limit = self._settings.max_bytes
        # What is not read closes the connection.
        too_large = PermanentError(f"more bytes than the limit of {limit:,}")
        if (response.content_length or 0) > limit:
            raise too_large
        parts = []
        length = 0
        # aiohttp raises ClientPayloadError where the body ends before the length it declared.
        async for part in response.content.iter_any():
            parts.append(part)
            length += len(part)
            if length > limit:
                raise too_large
        return b"".join(parts)


def _onward(from_url: URL, location: str) -> str:
    if not location:
        raise PermanentError("a redirect without a location")
    try:
        return str(from_url.join(URL(location, encoded=True)))
    except ValueError as error:
        raise PermanentError("a redirect to what is not a URL") from error
