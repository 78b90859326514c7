"""Images from the URLs of messages, which are not trusted, and neither are the servers."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import aiohttp
from yarl import URL

from wallclock.constraints import Range
from wallclock.fetch.retries import PermanentError
from wallclock.service.client import Client, ClientSettings, failure_of

_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True)
class DownloadSettings(ClientSettings):
    """Downloads. `max_bytes`: of an image; `max_redirects`: to it, each checked as the URL is."""

    max_bytes: Annotated[int, Range(1, 1 << 31)] = 50_000_000
    max_redirects: Annotated[int, Range(0, 20)] = 3


class Downloader(Client):
    """GETs; see `Client`."""

    stage = "download"

    def __init__(self, settings: DownloadSettings = DownloadSettings(), **options: Any) -> None:
        super().__init__(settings, **options)
        self._settings = settings

    async def get(self, url: str) -> bytes:
        """The bytes behind a URL, whole. Raises ItemError, in one line why not."""
        return await self._tried(partial(self._get, url))

    async def _get(self, url: str | URL) -> bytes:
        for _ in range(self._settings.max_redirects + 1):
            target = self._checked(url)
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
        parts, length = [], response.content_length or 0
        if length <= limit:
            length = 0
            # aiohttp raises ClientPayloadError where the body ends before the length it declared.
            async for part in response.content.iter_any():
                parts.append(part)
                length += len(part)
                if length > limit:
                    break
        if length > limit:
            # The rest is not read; the connection is closed.
            raise PermanentError(f"more bytes than the limit of {limit:,}")
        return b"".join(parts)


def _onward(from_url: URL, location: str) -> URL:
    if not location:
        raise PermanentError("a redirect without a location")
    try:
        return from_url.join(URL(location))
    except ValueError as error:
        raise PermanentError("a redirect to what is not a URL") from error
