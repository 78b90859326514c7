"""HTTP transfers, many at a time, by libcurl's multi interface, in an event loop.

Nothing is tried twice here, and nothing is read without bounds: of bytes, of time, of slowness.
`Reach` says what is to be tried again.
"""

import asyncio
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from math import ceil, inf
from typing import Any, TypeVar

import certifi
import pycurl

from wallclock.fetch.request import LATE, Answer, Done, Request, Transfer
from wallclock.fetch.retries import PermanentError
from wallclock.fetch.urls import sendable
from wallclock.machine import require_linux

__all__ = ["Answer", "Request", "Transfers"]

#: Seconds between two looks at what is late; for the thread to end.
_CHECK_S, _CLOSING_S = 0.25, 1.0
_BUFFER_BYTES = 1 << 18
#: Older libcurls stop at a limit only where the head says that the body is longer.
_STOPS_AT_LIMIT = pycurl.version_info()[2] >= 0x080400
require_linux("a URL or a bucket")  # whose epoll waits for the sockets
#: What the selector calls libcurl's POLL_NONE, POLL_IN, POLL_OUT, POLL_INOUT.
_EVENTS = (0, select.EPOLLIN, select.EPOLLOUT, select.EPOLLIN | select.EPOLLOUT)
_T = TypeVar("_T")


class Transfers:
    """Connections that are shared with no others, and what is on its way over them.

    `connections`: transfers at a time; others wait. `refusal`: why an address may not be connected
    to, empty if it may; asked before each connection is made. None: any may, and the proxies of the
    environment are used. `loop`: to run in; its thread alone may then ask. None: one in a thread of
    their own, which takes the GIL from others for each answer.
    """

    def __init__(
        self,
        connections: int,
        user_agent: str,
        refusal: Callable[[str], str] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._connections, self._user_agent, self._refusal = connections, user_agent, refusal
        trusted = os.environ.get("SSL_CERT_FILE") or os.environ.get("AWS_CA_BUNDLE")
        self._certificates = trusted or certifi.where()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections)
        self._idle: list[Any] = []
        self._active: dict[Any, Transfer] = {}
        #: What any thread has asked for; whether the loop will look at it without being told.
        self._waiting: deque[Transfer] = deque()
        self._calls: deque[Callable[[], object]] = deque()
        self._is_awake = False
        #: Why nothing is sent any more, which is then the end of each request.
        self.end: Exception | None = None
        self._selector = select.epoll()
        #: The sockets that libcurl waits for; the selector keeps those of idle connections, too.
        self._watched: set[int] = set()
        self._check_at, self._alarm_at = 0.0, inf
        self._alarm: asyncio.TimerHandle | None = None
        self._loop = loop or asyncio.new_event_loop()
        self._soon = self._loop.call_soon if loop else self._loop.call_soon_threadsafe
        self._loop.add_reader(self._selector.fileno(), self._turn)
        self._owns_loop = loop is None
        target = self._run if self._owns_loop else self._release
        self._thread = threading.Thread(target=target, name="transfers", daemon=True)
        if self._owns_loop:
            self._thread.start()

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

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call something in the thread after so many seconds, unless it is closed by then."""
        self.call(lambda: self._loop.call_later(seconds, call))

    def call(self, call: Callable[[], object]) -> None:
        """Call something in the thread, soon."""
        self._calls.append(call)
        self._wake()

    def stop(self) -> None:
        """Give up what is on its way, and what comes: each gets a CancelledError."""
        with suppress(RuntimeError):  # it was closed before
            self._loop.call_soon_threadsafe(self._stop)

    def close(self) -> None:
        """Stop, and wait for the thread, but not for a name that is being looked up."""
        if not self._owns_loop:
            self._stop()
            if not self._thread.ident:
                self._thread.start()
            return
        self.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSING_S)

    def _wake(self) -> None:
        if self.end:
            self._end_rest(self.end)
        elif not self._is_awake:
            self._is_awake = True
            with suppress(RuntimeError):  # it is closed meanwhile, and has ended all
                self._soon(self._turn)

    # --- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        self._loop.run_forever()
        self._release()
        self._loop.close()

    def _turn(self) -> None:
        """Do what is due, and see to it that the loop comes back in time."""
        if self.end:
            return
        self._is_awake = False
        try:
            for descriptor, _ in self._selector.poll(0):
                if descriptor in self._watched:
                    self._multi.socket_action(descriptor, 0)
                else:  # a connection that nothing uses: its server may have closed it
                    with suppress(OSError):
                        self._selector.unregister(descriptor)
            while self._calls:
                self._calls.popleft()()
            self._advance(time.monotonic())
            self._set_alarm()
        except BaseException as error:  # noqa: BLE001 - or all would wait for ever
            end = RuntimeError(f"the thread of the transfers has failed: {error!r}")
            end.__cause__ = error
            self._give_up(end)

    def _advance(self, now: float) -> None:
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

    def _set_alarm(self) -> None:
        now, milliseconds = time.monotonic(), self._multi.timeout()
        due = self._check_at - now if self._active else inf
        if self._calls or (self._waiting and len(self._active) < self._connections):
            due = 0
        elif milliseconds >= 0:
            due = min(due, milliseconds / 1000)
        if self._alarm_at <= now or now + due < self._alarm_at:
            if self._alarm:
                self._alarm.cancel()
            self._alarm_at = now + due
            self._alarm = self._loop.call_later(due, self._turn) if due < inf else None

    def _watch(self, events: int, descriptor: int, *_: Any) -> None:
        if events == pycurl.POLL_REMOVE:  # the next request may need it
            self._watched.discard(descriptor)
            return
        self._watched.add(descriptor)
        try:
            self._selector.modify(descriptor, _EVENTS[events])
        except OSError:  # it is new
            self._selector.register(descriptor, _EVENTS[events])

    def _begin(self, now: float) -> None:
        while self._waiting and len(self._active) < self._connections:
            transfer = self._waiting.popleft()
            curl = self._idle.pop() if self._idle else self._new()
            try:
                self._prepare(curl, transfer)
            except (PermanentError, pycurl.error, ValueError) as error:
                self._idle.append(curl)
                is_said = isinstance(error, PermanentError)
                transfer.done(error if is_said else PermanentError("not a URL"))
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
        if code or transfer.request.take or not _STOPS_AT_LIMIT:  # it has more of it
            curl.close()
        else:
            self._idle.append(curl)
        if isinstance(result, Request):
            self._waiting.appendleft(Transfer(result, transfer.done, transfer.ends_at))
        else:
            transfer.done(result)

    def _stop(self) -> None:
        if not self.end:
            self._give_up(CancelledError("it was closed"))
        if self._owns_loop:
            self._loop.stop()

    def _give_up(self, end: Exception) -> None:
        self.end = end
        self._loop.remove_reader(self._selector.fileno())
        if self._alarm:
            self._alarm.cancel()
        self._waiting.extendleft(self._active.values())
        self._end_rest(end)

    def _end_rest(self, end: Exception) -> None:
        """End what is left, in whatever thread it comes."""
        for call in _popped(self._calls.popleft):
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


def _popped(pop: Callable[[], _T]) -> Iterator[_T]:
    """What is left in a queue, which several threads may empty."""
    with suppress(IndexError):
        while True:
            yield pop()
