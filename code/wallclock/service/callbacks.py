"""Results to the callback URLs of messages, and how a receiver checks who sent them.

A callback may arrive twice, with the same `Idempotency-Key`: its receiver accepts the first.
A signature names the URL that was called, so that no receiver can pass it on to another. Its
version is part of the header: `v1` covered time and body alone, and is neither sent nor accepted.
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
from wallclock.service.addresses import exact
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
            headers[SIGNATURE] = sign(self._secret, str(target), body, int(self._clock()))
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


def signed_url(url: str) -> str:
    """The form of a callback's URL that a signature covers: `scheme://host[:port]/path[?query]`.

    Scheme and host are in lower case, a host's name in its ASCII form (IDNA); the scheme's default
    port is left out; path and query are as in the request line, with `/` for no path. User name,
    password and fragment, which are not sent, are left out. Raises ValueError: not a URL.
    """
    target = exact(url)
    return f"{str(target.origin()).lower()}{target.raw_path_qs}"


def sign(secret: str, url: str, body: bytes, at: int) -> str:
    """The header `Wallclock-Signature` of a body that is sent to a URL at a Unix second."""
    # The URL has no space, so that no two callbacks have the same signed text.
    text = f"{at} {signed_url(url)} ".encode() + body
    return f"t={at},v2={hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()}"


def verify_signature(
    secret: str, header: str, url: str, body: bytes, now: float, tolerance_s: float = 300
) -> bool:
    """Whether who knows the secret has sent this callback to this URL, within the tolerance.

    For receivers. `header`: `Wallclock-Signature`; `body`: as received; `now`: Unix seconds.
    `url`: the receiver's own, as messages name it. Its host comes from the receiver's settings,
    never from the request: who passes on another receiver's callback writes `Host` as well.
    """
    values = dict(part.strip().partition("=")[::2] for part in header.split(","))
    time_text = values.get("t", "")
    if not (time_text.isascii() and time_text.isdigit() and len(time_text) <= 12):
        return False
    expected = sign(secret, url, body, int(time_text))
    given = f"t={int(time_text)},v2={values.get('v2', '')}"
    genuine = hmac.compare_digest(expected.encode(), given.encode())
    return genuine and abs(now - int(time_text)) <= tolerance_s
