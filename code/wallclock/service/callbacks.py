"""Results to the callback URLs of messages, and how a receiver checks who sent them.

A callback may arrive twice, with the same `Idempotency-Key`: its receiver accepts the first.
"""

import asyncio
import hashlib
import hmac
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import aiohttp

from wallclock.fetch.retries import TransientError
from wallclock.service.client import HttpClient, failure_of
from wallclock.service.settings import CallbackSettings

#: The environment variable with the secret; no setting, so that no file or log has it.
SECRET = "WALLCLOCK_CALLBACK_SECRET"
SIGNATURE = "Wallclock-Signature"
_DEFAULT_SETTINGS = CallbackSettings()
#: Of an answer's body, which nothing depends on: bytes and seconds that are spent on it.
_DRAINED_BYTES, _DRAIN_S = 1 << 16, 1.0


class CallbackSender(HttpClient):
    """POSTs; see `HttpClient`. `clock`: Unix seconds, of signatures.

    Callbacks are signed if the environment variable `WALLCLOCK_CALLBACK_SECRET` is set.
    """

    stage = "callback"

    def __init__(
        self,
        settings: CallbackSettings = _DEFAULT_SETTINGS,
        *,
        clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        super().__init__(settings, **options)
        self._clock = clock
        self._secret = os.environ.get(SECRET, "")

    async def send(self, url: str, key: str, body: bytes) -> None:
        """POST JSON until it is accepted (2xx). Raises ItemError, in one line why it was not."""
        await self._try(partial(self._post, url, key, body))

    async def _post(self, url: str, key: str, body: bytes) -> None:
        target = self._check_url(url)
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self._secret:
            headers[SIGNATURE] = sign(self._secret, body, int(self._clock()))
        send = self._session.post(target, data=body, headers=headers, allow_redirects=False)
        async with send as response:
            if 300 <= response.status < 400:
                raise TransientError(f"HTTP {response.status}: redirects are not followed")
            if response.status >= 300:
                raise failure_of(response)
            if not response.content.at_eof():
                await _drain(response.content)


async def _drain(content: aiohttp.StreamReader) -> None:
    """Read a short body, so that the connection can be used again; the callback is accepted."""
    left = _DRAINED_BYTES
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while left > 0 and (part := await content.readany()):
                left -= len(part)


def sign(secret: str, body: bytes, at: int) -> str:
    """The header `Wallclock-Signature` of a body that is sent at a Unix second."""
    signed = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256)
    return f"t={at},v1={signed.hexdigest()}"


def verify_signature(
    secret: str, header: str, body: bytes, now: float, tolerance_s: float = 300
) -> bool:
    """Whether a callback is from who knows the secret, and not older or newer than the tolerance.

    For receivers. `header`: `Wallclock-Signature`; `body`: as received; `now`: Unix seconds.
    """
    values = dict(part.strip().partition("=")[::2] for part in header.split(","))
    time_text = values.get("t", "")
    if not (time_text.isascii() and time_text.isdigit() and len(time_text) <= 12):
        return False
    expected = sign(secret, body, int(time_text))
    given = f"t={int(time_text)},v1={values.get('v1', '')}"
    genuine = hmac.compare_digest(expected.encode(), given.encode())
    return genuine and abs(now - int(time_text)) <= tolerance_s
