"""One pool of connections to hosts that messages name: time-outs, retries, how failures are told.

What is the same for downloads and callbacks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

from wallclock.fetch.request import Answer, Request
from wallclock.fetch.retries import CertificateError, PermanentError, RequestError, pause_s
from wallclock.fetch.transfers import Transfers
from wallclock.service.addresses import check, refusal
from wallclock.service.module import ItemError
from wallclock.service.settings import ClientSettings

T = TypeVar("T")
S = TypeVar("S", bound=ClientSettings)


class HttpClient(Generic[S]):
    """An async context manager around the pool; it may be shared by any number of tasks.

    Args:
        connections: requests at a time.
        pause: between two tries, in seconds; a true result: try no more.
    """

    stage: ClassVar[str]

    def __init__(
        self,
        settings: S,
        *,
        connections: int = 32,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._check = partial(check, ports=settings.allowed_ports())
        self._connections, self._pause = connections, pause

    async def __aenter__(self) -> Self:
        # Where addresses are judged, even so, no proxy is asked: it would connect to any.
        judge = _permit if self._settings.allow_private else refusal
        loop = asyncio.get_running_loop()
        self._transfers = Transfers(self._connections, "wallclock", judge, loop)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transfers.close()

    async def _try(self, call: Callable[[], Awaitable[T]]) -> T:
        """The call's result, after as many tries as there may be. Raises ItemError."""
        attempt = 0
        while True:
            try:
                return await call()
            except ValueError as error:
                raise ItemError(self.stage, "not a URL", permanent=True) from error
            except RequestError as error:
                attempt += 1
                is_final = isinstance(error, PermanentError)
                is_last = is_final or attempt >= self._settings.attempts
                if is_last or await self._pause(pause_s(attempt - 1, error)):
                    raise ItemError(self.stage, str(error), is_final) from error

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


def _permit(address: str) -> str:
    return ""
