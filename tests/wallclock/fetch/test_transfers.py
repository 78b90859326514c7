"""Transfers over real sockets: bounds, broken answers, redirects, certificates, addresses."""

import ipaddress
import socketserver
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pycurl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wallclock.fetch.authority import Authority
from tests.wallclock.fetch.resolving import resolving
from wallclock.fetch import transfers as transfers_module
from wallclock.fetch.curl_errors import failure_of
from wallclock.fetch.retries import (
    CertificateError,
    NoSuchHostError,
    PermanentError,
    TransientError,
)
from wallclock.fetch.transfers import Answer, Request, Transfers

#: What is sent for a path: bytes, or a function that sends them. The connection then ends.
Replies = dict[str, bytes | Callable[[Any], None]]


class RawServer(socketserver.ThreadingTCPServer):
    """Sends bytes as they are given, over TLS where it has a `context`; keeps the requests."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, replies: Replies, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _RawHandler)
        self.replies, self.context = replies, context
        self.heads: list[bytes] = []
        self.port: int = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def get_request(self) -> Any:
        connection, address = super().get_request()
        if self.context:  # shaken hands with in the connection's own thread
            connection = self.context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client went away."""


class _RawHandler(socketserver.StreamRequestHandler):
    server: RawServer

    def handle(self) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (line := self.rfile.readline()):
                return
            head += line
        self.server.heads.append(head)
        reply = self.server.replies[head.split()[1].decode()]
        if callable(reply):
            reply(self.wfile)
        else:
            self.wfile.write(reply)


@contextmanager
def serving(replies: Replies, context: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    with RawServer(replies, context) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def transfers() -> Iterator[Transfers]:
    with closing(Transfers(8, "tests/1")) as transfers:
        yield transfers


def result_of(transfers: Transfers, url: str, max_bytes: int = 1000, **options: Any) -> Any:
    """The answer, or the error, which is one line."""
    try:
        result: Any = transfers.ask(Request(url, max_bytes, **options))
    except (PermanentError, TransientError) as error:
        result = error
    assert "\n" not in (str(result) if isinstance(result, Exception) else "")
    return result


def ok(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in (*headers, f"Content-Length: {len(body)}"))
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode("latin-1") + body


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
    "short": (HEAD + b"Content-Length: 9\r\n\r\nbody", "cut off before the end of the body"),
    "cut in a chunk": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\nbody",
        "cut off before the end of the body",
    ),
    "without the last chunk": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
        "cut off before the end of the body",
    ),
    "cut in a header": (HEAD + b"Content-Le", "cut off before the end of the headers"),
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


@pytest.mark.parametrize(
    "reply",
    [
        ok(b"x" * 1001),
        HEAD + b"Content-Length: 9999999999\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n",
        endless,
    ],
)
def test_too_many_bytes(transfers: Transfers, reply: Any) -> None:
    with serving({"/": reply}) as server:
        error = result_of(transfers, f"{server.url}/", max_bytes=1000)
    assert isinstance(error, PermanentError)
    assert str(error) == "more bytes than the limit of 1,000"


@pytest.mark.parametrize("length", ["Content-Length: 2000", "Transfer-Encoding: chunked"])
def test_a_long_page_about_a_failure(transfers: Transfers, length: str) -> None:
    """Is no body that is too long: it may be of a server that is down."""
    reply = f"HTTP/1.1 503 Down\r\n{length}\r\n\r\n7d0\r\n{'x' * 2000}\r\n0\r\n\r\n"
    with serving({"/": reply.encode()}) as server:
        assert result_of(transfers, f"{server.url}/", max_bytes=1000).status == 503


def drip(file: Any) -> None:
    file.write(HEAD + b"Content-Length: 1000\r\n\r\n")
    for _ in range(1000):
        file.write(b"x")
        time.sleep(0.01)


def silent(file: Any) -> None:
    time.sleep(2)


def steady(file: Any) -> None:
    file.write(HEAD + b"Content-Length: 100000\r\n\r\n")
    for _ in range(100):
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
        assert [len(result.body) for result in results] == [100000] * 4


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


def to(location: bytes) -> bytes:
    return b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"


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
        server.replies["/"] = to(location.replace(b"{port}", b"%d" % server.port))
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
    with serving({"/": to(location)}) as server:
        error = result_of(transfers, f"{server.url}/", redirects=5)
        assert len(server.heads) == (6 if location == b"/" else 1)
    assert isinstance(error, PermanentError)
    assert str(error) == reason


def test_each_url_is_checked(transfers: Transfers) -> None:
    def check(url: str) -> None:
        if "b" in url:
            raise PermanentError("not there")

    with serving({"/": to(b"/b")}) as server:
        error = result_of(transfers, f"{server.url}/", redirects=5, check=check)
        assert len(server.heads) == 1
    assert str(error) == "not there"


def test_closing_ends_what_is_on_its_way() -> None:
    transfers, results = Transfers(2, "tests/1"), list[Any]()
    with serving({"/": silent}) as server:
        for _ in range(4):
            transfers.submit(Request(f"{server.url}/", 10), results.append)
        transfers.later(60, lambda: results.append("late"))
        transfers.close()
        assert len(results) == 5
        transfers.submit(Request(f"{server.url}/", 10), results.append)
    transfers.close()
    assert results.count("late") == 1
    assert [type(result) for result in results if result != "late"] == [CancelledError] * 5


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


def test_an_error_in_the_thread_ends_all() -> None:
    with serving({"/": ok(b"body"), "/silent": silent}) as server, closing(Transfers(2, "")) as one:
        results = list[Any]()
        one.submit(Request(f"{server.url}/silent", 10), results.append)
        one.submit(Request(f"{server.url}/", 10), lambda _: 1 // 0)
        with pytest.raises(RuntimeError, match="has failed: ZeroDivisionError"):
            one.ask(Request(f"{server.url}/silent", 10))
        with pytest.raises(RuntimeError):
            one.ask(Request(f"{server.url}/", 10))
    assert [type(result) for result in results] == [RuntimeError]


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


@pytest.mark.parametrize(
    ("name", "days", "is_trusted", "reason"),
    [
        ("images.test", 10, True, ""),
        ("images.test", -1, True, "certificate has expired"),
        ("others.test", 10, True, "no alternative certificate subject name"),
        ("images.test", 10, False, "unable to get local issuer certificate"),
    ],
)
def test_certificates(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    days: int,
    is_trusted: bool,
    reason: str,
) -> None:
    authority = Authority(tmp_path)
    trusted = authority if is_trusted else Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted.file))
    with (
        resolving(lambda _: ["127.0.0.1"]),
        serving({"/": ok(b"body")}, authority.context(name, days)) as server,
        closing(Transfers(1, "tests/1")) as transfers,
    ):
        result = result_of(transfers, f"https://images.test:{server.port}/")
        assert len(server.heads) == (not reason)
    if reason:
        assert isinstance(result, CertificateError)
        assert str(result).startswith(f"certificate: {reason}")
    else:
        assert result.body == b"body"


def other_than_local(address: str) -> str:
    """Of the tests' refusals: only 127.0.0.1 may be reached."""
    allowed = ipaddress.ip_address(address) == ipaddress.ip_address("127.0.0.1")
    return "" if allowed else f"{address} is refused"


@contextmanager
def guarded(addresses_of: Callable[[str], list[str]] = lambda host: [host]) -> Iterator[Transfers]:
    with resolving(addresses_of), closing(Transfers(1, "tests/1", other_than_local)) as transfers:
        yield transfers


@pytest.mark.parametrize(
    ("addresses", "refused"),
    [
        (["127.0.0.1"], ""),
        (["127.0.0.2"], "127.0.0.2"),
        (["127.0.0.2", "127.0.0.1"], ""),
        (["10.0.0.1", "127.0.0.2"], "127.0.0.2"),
        (["::1"], "::1"),
        (["::ffff:127.0.0.2"], "::ffff:127.0.0.2"),
    ],
)
def test_addresses_of_a_name(addresses: list[str], refused: str) -> None:
    with serving({"/": ok(b"body")}) as server, guarded(lambda _: addresses) as transfers:
        result = result_of(transfers, f"http://images.test:{server.port}/")
        assert len(server.heads) == (not refused)
    if refused:
        assert isinstance(result, PermanentError)
        assert str(result) == f"{refused} is refused"
    else:
        assert (result.body, result.address) == (b"body", "127.0.0.1")


def test_an_address_that_is_allowed_and_does_not_answer() -> None:
    with RawServer({}) as closed:
        pass
    with guarded(lambda _: ["127.0.0.2", "127.0.0.1"]) as transfers:
        result = result_of(transfers, f"http://images.test:{closed.port}/")
    assert isinstance(result, TransientError)


def test_a_name_that_changes() -> None:
    """What counts is the address that is connected to, each time."""
    answers = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1"]])
    with serving({"/": ok(b"body")}) as server, guarded(lambda _: next(answers)) as transfers:
        url = f"http://images.test:{server.port}/"
        results = [result_of(transfers, url) for _ in range(3)]
    assert [getattr(result, "body", str(result)) for result in results] == [
        b"body",
        "127.0.0.2 is refused",
        b"body",
    ]


def test_a_redirect_to_a_refused_address() -> None:
    with serving({}) as server, guarded() as transfers:
        server.replies["/"] = to(b"http://127.0.0.2:%d/secret" % server.port)
        result = result_of(transfers, f"{server.url}/", redirects=5)
        assert len(server.heads) == 1
    assert str(result) == "127.0.0.2 is refused"


def test_proxies(monkeypatch: pytest.MonkeyPatch, transfers: Transfers) -> None:
    """Of the environment, for what is trusted; one would connect to any address."""
    with serving({"http://images.test/": ok(b"proxied")}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        for name in "no_proxy", "NO_PROXY":
            monkeypatch.delenv(name, raising=False)
        answer = result_of(transfers, "http://images.test/")
        assert (answer.body, answer.address) == (b"proxied", "")
        with guarded(lambda _: ["127.0.0.2"]) as untrusted:
            assert str(result_of(untrusted, "http://images.test/")) == "127.0.0.2 is refused"
        assert len(proxy.heads) == 1
