"""Transfers over real sockets: bounds, broken answers, redirects."""

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pycurl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wallclock.fetch.servers import RawServer, ok, redirect, resolving, result_of, serving
from wallclock.fetch import request as request_module
from wallclock.fetch import transfers as transfers_module
from wallclock.fetch.request import Answer, Request, Transfer, failure_of
from wallclock.fetch.retries import NoSuchHostError, PermanentError, TransientError
from wallclock.fetch.transfers import Transfers


@pytest.fixture(scope="module")
def transfers() -> Iterator[Transfers]:
    with closing(Transfers(8, "tests/1")) as transfers:
        yield transfers


HEAD = b"HTTP/1.1 200 OK\r\n"
WHOLE = {
    "ordinary": ok(b"body"),
    "no body": ok(b""),
    "HTTP/1.0, until it closes": b"HTTP/1.0 200 OK\r\n\r\nbody",
    "chunked": HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nbod\r\n1\r\ny\r\n0\r\n\r\n",
    "a trailer": HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX: y\r\n\r\n",
    "a folded header": HEAD + b"X: a\r\n b: c\r\nContent-Length: 4\r\n\r\nbody",
    "a reason with a colon": b"HTTP/1.1 200 Well: OK\r\nContent-Length: 4\r\n\r\nbody",
    "early hints": b"HTTP/1.1 103 Early Hints\r\nX: no\r\n\r\n" + ok(b"body", "Y: yes"),
}


@pytest.mark.parametrize("reply", WHOLE.values(), ids=WHOLE)
def test_whole_bodies(transfers: Transfers, reply: bytes) -> None:
    with serving({"/": reply}) as server:
        answer = result_of(transfers, f"{server.url}/")
    assert isinstance(answer, Answer)
    assert answer.status == 200
    assert answer.body == (b"" if reply == WHOLE["no body"] else b"body")
    assert (answer.headers.get("x") == "no", "y" in answer.headers) == (False, b"Y: yes" in reply)
    assert b"User-Agent: tests/1\r\n" in server.heads[0]


BROKEN = {
    "nothing": (b"", "closed without an answer"),
    "cut in a chunk": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\nbody",
        "cut off before the end of the body",
    ),
    "cut in the last line of a head": (HEAD + b"\r", "cut off before the end of the headers"),
    "only hints": (
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + HEAD + b"X: y",
        "cut off before the end of the headers",
    ),
    "an odd status": (b"HTTP/1.1 2xx OK\r\nContent-Length: 0\r\n\r\n", ""),
    "no status": (b"HTTP/1.1\r\nContent-Length: 0\r\n\r\n", ""),
    "an odd version": (b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n", ""),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", "HTTP/0.9"),
    "two lengths": (HEAD + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody", ""),
}


@pytest.mark.parametrize(("reply", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_answers_may_be_whole_the_next_time(
    transfers: Transfers, reply: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving({"/": reply}) as server:
        error = result_of(transfers, f"{server.url}/")
    assert isinstance(error, TransientError)
    assert reason in str(error)
    assert not capsys.readouterr().err, "libcurl's callbacks raise nothing"


def test_what_is_cut_is_never_whole(transfers: Transfers) -> None:
    @given(st.binary(max_size=20), st.booleans(), st.data())
    def check(body: bytes, is_chunked: bool, data: st.DataObject) -> None:
        whole = ok(body)
        if is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            whole = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"
        cut = data.draw(st.integers(0, len(whole)))
        server.replies["/"] = whole[:cut]
        result = result_of(transfers, f"{server.url}/")
        if cut < len(whole):
            assert isinstance(result, TransientError)
        else:
            assert (result.status, result.body) == (200, body)

    with serving({}) as server:
        check()


def endless(file: Any) -> None:
    file.write(HEAD + b"\r\n")
    while True:
        file.write(b"x" * 100)


@pytest.mark.parametrize("stops_at_limit", [True, False])
@pytest.mark.parametrize(
    "reply",
    [
        ok(b"x" * 1001),
        HEAD + b"Content-Length: 9999999999\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n",
        endless,
    ],
)
def test_too_many_bytes(
    transfers: Transfers, reply: Any, stops_at_limit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether libcurl stops there, or is too old."""
    monkeypatch.setattr(transfers_module, "_STOPS_AT_LIMIT", stops_at_limit)
    with serving({"/": reply}) as server:
        error = result_of(transfers, f"{server.url}/", max_bytes=1000)
    assert isinstance(error, PermanentError)
    assert str(error) == "more bytes than the limit of 1,000"


def drip(file: Any) -> None:
    file.write(HEAD + b"Content-Length: 1000\r\n\r\n")
    for _ in range(1000):
        file.write(b"x")
        time.sleep(0.01)


def silent(file: Any) -> None:
    time.sleep(2)


def steady(file: Any) -> None:
    file.write(HEAD + b"Content-Length: 60000\r\n\r\n")
    for _ in range(60):
        file.write(b"x" * 1000)
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("reply", "limits", "reason"),
    [
        (drip, {"silent_s": 0.2}, "silent, or slower than 1000 bytes a second, for 0.2 s"),
        (silent, {"silent_s": 0.2}, "silent, or slower than 1000 bytes a second, for 0.2 s"),
        (steady, {"silent_s": 0.5}, ""),
        (steady, {"total_s": 0.2}, "not done within 0.2 s"),
    ],
)
def test_time_limits(transfers: Transfers, reply: Any, limits: Any, reason: str) -> None:
    """All at once: on new connections, libcurl's own check begins too late."""
    results: list[Any] = []
    done = threading.Semaphore(0)

    def end(result: Any) -> None:
        results.append(result)
        done.release()

    with serving({"/": reply}) as server:
        for _ in range(4):
            transfers.submit(Request(f"{server.url}/", 1 << 20, **limits), end)
        for _ in range(4):
            assert done.acquire(timeout=20)
    if reason:
        assert [str(result) for result in results] == [reason] * 4
        assert isinstance(results[0], TransientError)
    else:
        assert [len(result.body) for result in results] == [60000] * 4


def test_who_has_to_wait_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes a body may be busy for longer than a server may be silent."""
    clock = [1000.0]
    monkeypatch.setattr(request_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def take(*_: Any) -> bool:
        clock[0] += 60
        return True

    transfer = Transfer(Request("", 10, take=take, silent_s=10), print, fast_at=clock[0])
    transfer.receive(b"x")
    assert transfer.why_late(1, clock[0] + 9) == ""
    assert transfer.why_late(1, clock[0] + 11).startswith("silent, or slower")


def test_nobody_there(transfers: Transfers) -> None:
    with RawServer({}) as closed:
        pass
    refused = result_of(transfers, closed.url)
    assert isinstance(refused, TransientError)
    assert str(refused) == "no connection: refused, or no route"
    with RawServer({}) as silent:  # it accepts nothing
        late = result_of(transfers, silent.url.replace("http", "https"), connect_s=0.1, total_s=0)
    assert isinstance(late, TransientError)
    assert str(late) == "no connection within 0.1 s"
    assert isinstance(failure_of(pycurl.E_COULDNT_RESOLVE_HOST, ""), NoSuchHostError)


@pytest.mark.parametrize("url", ["", "http:///x", "file:///etc/passwd", "gopher://a/"])
def test_what_is_no_url(transfers: Transfers, url: str) -> None:
    error = result_of(transfers, url)
    assert isinstance(error, PermanentError)
    assert str(error) == "not a URL"


def test_nothing_of_a_request_is_in_the_next_one() -> None:
    """Which has its handle, and may go to another host."""
    with serving({"/": ok(b"body")}) as server, closing(Transfers(1, "tests/1")) as one:
        plain, secret = Request(f"{server.url}/", 10), ("Authorization: secret",)
        for request in (plain, plain._replace(body=b"posted", headers=secret), plain):
            assert one.ask(request).body == b"body"
    first, posted, last = server.heads
    assert posted.startswith(b"POST ")
    assert b"Authorization: secret\r\n" in posted
    assert first == last


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (b"/b?x=%2f#there", "/b?x=%2f"),
        ("/ü b".encode(), "/%C3%BC%20b"),
        (b"/\xfc", "/%FC"),
        (b"b", "/b"),
        (b"//127.0.0.1:{port}/b", "/b"),
    ],
)
def test_redirects(transfers: Transfers, location: bytes, path: str) -> None:
    with serving({path: ok(b"body")}) as server:
        server.replies["/"] = redirect(location.replace(b"{port}", b"%d" % server.port))
        assert result_of(transfers, f"{server.url}/", redirects=1).body == b"body"
        assert len(server.heads) == 2
        assert result_of(transfers, f"{server.url}/").status == 302


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        (b"/", "too many redirects"),
        (b"", "a redirect without a location"),
        (b"file:///etc/passwd", "not a URL"),
        (b"http://[::1", "a redirect to what is not a URL"),
    ],
)
def test_redirects_to_nowhere(transfers: Transfers, location: bytes, reason: str) -> None:
    with serving({"/": redirect(location)}) as server:
        error = result_of(transfers, f"{server.url}/", redirects=5)
        assert len(server.heads) == (6 if location == b"/" else 1)
    assert isinstance(error, PermanentError)
    assert str(error) == reason


def test_each_url_is_checked(transfers: Transfers) -> None:
    def check(url: str) -> None:
        if "b" in url:
            raise PermanentError("not there")

    with serving({"/": redirect(b"/b")}) as server:
        error = result_of(transfers, f"{server.url}/", redirects=5, check=check)
        assert len(server.heads) == 1
    assert str(error) == "not there"


def test_closing_ends_what_is_on_its_way() -> None:
    transfers, results = Transfers(2, "tests/1"), list[Any]()
    with serving({"/": silent}) as server:
        for _ in range(4):
            transfers.submit(Request(f"{server.url}/", 10), results.append)
        transfers.close()
        assert len(results) == 4
        transfers.submit(Request(f"{server.url}/", 10), results.append)
    transfers.close()
    assert [type(result) for result in results] == [CancelledError] * 5


def test_closing_waits_for_no_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server may take its time."""
    monkeypatch.setattr(transfers_module, "_CLOSING_S", 0.01)
    answered, results = threading.Event(), list[Any]()
    with resolving(lambda _: ["127.0.0.1"] * answered.wait()):
        one = Transfers(1, "tests/1")
        one.submit(Request("http://images.test/", 10), results.append)
        one.close()
        assert results == []
        answered.set()


def test_nothing_of_a_transfer_stays(transfers: Transfers) -> None:
    """It may be an image of many bytes, and the handle be idle for ever."""

    class Done:
        def __call__(self, result: Any) -> None:
            arrived.set()

    arrived, done = threading.Event(), Done()
    kept = weakref.ref(done)
    with serving({"/": ok(b"body")}) as server:
        transfers.submit(Request(f"{server.url}/", 10), done)
        del done
        assert arrived.wait(10)
        result_of(transfers, f"{server.url}/")  # the thread has left the call
    assert kept() is None


def test_in_a_loop_all_is_done_in_its_thread() -> None:
    """No other one is started, and nothing stays open."""
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()

    async def ask(url: str) -> None:
        transfers, results = (
            Transfers(2, "tests/1", loop=asyncio.get_running_loop()),
            asyncio.Queue[Any](),
        )
        for path in "/", "/", "/none", "/":
            transfers.submit(Request(url + path, 10), results.put_nowait)
        assert threading.active_count() == threads + 1  # the server
        answers = [await results.get() for _ in range(4)]
        assert [answer.status for answer in answers] == [200] * 4
        transfers.close()

    with serving({"/": ok(b"body"), "/none": ok(b"")}) as server:
        asyncio.run(ask(server.url))
    deadline = time.monotonic() + 10
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) <= before
