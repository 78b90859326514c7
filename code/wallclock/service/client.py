"""One pool of connections to hosts that messages name: time-outs, retries, how failures are told.

What is the same for downloads and callbacks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

from wallclock.fetch.retries import CertificateError, PermanentError, RequestError, retry_async
from wallclock.fetch.transfers import Answer, Request, Transfers
from wallclock.service.addresses import check, refusal
from wallclock.service.module import ItemError
from wallclock.service.settings import ClientSettings

T = TypeVar("T")
Pause = Callable[[float], Awaitable[object]]


class HttpClient:
    """An async context manager around the pool; it may be shared by any number of tasks.

    Args:
        connections: requests at a time.
        pause: between two tries, in seconds; a true result: try no more.
        resolve: addresses of a host's name, instead of the system's.
    """

    stage: ClassVar[str]

    def __init__(
        self,
        settings: ClientSettings,
        *,
        connections: int = 32,
        pause: Pause = asyncio.sleep,
        resolve: Callable[[str], list[str]] | None = None,
    ) -> None:
        self._limits = settings
        self._check = partial(check, ports=settings.allowed_ports())
        self._connections, self._pause, self._resolve = connections, pause, resolve

    async def __aenter__(self) -> Self:
        # Where addresses are judged, even so, no proxy is asked: it would connect to any.
        judge = _permit if self._limits.allow_private else refusal
        self._transfers = Transfers(self._connections, "wallclock", judge, self._resolve)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transfers.close()

    async def _try(self, call: Callable[[], Awaitable[T]]) -> T:
        """The call's result, after as many tries as there may be. Raises ItemError."""
        try:
            return await retry_async(call, self._limits.attempts, self._pause)
        except ValueError as error:
            raise ItemError(self.stage, "not a URL", permanent=True) from error
        except RequestError as error:
            raise ItemError(self.stage, str(error), isinstance(error, PermanentError)) from error

    async def _request(self, url: str, *headers: str, **options: Any) -> Answer:
        limits, loop = self._limits, asyncio.get_running_loop()
        request = Request(
            url,
            headers=("Accept-Encoding: identity", *headers),
            check=self._check,
            connect_s=limits.connect_s,
            silent_s=limits.read_s,
            total_s=limits.total_s,
            **options,
        )
        answer: asyncio.Future[Answer | Exception] = loop.create_future()

        def settle(result: Answer | Exception) -> None:
            if not answer.done():  # else nobody waits any more
                answer.set_result(result)

        self._transfers.submit(request, lambda got: loop.call_soon_threadsafe(settle, got))
        result = await answer
        if isinstance(result, CertificateError):
            raise PermanentError(str(result))
        if isinstance(result, Exception):
            raise result
        return result


def _permit(address: str) -> str:
    return ""
