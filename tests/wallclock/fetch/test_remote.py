"""What a server's answers come to: a failure that is the image's, or the world's, or an end."""

import gzip
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import count
from typing import Any

import pytest

from tests.threaded_server import FileHandler, ThreadedServer
from wallclock.errors import ImageError, NotReachedError, UserError
from wallclock.fetch import reach, remote, sources, transfers
from wallclock.fetch.remote_file import RemoteFile
from wallclock.fetch.retries import JITTER
from wallclock.fetch.sources import Source, SourceReader
from wallclock.recipe import Limits

#: A status and a body for a path and the number of the request for it, counted from 1.
Answers = Callable[[str, int], tuple[int, bytes]]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JITTER, "uniform", lambda low, high: high / 50)


@contextmanager
def serving(answers: Answers) -> Iterator[tuple[str, Counter[str]]]:
    """A server's URL, and how often each path was asked for."""
    asked: Counter[str] = Counter()

    class Handler(FileHandler):
        def answer(self) -> None:
            asked[self.path] += 1
            status, body = answers(self.path, asked[self.path])
            self.reply(status, {"Content-Length": str(len(body))}, body)

    with ThreadedServer(Handler) as server:
        yield server.endpoint, asked


def read(
    urls: Sequence[str], give_up_s: float = 0.3, ahead: bool = True, **limits: Any
) -> list[Any]:
    """What the reader of a job gives for each: bytes, or the error."""
    results: list[Any] = []
    given = Limits(max_bytes=1000, give_up_s=give_up_s, **limits)
    with closing(SourceReader(given, fetches_ahead=ahead)) as reader:
        sources = [Source(url, url) for url in urls]
        if ahead:
            reader.prefetch(sources)
        for source in sources:
            try:
                results.append(reader(source))
            except (ImageError, UserError) as error:
                results.append(error)
    return results


def unreached(results: Sequence[Any]) -> list[str]:
    """Of each result, whether and why it was not reached; empty for others."""
    return [getattr(result, "unreached", "") for result in results]


@pytest.fixture
def nobody() -> Iterator[str]:
    """A URL at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_what_is_the_images() -> None:
    statuses = {"/none": 404, "/gone": 410, "/odd": 418, "/secret": 403, "/long": 200, "/good": 200}
    with serving(lambda path, _: (statuses[path], b"x" * (5000 if "long" in path else 5))) as (
        server,
        asked,
    ):
        results = read([server + path for path in statuses])
    reasons = [getattr(result, "reason", result) for result in results]
    limit = "more bytes than the limit of 1,000"
    assert reasons == ["HTTP 404", "HTTP 410", "HTTP 418", "HTTP 403", limit, b"x" * 5]
    assert unreached(results) == [""] * 6
    assert set(asked.values()) == {1}


def test_a_busy_store_loses_nothing() -> None:
    """At any length of what it says."""
    busy = [(503, b"x" * 2000), (429, b""), (500, b"")]
    with serving(lambda _, n: (200, b"image") if n > 3 else busy[n - 1]) as (server, _):
        assert read([f"{server}/{at}" for at in range(100)], give_up_s=60) == [b"image"] * 100


@pytest.mark.parametrize("n", [1, 3, 40])
def test_all_is_forbidden(n: int) -> None:
    with serving(lambda *_: (403, b"")) as (server, asked):
        results = read([f"{server}/{at}" for at in range(n)])
        assert len(asked) <= 40
    assert {type(result) for result in results} == {UserError}
    assert "refuses all that was asked for: HTTP 403; check who may read there" in str(results[0])


def test_who_reads_one_image_hears_that_it_is_forbidden() -> None:
    with serving(lambda path, _: (403 if path < "/b" else 200, b"image")) as (server, _):
        results = read([f"{server}/a", f"{server}/b"], ahead=False)
    assert [str(result) for result in results] == ["read: HTTP 403", str(b"image")]


def test_a_body_that_is_compressed_unasked() -> None:
    packed = gzip.compress(b"image" * 100)
    answers = {
        "/packed": packed,
        "/twice": packed * 2,
        "/cut": packed[:-12],
        "/damaged": packed[:20] + bytes(len(packed) - 20),
        "/more": packed + b"more",
        "/bomb": gzip.compress(bytes(1_000_000)),
    }
    with serving(lambda path, _: (200, answers[path])) as (server, _):
        results = dict(zip(answers, read([server + path for path in answers]), strict=True))
    assert results.pop("/packed") == b"image" * 100
    assert results.pop("/twice") == b"image" * 200
    assert str(results.pop("/bomb")) == "read: more bytes than the limit of 1,000"
    assert [str(result)[:11] for result in results.values()] == ["read: gzip:"] * 3


@pytest.mark.parametrize("allowed", [False, True])
def test_all_that_is_left_is_forbidden(allowed: bool) -> None:
    """What was read in an earlier run is asked for, and tells whether it is the credentials."""
    with serving(lambda path, _: (200 if allowed and "known" in path else 403, b"")) as (server, _):
        urls = [f"{server}/{at}" for at in range(40)]
        results = read(urls, known=f"{server}/known")
    assert {type(result) for result in results} == {ImageError if allowed else UserError}


def test_a_store_that_is_down() -> None:
    """After `give_up_s` it is given up, also what was not asked for."""
    with serving(lambda *_: (503, b"")) as (server, asked):
        results = read([f"{server}/{at}" for at in range(200)])
    assert unreached(results) == ["all"] * 200
    assert len(asked) < 200
    assert str(results[0]) in ("read: HTTP 503", "read: its host was not reached: HTTP 503")


def test_a_host_that_is_down_among_others(nobody: str) -> None:
    with serving(lambda *_: (200, b"image")) as (server, _):
        urls = [f"{nobody if at % 5 == 1 else server}/{at}" for at in range(50)]
        results = read(urls)
    assert unreached(results) == ["one" if at % 5 == 1 else "" for at in range(50)]
    assert results[0::5] == [b"image"] * 10


@pytest.mark.parametrize("n_before", [0, 1])
def test_only_dead_hosts_are_left(
    n_before: int, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was reached before, now or in an earlier run, is asked whether it is them."""
    monkeypatch.setattr(reach, "_DOUBTED_AFTER_S", 0.02)
    with serving(lambda *_: (200, b"image")) as (server, asked):
        before = [f"{server}/known"] * n_before
        known = "" if before else f"{server}/known"
        dead = [f"{nobody}/{at}" for at in range(70)]
        results = read([*before, *dead], give_up_s=3, known=known)
        assert asked["/known"] > n_before
    assert unreached(results) == [""] * n_before + ["one"] * 70


def test_only_objects_that_never_come_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their bucket is not to blame: it gives what it gave in an earlier run."""
    monkeypatch.setattr(reach, "_DOUBTED_AFTER_S", 0.02)
    monkeypatch.setattr(JITTER, "uniform", lambda low, high: high / 5)

    def answer(path: str, _: int) -> tuple[int, bytes]:
        return (200, b"image") if path == "/known" else (503, b"")

    with serving(answer) as (server, _):
        results = read([f"{server}/{at}" for at in range(28)], 1, known=f"{server}/known")
    assert unreached(results) == ["one"] * 28


@pytest.mark.parametrize(("ahead_bytes", "n"), [(1 << 26, 300), (1000, 66)])
def test_small_images_are_fetched_further_ahead(
    ahead_bytes: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_AHEAD_BYTES", ahead_bytes)
    all_asked = threading.Event()

    def answer(*_: Any) -> tuple[int, bytes]:
        if len(asked) == n:
            all_asked.set()
        return 200, b"x" * 100

    with serving(answer) as (server, asked):
        urls = [Source(str(at), f"{server}/{at}") for at in range(300)]
        with closing(SourceReader(Limits())) as reader:
            reader.prefetch(urls)
            assert [reader(url) for url in urls[:2]] == [b"x" * 100] * 2
            assert all_asked.wait(60)
        assert len(asked) == n


def test_who_reads_one_image_does_not_wait_for_long(nobody: str) -> None:
    """And asks again for the next one: it may be a day later."""
    n = count()
    with serving(lambda *_: (503, b"") if next(n) < 4 else (200, b"image")) as (server, asked):
        results = read([f"{nobody}/a", f"{server}/b", f"{server}/c"], give_up_s=60, ahead=False)
        assert asked["/b"] == 4
    assert unreached(results) == ["one", "one", ""]
    assert isinstance(results[0], NotReachedError)
    assert results[2] == b"image"


@pytest.mark.parametrize("origin", ["127.0.0.1", "127.0.0.2", "1.1.1.1", ""])
def test_a_list_from_elsewhere_reaches_its_own_address(origin: str) -> None:
    with serving(lambda *_: (200, b"image")) as (server, asked):
        results = read([f"{server}/a", server.replace("127.0.0.1", "localhost")], origin=origin)
    if origin == "127.0.0.1":
        assert results == [b"image"] * 2
    else:
        refusal = "read: its address is not public, and the list comes from elsewhere"
        assert [str(result)[: len(refusal)] for result in results] == [refusal] * 2
        assert not asked


def test_who_stops_does_not_wait_for_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a program of the user's may be asked for."""
    asked, come = threading.Event(), threading.Event()

    def connect(_: str) -> Any:
        asked.set()
        come.wait()
        raise UserError("late")

    monkeypatch.setattr(remote, "connect", connect)
    with ThreadPoolExecutor() as pool, closing(SourceReader(Limits())) as reader:
        results = [pool.submit(reader, Source(url, url)) for url in ("s3://a/b", "s3://a/c")]
        assert asked.wait(60)
        reader.stop()
        errors = [result.exception(timeout=60) for result in results]
        come.set()
    assert [str(error) for error in errors] == ["read: the loader was closed"] * 2


class TestRemoteFile:
    data = bytes(range(256)) * 4000

    def serving(self, etag: str, cut_at: Sequence[int], *rest: Any) -> Any:
        """A server that cuts each answer but the last short; `rest` has another status and header
        for what is asked for from the middle on, as others would answer.
        """
        cuts = iter(cut_at)
        data = self.data

        class Handler(FileHandler):
            def answer(self) -> None:
                at = int(self.headers.get("Range", "bytes=0-")[6:-1])
                assert not at or self.headers["If-Match"] == etag
                body = data[at:]
                headers = {"Content-Length": str(len(body))} | ({"ETag": etag} if etag else {})
                cut = next(cuts, len(body))
                self.close_connection = cut < len(body)
                headers["Content-Range"] = f"bytes {at}-{len(data) - 1}/{len(data)}"
                status, header = rest if rest and at else (206 if at else 200, {})
                self.reply(status, headers | header, body[:cut])

        return ThreadedServer(Handler)

    def test_it_goes_on_where_it_was_cut(self) -> None:
        with (
            self.serving('"e"', [100, 0, 300_000]) as server,
            closing(RemoteFile(f"{server.endpoint}/a.tar", Limits(give_up_s=5))) as file,
        ):
            assert file.read(10) == self.data[:10]
            assert file.read() == self.data[10:]

    @pytest.mark.parametrize(
        ("status", "header"),
        [
            (206, {"ETag": '"other"'}),
            (206, {"Content-Range": "bytes 0-1023999/1024000"}),
            (206, {"Content-Range": ""}),
            (200, {}),
            (200, {"Content-Length": "0"}),
            (412, {"Content-Length": "0"}),
            (416, {"Content-Length": "0"}),
        ],
    )
    def test_what_has_changed_is_no_rest(self, status: int, header: dict[str, str]) -> None:
        with (
            self.serving('"e"', [300_000, 0], status, header) as server,
            closing(RemoteFile(f"{server.endpoint}/a.tar", Limits(give_up_s=0.5))) as file,
            pytest.raises(OSError, match="what the server sends is not its rest"),
        ):
            file.read()

    def test_a_busy_server_is_asked_again(self) -> None:
        """Whatever it says meanwhile, at any length."""
        replies = iter([(503, bytes(100_000)), (429, b""), (200, self.data)])
        with (
            serving(lambda *_: next(replies)) as (server, _),
            closing(RemoteFile(f"{server}/a.tar", Limits())) as file,
        ):
            assert file.read() == self.data

    @pytest.mark.parametrize("status", [204, 206, 304, 404])
    def test_another_answer_is_no_empty_file(self, status: int) -> None:
        with (
            serving(lambda *_: (status, b"")) as (server, _),
            closing(RemoteFile(f"{server}/a.tar", Limits())) as file,
            pytest.raises(OSError, match=f"HTTP {status}"),
        ):
            file.read()

    @pytest.mark.parametrize("reads_all", [True, False])
    def test_it_is_not_read_far_ahead(
        self, monkeypatch: pytest.MonkeyPatch, reads_all: bool
    ) -> None:
        """And is closed at once, though its thread waits to be read."""
        most, step = 100_000, 50_000
        monkeypatch.setattr(transfers, "_BUFFER_BYTES", step)
        with self.serving('"e"', []) as server:
            file, read = RemoteFile(f"{server.endpoint}/a.tar", Limits(), ahead=most), b""
            while len(read) < (len(self.data) if reads_all else 1):
                read += file.read(step) or b""
                assert file._n_waiting < most + step
            assert self.data.startswith(read)
            file.close()
            assert not file._transfers._thread.is_alive()

    @pytest.mark.parametrize("etag", ["", 'W/"e"'])
    def test_without_an_etag_it_cannot(self, etag: str) -> None:
        with (
            self.serving(etag, [300_000]) as server,
            closing(RemoteFile(f"{server.endpoint}/a.tar", Limits(give_up_s=5))) as file,
            pytest.raises(OSError, match="cut off before the end"),
        ):
            file.read()
