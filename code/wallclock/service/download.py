"""Images from the URLs of messages, which are not trusted, and neither are the servers."""

from functools import partial
from typing import Any

from wallclock.fetch.retries import PermanentError, status_error
from wallclock.service.client import HttpClient
from wallclock.service.settings import DownloadSettings

_DEFAULT_SETTINGS = DownloadSettings()


class Downloader(HttpClient):
    """GETs; see `HttpClient`."""

    stage = "download"

    def __init__(self, settings: DownloadSettings = _DEFAULT_SETTINGS, **options: Any) -> None:
        super().__init__(settings, **options)
        self._bounds = {"max_bytes": settings.max_bytes, "redirects": settings.max_redirects}

    async def get(self, url: str) -> bytes:
        """The bytes behind a URL, whole. Raises ItemError, in one line why not."""
        return await self._try(partial(self._get, url))

    async def _get(self, url: str) -> bytes:
        answer = await self._request(url, **self._bounds)
        if answer.status != 200:
            raise status_error(answer.status, answer.retry_after_s)
        # A small compressed body can be a large one.
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise PermanentError("the body is compressed, though identity was asked for")
        return answer.body
