"""HTTP transfers, many at a time, by libcurl's multi interface, in a thread.

Nothing is tried twice here, and nothing is read without bounds: of bytes, of time, of slowness.
`Reach` says what is to be tried again.
"""

import os
import select
import socket
import threading
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from math import ceil, inf
from operator import itemgetter
from typing import Any, TypeVar

import certifi
import pycurl

from wallclock.fetch.request import LATE, Answer, Done, Request, Transfer
from wallclock.fetch.retries import PermanentError
from wallclock.fetch.urls import sendable

__all__ = ["Answer", "Request", "Transfers"]

#: Seconds between two looks at what is late; for the thread to end.
_CHECK_S, _CLOSING_S = 0.25, 1.0
_BUFFER_BYTES = 1 << 18
#: Older libcurls stop at a limit only where the head says that the body is longer.
_STOPS_AT_LIMIT = pycurl.version_info()[2] >= 0x080400
#: What the selector calls libcurl's POLL_NONE, POLL_IN, POLL_OUT, POLL_INOUT.
_EVENTS = (0, select.EPOLLIN, select.EPOLLOUT, select.EPOLLIN | select.EPOLLOUT)
_T = TypeVar("_T")


class Transfers:
    """Connections that are shared with no others, in a thread of their own.

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
        self._certificates = _certificates()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections)
        self._idle: list[Any] = []
        self._active: dict[Any, Transfer] = {}
        self._waiting: deque[Transfer] = deque()
        #: What other threads have asked for; what is due at a time, by which it is sorted.
        self._calls: deque[Callable[[], object]] = deque()
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._check_at = 0.0
        self._selector = select.epoll()
        #: The sockets that libcurl waits for; the selector keeps those of idle connections, too.
        self._watched: set[int] = set()
        self._awake, self._waker = socket.socketpair()
        self._awake.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._awake, select.EPOLLIN)
        self._sleeps = self._is_closed = False
        #: Why nothing is sent any more, which is then the end of each request.
        self.end: Exception | None = None
        self._start()

    def submit(self, request: Request, done: Done) -> None:
        """Send a request; `done` gets the answer, or why there is none, in the thread."""
        self._waiting.append(Transfer(request, done))
        self._wake()

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
        at = time.monotonic() + seconds
        self.call(lambda: insort(self._later, (at, call), key=itemgetter(0)))

    def call(self, call: Callable[[], object]) -> None:
        """Call something in the thread, soon."""
        self._calls.append(call)
        self._wake()

    def stop(self) -> None:
        """Give up what is on its way, and what comes: each gets a CancelledError."""
        self._is_closed = self._sleeps = True
        self._wake()

    def close(self) -> None:
        """Stop, and wait for the thread, but not for a name that is being looked up."""
        self.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSING_S)

    def _wake(self) -> None:
        if self.end:
            self._end_rest(self.end)
        elif self._sleeps:
            self._sleeps = False
            self._send_wake()

    # --- a thread of its own, which others wake up -----------------------------------------------

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="transfers", daemon=True)
        self._thread.start()

    def _send_wake(self) -> None:
        with suppress(OSError):  # full: it will wake
            self._waker.send(b"\0")

    def _run(self) -> None:
        pause: float | None = 0
        while not self.end:
            pause = self._turn(pause)
        self._release()

    # --- in the thread ---------------------------------------------------------------------------

    def _turn(self, pause: float | None) -> float | None:
        """Wait, and do what is due; seconds until something is again, None: until it wakes."""
        try:
            if not self._is_closed:
                self._wait(pause)
                self._do_what_is_due()
                return self._pause()
            end: Exception = CancelledError("it was closed")
        except BaseException as error:  # noqa: BLE001 - or all would wait for ever
            end = RuntimeError(f"the thread of the transfers has failed: {error!r}")
            end.__cause__ = error
        self.end = end
        self._waiting.extendleft(self._active.values())
        self._end_rest(end)
        return None

    def _wait(self, pause: float | None) -> None:
        events = self._selector.poll(pause)
        self._sleeps = False
        for descriptor, _ in events:
            if descriptor in self._watched:
                self._multi.socket_action(descriptor, 0)
            elif descriptor == self._awake.fileno():
                with suppress(OSError):
                    self._awake.recv(1 << 12)
            else:  # a connection that nothing uses: its server may have closed it
                with suppress(OSError):
                    self._selector.unregister(descriptor)

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            self._later.pop(0)[1]()
        while self._calls:
            self._calls.popleft()()
        self._begin(now)
        if self._multi.timeout() == 0:
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        _, finished, failed = self._multi.info_read()
        for curl in finished:
            self._end(curl, 0, "")
        for curl, code, text in failed:
            self._end(curl, code, text)
        if self._check_at <= now:
            self._check_at = now + _CHECK_S
            for curl, transfer in [*self._active.items()]:
                if why := transfer.why_late(curl.getinfo(pycurl.SIZE_DOWNLOAD_T), now):
                    self._end(curl, LATE, why)

    def _pause(self) -> float | None:
        self._sleeps = True  # from here on, who asks for something says so
        if self._calls or (self._waiting and len(self._active) < self._connections):
            return 0
        now = time.monotonic()
        due = [self._later[0][0] - now] if self._later else []
        due += [self._check_at - now] if self._active else []
        if (milliseconds := self._multi.timeout()) >= 0:
            due.append(milliseconds / 1000)
        return max(0.0, min(due)) if due else None

    def _watch(self, events: int, descriptor: int, *_: Any) -> None:
        if events == pycurl.POLL_REMOVE:  # the next request may need it
            self._watched.discard(descriptor)
            return
        self._watched.add(descriptor)
        try:
            self._selector.modify(descriptor, _EVENTS[events])
        except OSError:  # it is new
            self._selector.register(descriptor, _EVENTS[events])

    def _resume(self) -> None:
        for curl, transfer in [*self._active.items()]:
            transfer.fast_at = time.monotonic()
            curl.pause(pycurl.PAUSE_CONT)

    def _begin(self, now: float) -> None:
        while self._waiting and len(self._active) < self._connections:
            transfer = self._waiting.popleft()
            curl = self._idle.pop() if self._idle else self._new()
            try:
                self._prepare(curl, transfer)
            except PermanentError as refusal:
                transfer.done(refusal)
            except (pycurl.error, ValueError):
                transfer.done(PermanentError("not a URL"))
            else:
                transfer.fast_at = now
                transfer.ends_at = min(transfer.ends_at, now + (transfer.request.total_s or inf))
                self._active[curl] = transfer
                self._multi.add_handle(curl)

    def _new(self) -> Any:
        """A handle with what is the same for all requests."""
        curl = pycurl.Curl()
        curl.setopt(pycurl.PATH_AS_IS, 1)
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.CAINFO, self._certificates)
        curl.setopt(pycurl.BUFFERSIZE, _BUFFER_BYTES)
        if self._refusal:
            curl.setopt(pycurl.PROXY, "")  # it would connect to any address
            curl.setopt(pycurl.OPENSOCKETFUNCTION, partial(self._open_socket, curl))
        return curl

    def _prepare(self, curl: Any, transfer: Transfer) -> None:
        request, option = transfer.request, curl.setopt
        url = sendable(request.url)
        if request.check:
            request.check(url)
        keeps_all = request.take or not _STOPS_AT_LIMIT
        option(pycurl.URL, url)
        option(pycurl.HTTPHEADER, [f"User-Agent: {self._user_agent}", *request.headers])
        option(pycurl.HEADERFUNCTION, transfer.lines.append)
        option(pycurl.WRITEFUNCTION, transfer.receive if keeps_all else transfer.chunks.append)
        option(pycurl.MAXFILESIZE_LARGE, 0 if request.take else request.max_bytes)
        option(pycurl.CONNECTTIMEOUT_MS, ceil(request.connect_s * 1000))
        if request.body is None:
            option(pycurl.HTTPGET, 1)
        else:
            option(pycurl.POSTFIELDS, request.body)

    def _open_socket(self, curl: Any, _: int, address: Any) -> Any:
        family, kind, protocol, (host, *_others) = address
        transfer = self._active[curl]
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

    def _end(self, curl: Any, code: int, text: str) -> None:
        transfer = self._active.pop(curl)
        self._multi.remove_handle(curl)
        result = transfer.result(curl, code, text)
        transfer.chunks.clear()  # the handle has it
        if code or transfer.request.take:
            curl.close()
        else:
            self._idle.append(curl)
        if isinstance(result, Request):
            self._waiting.appendleft(Transfer(result, transfer.done, transfer.ends_at))
        else:
            transfer.done(result)

    def _end_rest(self, end: Exception) -> None:
        """End what is left, in whatever thread it comes."""
        for call in _popped(self._calls.popleft):
            call()
        for _, call in _popped(self._later.pop):
            call()
        for transfer in _popped(self._waiting.popleft):
            transfer.done(end)

    def _release(self) -> None:
        """Close all, which may wait for a name that is being looked up."""
        for curl in self._active:
            self._multi.remove_handle(curl)
        for curl in (*self._active, *self._idle):
            curl.close()
        self._active.clear()
        self._multi.close()
        self._selector.close()
        self._awake.close()
        self._waker.close()


def _popped(pop: Callable[[], _T]) -> Iterator[_T]:
    """What is left in a queue, which several threads may empty."""
    with suppress(IndexError):
        while True:
            yield pop()


def _certificates() -> str:
    """The file of the certificates that are trusted."""
    return os.environ.get("SSL_CERT_FILE") or os.environ.get("AWS_CA_BUNDLE") or certifi.where()
