"""Downloads from servers that are slow, broken, or lie: what is retried, and what is refused."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from harness.testbed.faults import Faults
from harness.testbed.images import ImageServer
from harness.testbed.serving import Handler, listening, send_parts
from tests.wallclock.fetch.authority import Authority
from wallclock.fetch import transfers
from wallclock.service.client import Downloader
from wallclock.service.interface import ItemError
from wallclock.service.settings import ServiceSettings

IMAGE = bytes(range(250)) * 4


@dataclass
class Got:
    """A download: its bytes or its failure, and the pauses between its tries."""

    data: bytes = b""
    error: ItemError | None = None
    pauses: list[float] = field(default_factory=list)


def download(
    handler: Handler, query: str = "", after_pause: Callable[[], object] = int, **settings: Any
) -> Got:
    """`after_pause`: true to give up."""
    got = Got()

    async def pause(seconds: float) -> object:
        got.pauses.append(seconds)
        return after_pause()

    async def get() -> None:
        values = ServiceSettings(allow_private=True, **settings)
        async with listening(handler) as url, Downloader(values, pause=pause) as downloader:
            try:
                got.data = await downloader.get(f"{url}/a.jpg{query}")
            except ItemError as error:
                got.error = error

    asyncio.run(get())
    return got


@pytest.fixture
def server(tmp_path: Path) -> ImageServer:
    (tmp_path / "a.jpg").write_bytes(IMAGE)
    return ImageServer(tmp_path)


@pytest.mark.parametrize("query", ["", "?redirects=3", "?body_s=0.001"])
def test_images(server: ImageServer, query: str) -> None:
    got = download(server.handle, query)
    assert (got.data, got.error, got.pauses) == (IMAGE, None, [])


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("?error_rate=1&status=503", "HTTP 503"),
        ("?cut_rate=1", ""),
        ("?latency_s=9", "silent, or slower than 1000 bytes a second, for 0.01 s"),
    ],
)
def test_transient_failures_are_retried(
    server: ImageServer, query: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "_CHECK_S", 0.02)
    got = download(server.handle, query, read_s=0.01 if "latency" in query else 10.0)
    assert got.error is not None
    assert not got.error.permanent
    assert reason in got.error.reason
    assert "\n" not in got.error.reason
    assert len(got.pauses) == 3
    assert all(0 <= pause <= 0.5 * 2**number for number, pause in enumerate(got.pauses))


def test_a_retry_that_succeeds(server: ImageServer) -> None:
    server.faults = Faults(reset_rate=1)

    def mend() -> None:
        server.faults = Faults()

    got = download(server.handle, after_pause=mend)
    assert (got.data, len(got.pauses)) == (IMAGE, 1)


@pytest.mark.parametrize(("patience", "pauses"), [(0, 1), (2, 3), (9, 4)])
def test_a_pause_may_give_up(server: ImageServer, patience: int, pauses: int) -> None:
    """`patience`: pauses that do not."""
    given_up = iter([False] * patience + [True])
    got = download(server.handle, "?error_rate=1", lambda: next(given_up), attempts=5)
    assert (got.error is not None, len(got.pauses)) == (True, pauses)


@pytest.mark.parametrize(
    ("query", "settings", "reason"),
    [
        ("?error_rate=1&status=404", {}, "HTTP 404"),
        ("?redirects=4", {}, "too many redirects"),
        ("?redirects=1", {"max_redirects": 0}, "too many redirects"),
        ("", {"max_bytes": len(IMAGE) - 1}, "more bytes than the limit of 999"),
    ],
)
def test_permanent_failures(
    server: ImageServer, query: str, settings: dict[str, Any], reason: str
) -> None:
    got = download(server.handle, query, **settings)
    assert got.error is not None
    assert (got.error.reason, got.error.permanent, got.pauses) == (reason, True, [])


def test_the_time_of_a_try_is_bounded(server: ImageServer) -> None:
    """Of all its redirects together."""
    settings: dict[str, Any] = {"total_s": 0.2, "max_redirects": 20, "attempts": 1}
    got = download(server.handle, "?redirects=20&latency_s=0.05", **settings)
    assert str(got.error) == "download: not done within 0.2 s"


@pytest.mark.parametrize(("asked", "least_s"), [("7", 7), ("3600", 8), ("soon", 0)])
def test_a_server_may_ask_for_a_pause(asked: str, least_s: float) -> None:
    """Of a few seconds at most: others wait for their download."""

    async def handle(request: web.BaseRequest) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": asked})

    assert all(least_s <= pause <= 8 for pause in download(handle).pauses)


def test_a_download_that_is_cancelled_disturbs_no_other(
    server: ImageServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def get() -> None:
        settings = ServiceSettings(allow_private=True)
        async with listening(server.handle) as url, Downloader(settings) as downloader:
            hanging = [
                asyncio.create_task(downloader.get(f"{url}/a.jpg?{query}"))
                for query in ("latency_s=9", "latency_s=0.01", "body_s=0.02")
            ]
            await asyncio.sleep(0.005)
            for task in hanging:
                task.cancel()
            for _ in range(3):
                assert await downloader.get(f"{url}/a.jpg?latency_s=0.01") == IMAGE
            assert all(task.cancelled() for task in hanging)

    asyncio.run(get())
    assert caplog.text == ""


def test_proxies_are_not_used(server: ImageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would connect to any address."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert download(server.handle).data == IMAGE


def test_certificates_are_checked(tmp_path: Path) -> None:
    """Who sends a message names a host that proves who it is."""

    async def get() -> None:
        context = Authority(tmp_path).context("localhost", 10)
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        async with server, Downloader(ServiceSettings(allow_private=True)) as downloader:
            with pytest.raises(ItemError, match=r"^download: certificate: ") as caught:
                await downloader.get(f"https://127.0.0.1:{port}/")
        assert caught.value.permanent

    asyncio.run(get())


def answering(headers: Mapping[str, str] | None = None) -> Handler:
    """A handler whose answers are chunked, have these headers, and end after 1 MB."""

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(16):
            yield bytes(1 << 16)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "identity"
        return await send_parts(request, parts(), headers=headers)

    return handle


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate"])
def test_compressed_bodies_are_refused(encoding: str) -> None:
    got = download(answering({"Content-Encoding": encoding}))
    assert got.error is not None
    assert got.error.permanent
    assert got.error.reason == "the body is compressed, though identity was asked for"
