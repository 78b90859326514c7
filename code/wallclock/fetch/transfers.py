"""HTTP transfers, many at a time, in one thread around libcurl's multi interface.

Nothing is tried twice here, and nothing is read without bounds: of bytes, of time, of slowness.
`Reach` says what is to be tried again.
"""

import heapq
import os
import re
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import ceil, inf
from typing import Any, NamedTuple, TypeAlias, TypeVar

import certifi
import pycurl

from wallclock.fetch.curl_errors import failure_of
from wallclock.fetch.retries import PermanentError, TransientError, seconds_of
from wallclock.fetch.urls import onward, sendable

#: A body that comes more slowly than so many bytes a second, for `silent_s`, is given up.
_LEAST_SPEED = 1000
_CHECK_S, _TOO_SLOW = 0.25, -1
_BUFFER_BYTES = 1 << 18
#: Seconds for the thread to end; for a rest of a body on which nothing depends; no bound at all.
_CLOSING_S, _DRAIN_S, _NO_BOUND_S = 1.0, 1.0, 1e6
_STATUS = re.compile(rb"HTTP/\S+ +(\d+)")
_USED_PROXY = getattr(pycurl, "USED_PROXY", None)  # which the oldest pycurl does not have
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Request:
    """A GET; with a `body` a POST, whose answer is a status, whatever the answer's body does.

    `headers`: lines. `redirects`: how many are followed; None: they are answers. `check`: raises
    PermanentError for a URL that may not be requested; also asked for the target of each redirect.
    `take`: gets status, headers and a piece of the body, in the thread, without bounds; False: not
    now (`Transfers.resume`); None: it is none of its. `total_s`: 0 for no bound.
    """

    url: str
    max_bytes: int
    headers: tuple[str, ...] = ()
    body: bytes | None = None
    redirects: int | None = None
    check: Callable[[str], object] | None = None
    take: Callable[[int, Mapping[str, str], bytes], bool | None] | None = None
    connect_s: float = 5.0
    silent_s: float = 10.0
    total_s: float = 120.0  # redirects included


class Answer(NamedTuple):
    """The answer to a request, whole, and the address that it came from; empty: by a proxy.

    `headers`: by their names in lower case.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    address: str = ""

    @property
    def retry_after_s(self) -> float:
        """Seconds after which the server wants to be asked again; 0 where it does not say."""
        return seconds_of(self.headers.get("retry-after", "0"))


_T = TypeVar("_T")
Done: TypeAlias = Callable[[Answer | Exception], object]


@dataclass(slots=True)
class _Transfer:
    """A request on its way."""

    request: Request
    done: Done
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    length: int = 0
    #: Bytes that came since it was last fast enough.
    recent: int = 0
    fast_at: float = inf
    ends_at: float = 0
    drained_at: float = inf
    #: Why an address of the host was refused; whether another one was not.
    refusal: str = ""
    may_connect: bool = False
    has_head: bool = False
    status: int = 0

    @property
    def stands(self) -> bool:
        """Whether the status is the answer, whatever becomes of the body."""
        return self.has_head and (self.status >= 300 or self.request.body is not None)

    def receive_header(self, line: bytes) -> None:
        name, colon, value = line.partition(b":")
        if line.startswith(b"HTTP/"):  # perhaps another answer, behind one that was provisional
            self.headers.clear()
            self.status = int(match[1]) if (match := _STATUS.match(line)) else 0
        elif colon:
            # Latin-1 takes any byte; `onward` makes UTF-8 of it again.
            self.headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
        elif line in (b"\r\n", b"\n") and self.status >= 200:
            self.has_head = True
            if self.stands:
                self.drained_at = time.monotonic() + _DRAIN_S

    def is_slow(self, now: float) -> bool:
        if self.recent >= _LEAST_SPEED * self.request.silent_s:
            self.recent, self.fast_at = 0, now
        return now - self.fast_at > self.request.silent_s or now > self.drained_at

    def receive(self, data: bytes) -> int:
        self.recent += len(data)
        taken = self.request.take and self.request.take(self.status, self.headers, data)
        if taken:
            return len(data)
        if taken is False:
            self.recent, self.fast_at = 0, inf  # it is not slow, but has to wait
            return int(pycurl.WRITEFUNC_PAUSE)
        self.length += len(data)
        if self.length > self.request.max_bytes:
            return -1
        self.chunks.append(data)
        return len(data)


class Transfers:
    """The thread and its connections, which it shares with no other one.

    Args:
        connections: transfers at a time; others wait.
        user_agent: that hosts are told.
        refusal: why an address may not be connected to, empty if it may; asked before each
            connection is made. None: any may, and the proxies of the environment are used.
    """

    def __init__(
        self, connections: int, user_agent: str, refusal: Callable[[str], str] | None = None
    ) -> None:
        self._connections, self._user_agent, self._refusal = connections, user_agent, refusal
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections)
        self._timer: float | None = None
        self._check_at = 0.0
        self._active: dict[Any, _Transfer] = {}
        self._waiting: deque[_Transfer] = deque()
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        #: What other threads have asked for.
        self._calls: deque[Callable[[], object]] = deque()
        self._selector = selectors.DefaultSelector()
        self._awake, self._wake = socket.socketpair()
        self._awake.setblocking(False)
        self._wake.setblocking(False)
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._sleeps = self._is_closed = False
        #: Why nothing is sent any more, which is then the end of each request.
        self.end: Exception | None = None
        self._certificates = _certificates()
        self._thread = threading.Thread(target=self._run, name="transfers", daemon=True)
        self._thread.start()

    def submit(self, request: Request, done: Done) -> None:
        """Send a request; `done` gets the answer, or why there is none, in the thread."""
        self.call(lambda: self._waiting.append(_Transfer(request, done)))

    def ask(self, request: Request) -> Answer:
        """The answer, waited for. Raises what `done` would get."""
        future: Future[Answer | Exception] = Future()
        self.submit(request, future.set_result)
        result = future.result()
        if isinstance(result, Exception):
            raise result
        return result

    def resume(self) -> None:
        """Go on with the requests whose `take` has returned False."""
        self.call(self._resume)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call something in the thread after so many seconds; at once, where it is closed."""
        at = time.monotonic() + seconds, next(self._numbers), call
        self.call(lambda: heapq.heappush(self._later, at))

    def call(self, call: Callable[[], object]) -> None:
        """Call something in the thread, soon."""
        self._calls.append(call)
        if self.end:
            self._end_rest(self.end)
        elif self._sleeps:
            self._sleeps = False
            with suppress(OSError):  # full: it will wake
                self._wake.send(b"\0")

    def stop(self) -> None:
        """Give up what is on its way, and what comes: each gets a CancelledError."""
        self._is_closed = self._sleeps = True
        self.call(lambda: None)

    def close(self) -> None:
        """Stop, and wait for the thread, but not for a name that is being looked up."""
        self.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSING_S)

    # --- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        end: Exception = CancelledError("it was closed")
        try:
            while not self._is_closed:
                self._turn()
        except BaseException as error:  # noqa: BLE001 - or all would wait for ever
            end = RuntimeError(f"the thread of the transfers has failed: {error!r}")
            end.__cause__ = error
        self._give_up(end)

    def _turn(self) -> None:
        self._sleeps = True
        pause = 0.0 if self._calls else self._pause()
        for key, events in self._selector.select(pause):
            if key.fileobj is self._awake:
                with suppress(OSError):
                    self._awake.recv(1 << 12)
            else:
                self._multi.socket_action(key.fd, events)
        self._sleeps = False
        now = time.monotonic()
        if self._timer is not None and self._timer <= now:
            self._timer = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()
        self._finish()
        if self._check_at <= now:
            self._check_at = now + _CHECK_S
            self._drop_slow(now)
        while self._calls:
            self._calls.popleft()()
        self._begin()

    def _pause(self) -> float | None:
        """Seconds until something is due; None for nothing."""
        due = [self._timer] if self._timer is not None else []
        due += [self._later[0][0]] if self._later else []
        due += [self._check_at] if self._active else []
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _watch(self, events: int, descriptor: int, *_: Any) -> None:
        if events == pycurl.POLL_REMOVE:
            with suppress(KeyError, ValueError):
                self._selector.unregister(descriptor)
        elif descriptor in self._selector.get_map():
            self._selector.modify(descriptor, events)
        else:
            self._selector.register(descriptor, events)

    def _set_timer(self, milliseconds: int) -> None:
        self._timer = time.monotonic() + milliseconds / 1000 if milliseconds >= 0 else None

    def _resume(self) -> None:
        for curl, transfer in [*self._active.items()]:
            transfer.fast_at = time.monotonic()
            curl.pause(pycurl.PAUSE_CONT)

    def _begin(self) -> None:
        while self._waiting and len(self._active) < self._connections:
            transfer = self._waiting.popleft()
            curl = pycurl.Curl()
            try:
                self._prepare(curl, transfer)
            except PermanentError as refusal:
                transfer.done(refusal)
                continue
            except (pycurl.error, ValueError):
                transfer.done(PermanentError("not a URL"))
                continue
            transfer.fast_at = time.monotonic()
            self._active[curl] = transfer
            self._multi.add_handle(curl)

    def _prepare(self, curl: Any, transfer: _Transfer) -> None:
        request, option = transfer.request, curl.setopt
        url = sendable(request.url)
        if request.check:
            request.check(url)
        now = time.monotonic()
        transfer.ends_at = transfer.ends_at or now + (request.total_s or _NO_BOUND_S)
        option(pycurl.URL, url)
        option(pycurl.PATH_AS_IS, 1)
        option(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        option(pycurl.NOSIGNAL, 1)
        option(pycurl.USERAGENT, self._user_agent)
        option(pycurl.CAINFO, self._certificates)
        option(pycurl.BUFFERSIZE, _BUFFER_BYTES)
        option(pycurl.HTTPHEADER, list(request.headers))
        option(pycurl.WRITEFUNCTION, transfer.receive)
        option(pycurl.HEADERFUNCTION, transfer.receive_header)
        option(pycurl.MAXFILESIZE_LARGE, 0 if request.take else request.max_bytes)
        option(pycurl.CONNECTTIMEOUT_MS, ceil(request.connect_s * 1000))
        option(pycurl.TIMEOUT_MS, max(1, ceil((transfer.ends_at - now) * 1000)))
        if request.body is not None:
            option(pycurl.POSTFIELDS, request.body)
        if self._refusal:
            option(pycurl.PROXY, "")  # it would connect to any address
            option(pycurl.OPENSOCKETFUNCTION, partial(self._open_socket, transfer))

    def _open_socket(self, transfer: _Transfer, _: int, address: Any) -> Any:
        family, kind, protocol, (host, *_others) = address
        if why := self._refusal and self._refusal(host):
            transfer.refusal = why
            return pycurl.SOCKET_BAD  # other addresses of the name are tried
        transfer.may_connect = True
        try:
            opened = socket.socket(family, kind, protocol)
        except OSError:  # no descriptor is left for now
            return pycurl.SOCKET_BAD
        self._calls.append(opened.close)  # pycurl duplicates it
        return opened

    def _finish(self) -> None:
        if not self._active:
            return
        n_left = 1
        while n_left:
            n_left, finished, failed = self._multi.info_read()
            for curl in finished:
                self._end(curl, 0, "")
            for curl, code, text in failed:
                self._end(curl, code, text)

    def _drop_slow(self, now: float) -> None:
        # libcurl's own check may begin only when its time limit for the connection is over.
        for curl, transfer in [*self._active.items()]:
            if transfer.is_slow(now):
                silent_s = f"{transfer.request.silent_s:g} s"
                too_slow = f"silent, or slower than {_LEAST_SPEED} bytes a second, for {silent_s}"
                self._end(curl, _TOO_SLOW, too_slow)

    def _end(self, curl: Any, code: int, text: str) -> None:
        transfer = self._active.pop(curl)
        self._multi.remove_handle(curl)
        code = 0 if transfer.stands else code
        result = self._failure(curl, transfer, code, text) if code else self._answer(curl, transfer)
        curl.close()
        if result is not None:
            transfer.done(result)

    def _answer(self, curl: Any, transfer: _Transfer) -> Answer | Exception | None:
        """The answer; None where a redirect is followed."""
        request, status = transfer.request, transfer.status
        if not (transfer.has_head and status):  # libcurl takes it for an answer without a body
            return TransientError("cut off before the end of the headers")
        location = transfer.headers.get("location", "")
        if status not in _REDIRECTS or request.redirects is None:
            is_direct = not (_USED_PROXY and curl.getinfo(_USED_PROXY))
            address = curl.getinfo(pycurl.PRIMARY_IP) if is_direct else ""
            return Answer(status, transfer.headers, b"".join(transfer.chunks), request.url, address)
        if not location:
            return PermanentError("a redirect without a location")
        if not request.redirects:
            return PermanentError("too many redirects")
        try:
            url = onward(request.url, location)
        except ValueError:
            return PermanentError("a redirect to what is not a URL")
        onwards = replace(request, url=url, redirects=request.redirects - 1)
        self._waiting.appendleft(_Transfer(onwards, transfer.done, ends_at=transfer.ends_at))
        return None

    def _failure(
        self, curl: Any, transfer: _Transfer, code: int, text: str
    ) -> Answer | Exception | None:
        request = transfer.request
        if transfer.refusal and not transfer.may_connect:
            return PermanentError(transfer.refusal)
        if transfer.length > request.max_bytes or code == pycurl.E_FILESIZE_EXCEEDED:
            if request.take:  # none of its
                return self._answer(curl, transfer)
            return PermanentError(f"more bytes than the limit of {request.max_bytes:,}")
        if code == pycurl.E_OPERATION_TIMEDOUT:
            if time.monotonic() >= transfer.ends_at:
                return TransientError(f"not done within {request.total_s:g} s")
            return TransientError(f"no connection within {request.connect_s:g} s")
        return failure_of(code, text)

    def _give_up(self, end: Exception) -> None:
        self.end = end
        for curl, transfer in self._active.items():
            self._waiting.append(transfer)
            self._multi.remove_handle(curl)
            curl.close()
        self._active.clear()
        self._end_rest(end)
        self._multi.close()
        self._selector.close()
        self._awake.close()
        self._wake.close()

    def _end_rest(self, end: Exception) -> None:
        """End what is left, in whatever thread it comes."""
        for call in _popped(self._calls.popleft):
            call()
        for _, _, call in _popped(self._later.pop):
            call()
        for transfer in _popped(self._waiting.popleft):
            transfer.done(end)


def _popped(pop: Callable[[], _T]) -> Iterator[_T]:
    """What is left in a queue, which several threads may empty."""
    with suppress(IndexError):
        while True:
            yield pop()


def _certificates() -> str:
    """The file of the certificates that are trusted."""
    return os.environ.get("SSL_CERT_FILE") or os.environ.get("AWS_CA_BUNDLE") or certifi.where()
