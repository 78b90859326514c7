"""Results to the callback URLs of messages, and how a receiver checks who sent them.

A signature names the URL that was called, so that no receiver can pass it on to another. Its
version is part of the header: `v1` covered time and body alone, and is neither sent nor accepted.
"""

import hashlib
import hmac
import os
import re
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from wallclock.fetch.retries import PermanentError, TransientError, status_error
from wallclock.fetch.urls import sendable
from wallclock.outside import printable
from wallclock.service.client import PORTS, HttpClient
from wallclock.service.settings import ServiceSettings

#: The environment variable with the secret; no setting, so that no file or log has it.
SECRET = "WALLCLOCK_CALLBACK_SECRET"
SIGNATURE = "Wallclock-Signature"
#: Of an answer's body, which nothing depends on: a longer one closes the connection.
_DRAINED_BYTES = 1 << 16
_ORIGIN = re.compile(r"https?://[^/?#@\\\s]+", re.IGNORECASE)
#: Visible ASCII without what would end the origin before it, or the path within it.
_TARGET = re.compile(r"/(?!/)[!\"$-\[\]-~]*")


class CallbackSender(HttpClient):
    """POSTs, signed if `WALLCLOCK_CALLBACK_SECRET` is set. `clock`: Unix seconds, of signatures."""

    def __init__(self, settings: ServiceSettings, clock: Callable[[], float] = time.time) -> None:
        allow_private = settings.allow_private or settings.private_callbacks
        super().__init__(settings, settings.callbacks, allow_private)
        self._clock = clock
        self._secret = os.environ.get(SECRET, "")

    async def send(self, url: str, key: str, body: bytes) -> None:
        """POST JSON once. Raises RequestError, in one line why it was not accepted (2xx)."""
        # "Expect:" asks for no provisional answer, for which long bodies would wait.
        headers = ["Content-Type: application/json", f"Idempotency-Key: {key}", "Expect:"]
        if self._secret:
            try:
                signature = sign(self._secret, url, body, int(self._clock()))
            except ValueError as error:
                raise PermanentError("not a URL") from error
            headers.append(f"{SIGNATURE}: {signature}")
        answer = await self._request(url, *headers, body=body, max_bytes=_DRAINED_BYTES)
        if 300 <= answer.status < 400:
            raise TransientError(f"HTTP {answer.status}: redirects are not followed")
        if answer.status >= 300:
            raise status_error(answer.status, answer.retry_after_s)


def signed_url(url: str) -> str:
    """The form of a callback's URL that a signature covers: `scheme://host[:port]/path[?query]`.

    Scheme and host are in lower case, a host's name in its ASCII form (IDNA); without the scheme's
    default port, user name, password and fragment. Raises ValueError: not a URL.
    """
    parts = urlsplit(sendable(url))
    if not parts.hostname:
        raise ValueError("no host")
    host = f"[{parts.hostname}]" if "[" in parts.netloc else parts.hostname
    port = "" if parts.port in (None, PORTS.get(parts.scheme)) else f":{parts.port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{host}{port}{parts.path or '/'}{query}"


def sign(secret: str, url: str, body: bytes, at: int) -> str:
    """The header `Wallclock-Signature` of a body that is sent to a URL at a Unix second."""
    # The URL has no space, so that no two callbacks have the same signed text.
    text = f"{at} {signed_url(url)} ".encode() + body
    return f"t={at},v2={hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()}"


def verify_signature(
    secret: str,
    header: str,
    origin: str,
    target: str,
    body: bytes,
    now: float,
    tolerance_s: float = 300,
) -> bool:
    """Whether who knows the secret has sent this callback to this receiver, within the tolerance.

    `header`: `Wallclock-Signature`; `target`: path and query of the request's first line; `body`:
    as received; `now`: Unix seconds. `origin`: the receiver's own `scheme://host[:port]`, from its
    settings and never from the request, whose `Host` any client may write: raises ValueError where
    it is something else.
    """
    if not _ORIGIN.fullmatch(origin):
        raise ValueError(f"origin={printable(origin)}: give scheme://host[:port], no more")
    if not (header.isascii() and _TARGET.fullmatch(target)):
        return False
    values = dict(part.strip().partition("=")[::2] for part in header.split(","))
    time_text = values.get("t", "")
    if not (time_text.isascii() and time_text.isdigit() and len(time_text) <= 12):
        return False
    expected = sign(secret, origin + target, body, int(time_text))
    given = f"t={int(time_text)},v2={values.get('v2', '')}"
    genuine = hmac.compare_digest(expected.encode(), given.encode())
    return genuine and abs(now - int(time_text)) <= tolerance_s
