"""Images from the URLs of messages, which are not trusted, and neither are the servers."""

from functools import partial

from wallclock.fetch.retries import PermanentError, status_error
from wallclock.service.client import HttpClient
from wallclock.service.settings import DownloadSettings


class Downloader(HttpClient[DownloadSettings]):
    """GETs; see `HttpClient`."""

    stage = "download"

    async def get(self, url: str) -> bytes:
        """The bytes behind a URL, whole. Raises ItemError, in one line why not."""
        return await self._try(partial(self._get, url))

    async def _get(self, url: str) -> bytes:
        most, redirects = self._settings.max_bytes, self._settings.max_redirects
        answer = await self._request(url, max_bytes=most, redirects=redirects)
        if answer.status != 200:
            raise status_error(answer.status, answer.retry_after_s)
        # A small compressed body can be a large one.
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise PermanentError("the body is compressed, though identity was asked for")
        return answer.body
