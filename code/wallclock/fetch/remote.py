"""Images behind http, https and s3: GETs that are tried again for as long as that may help."""

import gzip
import io
import re
import zlib
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from wallclock.errors import ImageError, UserError, first_line
from wallclock.fetch.addresses import is_public
from wallclock.fetch.objects import Objects
from wallclock.fetch.reach import Reach, Tries
from wallclock.fetch.request import Answer, Request
from wallclock.fetch.retries import (
    ForbiddenError,
    PermanentError,
    RefusedError,
    TransientError,
    status_error,
)
from wallclock.fetch.s3 import Client, NoBucketError, connect
from wallclock.fetch.transfers import Transfers
from wallclock.outside import printable
from wallclock.recipe import Limits

#: GETs at a time, and redirects of one.
_AT_ONCE, _REDIRECTS = 64, 5
#: Refusals, before anything else was answered, that mean the credentials and not the images.
_MOST_REFUSED = 16


def host_of(url: str) -> str:
    """The host of a URL, or its bucket."""
    host = re.split("[/?#]", url, maxsplit=3)[2].rpartition("@")[2].lower()
    return host if host.isprintable() else printable(host)


class Servers:
    """What is asked of hosts and buckets, bodies of `max_bytes` at most, and what answers mean."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buckets: dict[str, tuple[Client, Objects]] = {}

    def request(self, url: str) -> Request:
        """The GET of a URL. Raises as `Objects.request`, and UserError: boto3 has no settings."""
        if not url.startswith("s3://"):
            return Request(url, self._max_bytes, redirects=_REDIRECTS)
        bucket, key = self._bucket(url)
        return bucket.request(key, self._max_bytes)

    def body_of(self, url: str, answer: Answer) -> bytes:
        """The body of an answer that is a success. Raises what another one means."""
        if not url.startswith("s3://"):
            if answer.status != 200:
                raise status_error(answer.status, answer.retry_after_s)
            return unpacked(answer.body, self._max_bytes)
        bucket, key = self._bucket(url)
        return bucket.object_of(answer, key)

    def close(self) -> None:
        """Close boto3's clients."""
        for client, _ in self._buckets.values():
            client.close()

    def _bucket(self, url: str) -> tuple[Objects, str]:
        name, _, key = url.removeprefix("s3://").partition("/")
        if name not in self._buckets:
            client = connect(f"s3://{name}")
            self._buckets[name] = client, Objects(client, name)
        return self._buckets[name][1], key


@dataclass(eq=False, slots=True)
class _Get:
    """A URL that is asked for, and who waits for it."""

    url: str
    tries: Tries
    future: Future[bytes] = field(default_factory=Future)


class Remote:
    """The GETs of a reader. Threads may share it.

    `limits`: bytes of an image, and how URLs are asked for. `reach`: when to try again.
    `expects_some`: whether, where all that was asked for is forbidden, the credentials are wrong.
    """

    def __init__(self, limits: Limits, reach: Reach, expects_some: bool = True) -> None:
        self._reach = reach
        self._transfers = self._strangers = Transfers(_AT_ONCE, limits.user_agent)
        if limits.origin is not None:  # what others wrote shares no connection with the rest
            refusal = partial(_refusal, limits.origin)
            self._strangers = Transfers(_AT_ONCE, limits.user_agent, refusal)
        self._servers = Servers(limits.max_bytes)
        #: Not done yet; and of these, those that were forbidden before anything was allowed.
        self._open: set[_Get] = set()
        self._held: dict[_Get, PermanentError] = {}
        self._any_allowed, self._is_stopped = not expects_some, False
        #: One that was reached, if any was.
        self._known = limits.known
        self._witness: _Get | None = None

    def get(self, url: str) -> Future[bytes]:
        """The bytes behind a URL; or ImageError, CancelledError, UserError: refused credentials."""
        get = _Get(url, Tries(host_of(url)))
        self._open.add(get)
        if self._is_stopped:  # its thread may be waiting, and never come to it
            self._end(get, CancelledError())
        else:
            self._transfers.call(partial(self._send, get))
        return get.future

    def stop(self) -> None:
        """Give up what is on its way."""
        self._any_allowed, self._held, self._is_stopped = True, {}, True
        for transfers in (self._strangers, self._transfers):
            transfers.stop()
        for get in [*self._open]:  # the thread may be waiting for credentials
            self._end(get, CancelledError())

    def close(self) -> None:
        """Stop, and close the connections."""
        self.stop()
        for transfers in (self._strangers, self._transfers):
            transfers.close()
        self._servers.close()

    # --- in the thread of the transfers ----------------------------------------------------------

    def _send(self, get: _Get) -> None:
        try:
            if self._transfers.end:
                raise self._transfers.end
            # What is to tell whether its host answers does not wait until the host has rested.
            pause_s = 0.0 if get is self._witness else self._reach.pause_s(get.tries.host)
            if pause_s and not get.tries.n:
                self._transfers.later(pause_s, partial(self._send, get))
                return
            request, receive = self._servers.request(get.url), partial(self._receive, get)
            if self._strangers is self._transfers or get.url.startswith("s3://"):
                self._transfers.submit(request, receive)
            else:
                call = self._transfers.call
                self._strangers.submit(request, lambda result: call(partial(receive, result)))
        except Exception as error:  # noqa: BLE001 - of boto3's sources of credentials, too
            self._fail(get, error)

    def _receive(self, get: _Get, result: Answer | Exception) -> None:
        try:
            if isinstance(result, Exception):
                raise result
            data = self._servers.body_of(get.url, result)
        except Exception as error:  # noqa: BLE001 - sorted there
            self._fail(get, error, is_answer=isinstance(result, Answer))
        else:
            self._known = get.url
            self._answered(get)
            self._end(get, data)

    def _fail(self, get: _Get, error: Exception, is_answer: bool = False) -> None:
        """Try a GET again, or end it, as its failure says."""
        try:
            if isinstance(error, TransientError):
                pause_s = self._reach.failed(get.tries, error)
                self._transfers.later(pause_s, partial(self._send, get))
                if self._known and self._reach.is_doubtful():
                    self._ask_known()
            elif isinstance(error, ForbiddenError | NoBucketError) and not self._any_allowed:
                self._hold(get, error)
            elif isinstance(error, RefusedError):
                self._end(get, UserError(f"{get.tries.host}: {error}"))
            elif isinstance(error, PermanentError):
                if is_answer:
                    self._answered(get)
                self._end(get, ImageError("read", str(error)))
            else:
                self._end(get, error)
        except PermanentError as final:
            self._end(get, ImageError("read", str(final)))
        except Exception as final:  # noqa: BLE001 - or who waits would do so for ever
            self._end(get, final)

    def _answered(self, get: _Get) -> None:
        """From now on, a refusal is one image's."""
        self._reach.answered(get.tries.host)
        self._any_allowed = True
        held, self._held = self._held, {}
        for get, error in held.items():
            self._end(get, ImageError("read", str(error)))

    def _ask_known(self) -> None:
        """Ask for what was reached before: whether it is the world's fault, or theirs."""
        self._witness = _Get(self._known, Tries(host_of(self._known)))
        self._open.add(self._witness)
        self._send(self._witness)

    def _hold(self, get: _Get, error: PermanentError) -> None:
        """Wait until more is known: whether a refusal is this image's, or everything's."""
        self._reach.answered(get.tries.host)
        is_first, self._held[get] = not self._held, error
        if self._known and is_first:
            self._ask_known()
        self._judge()

    def _judge(self) -> None:
        """Refuse what is held, once all that was asked for was refused."""
        is_awaited = self._witness in self._open and self._witness not in self._held
        if not self._held or is_awaited or len(self._held) < min(_MOST_REFUSED, len(self._open)):
            return
        held, self._held = self._held, {}
        for get, error in held.items():
            fix = "check who may read there, and the credentials"
            if isinstance(error, NoBucketError):
                fix = "check its name, AWS_DEFAULT_REGION and AWS_ENDPOINT_URL"
            host = get.tries.host
            self._end(get, UserError(f"{host} refuses all that was asked for: {error}; {fix}"))

    def _end(self, get: _Get, result: bytes | Exception) -> None:
        with suppress(KeyError):  # it was stopped meanwhile
            self._open.remove(get)
            if isinstance(result, bytes):
                get.future.set_result(result)
            else:
                get.future.set_exception(result)
        self._judge()


def unpacked(data: bytes, most: int) -> bytes:
    """A body without gzip, in which some servers send it unasked. Raises PermanentError."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise PermanentError(f"gzip: {first_line(error)}") from error
    if len(data) > most:
        raise PermanentError(f"more bytes than the limit of {most:,}")
    return data


def _refusal(origin: str, address: str) -> str:
    """Why a URL of a list from elsewhere may not reach an address; empty: it may."""
    if address == origin or is_public(address):
        return ""
    return "its address is not public, and the list comes from elsewhere: save the list here"
