"""One request over HTTP: its bounds, and what comes of it."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple, TypeAlias

import pycurl

from wallclock.fetch.retries import (
    CertificateError,
    NoSuchHostError,
    PermanentError,
    RequestError,
    TransientError,
    seconds_of,
)
from wallclock.fetch.urls import onward

#: A body that comes more slowly than so many bytes a second, for `silent_s`, is given up.
_LEAST_SPEED = 1000
#: Seconds for a rest of a body on which nothing depends.
_DRAIN_S = 1.0
_STATUS = re.compile(r"HTTP/\S+ +(\d+)")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_USED_PROXY = getattr(pycurl, "USED_PROXY", None)  # which the oldest pycurl does not have
_LOST = {
    pycurl.E_COULDNT_CONNECT: "no connection: refused, or no route",
    pycurl.E_GOT_NOTHING: "closed without an answer",
    pycurl.E_PARTIAL_FILE: "cut off before the end of the body",
    pycurl.E_RECV_ERROR: "the connection was lost",
    pycurl.E_SEND_ERROR: "the connection was lost",
}
#: An error beside libcurl's: it took too long.
LATE = -1


class Request(NamedTuple):
    """A GET; with a `body` a POST, whose answer is a status, whatever the answer's body does.

    `headers`: lines. `redirects`: how many are followed; None: they are answers. `check`: raises
    PermanentError for a URL that may not be requested; also asked for the target of each redirect.
    `take`: gets status, headers and a piece of the body, in the thread, and may wait; False: it is
    none of its. `total_s`: 0 for no bound.
    """

    url: str
    max_bytes: int
    headers: tuple[str, ...] = ()
    body: bytes | None = None
    redirects: int | None = None
    check: Callable[[str], object] | None = None
    take: Callable[[int, Mapping[str, str], bytes], bool] | None = None
    connect_s: float = 5.0
    silent_s: float = 10.0
    total_s: float = 120.0  # redirects included


class Answer(NamedTuple):
    """A whole answer, headers by small letters, and the address it came from; empty: a proxy's."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    address: str = ""

    @property
    def retry_after_s(self) -> float:
        """Seconds after which the server wants to be asked again; 0 where it does not say."""
        return seconds_of(self.headers.get("retry-after", "0"))


Done: TypeAlias = Callable[[Answer | Exception], object]


@dataclass(slots=True)
class Transfer:
    """A request on its way, and what takes its result."""

    request: Request
    done: Done
    ends_at: float = inf
    #: What libcurl appends to: no code of ours runs for a header, or a piece of a body.
    lines: list[bytes] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    #: When it was last fast enough, and how many bytes there were then.
    fast_at: float = 0
    n_then: float = 0
    drained_at: float = inf
    #: Why an address of the host was refused; whether another one was not.
    refusal: str = ""
    may_connect: bool = False

    def receive(self, data: bytes) -> int | None:
        """Take a piece of the body, where libcurl must not keep it."""
        began = time.monotonic()
        if not (self.request.take and self.request.take(*_head_of(self.lines), data)):
            self.chunks.append(data)
        self.fast_at += time.monotonic() - began  # it was not slow, but had to wait
        return -1 if self._is_too_long() else None

    def why_late(self, n_bytes: float, now: float) -> str:
        """Why it is not waited for any longer; empty: it is. `n_bytes`: of the body so far."""
        request = self.request
        if n_bytes - self.n_then >= _LEAST_SPEED * request.silent_s:
            self.n_then, self.fast_at = n_bytes, now
        if now - self.fast_at > request.silent_s:
            speed = f"slower than {_LEAST_SPEED} bytes a second"
            return f"silent, or {speed}, for {request.silent_s:g} s"
        if self.drained_at == inf and self._stands(_head_of(self.lines)[0]):
            self.drained_at = now + _DRAIN_S
        late = now >= min(self.ends_at, self.drained_at)
        return f"not done within {request.total_s:g} s" if late else ""

    def result(self, curl: Any, code: int, text: str) -> Answer | Exception | Request:
        """What it comes to, with an error of libcurl's or 0; a Request: that of a redirect."""
        request, (status, headers) = self.request, _head_of(self.lines)
        if code and not self._stands(status):
            is_too_long = code == pycurl.E_FILESIZE_EXCEEDED or self._is_too_long()
            if not (is_too_long and request.take):  # else it is none of its
                return self._failure(code, text, is_too_long)
        if not status:  # libcurl takes it for an answer without a body
            return TransientError("cut off before the end of the headers")
        if status not in _REDIRECTS or request.redirects is None:
            is_direct = not (_USED_PROXY and curl.getinfo(_USED_PROXY))
            address = curl.getinfo(pycurl.PRIMARY_IP) if is_direct else ""
            return Answer(status, headers, b"".join(self.chunks), request.url, address)
        if not (location := headers.get("location")):
            return PermanentError("a redirect without a location")
        if not request.redirects:
            return PermanentError("too many redirects")
        try:
            url = onward(request.url, location)
        except ValueError:
            return PermanentError("a redirect to what is not a URL")
        return request._replace(url=url, redirects=request.redirects - 1)

    def _stands(self, status: int) -> bool:
        """Whether the status is the answer, whatever becomes of the body."""
        return status >= 300 or (status > 0 and self.request.body is not None)

    def _is_too_long(self) -> bool:
        return sum(map(len, self.chunks)) > self.request.max_bytes

    def _failure(self, code: int, text: str, is_too_long: bool) -> RequestError:
        if self.refusal and not self.may_connect:
            return PermanentError(self.refusal)
        if is_too_long:
            return PermanentError(f"more bytes than the limit of {self.request.max_bytes:,}")
        if code == pycurl.E_OPERATION_TIMEDOUT:
            return TransientError(f"no connection within {self.request.connect_s:g} s")
        return failure_of(code, text)


def _head_of(lines: Sequence[bytes]) -> tuple[int, dict[str, str]]:
    """Status and headers of the last answer, of which others are provisional; 0: it is cut off."""
    first = len(lines) - 1
    while first > 0 and not lines[first].startswith(b"HTTP/"):
        first -= 1
    head, headers = lines[max(first, 0) :], {}
    if b"\r\n" not in head and b"\n" not in head:
        return 0, {}
    # Latin-1 takes any byte; `onward` makes UTF-8 of it again.
    status, *rest = b"".join(head).decode("latin-1").split("\n")
    for line in rest:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.lower()] = value.strip()
    match = _STATUS.match(status)
    return int(match[1]) if match and int(match[1]) >= 200 else 0, headers


def failure_of(code: int, text: str) -> RequestError:
    """What an error of libcurl's with this code and text means."""
    # It has one code for a URL's protocol, and for an answer that is no HTTP.
    is_scheme = code == pycurl.E_UNSUPPORTED_PROTOCOL and text.startswith("Protocol ")
    if is_scheme or code == pycurl.E_URL_MALFORMAT:
        return PermanentError("not a URL")
    if code == pycurl.E_COULDNT_RESOLVE_HOST:
        return NoSuchHostError("the host's name cannot be looked up")
    if code == pycurl.E_PEER_FAILED_VERIFICATION:
        return CertificateError(f"certificate: {text.partition(': ')[2] or text}")
    return TransientError(_LOST.get(code, text or f"libcurl's error {code}"))
