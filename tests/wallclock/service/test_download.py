"""Downloads and callbacks: what is retried, what is refused, and how a receiver checks them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from harness.testbed.callbacks import CallbackReceiver
from harness.testbed.faults import Faults
from harness.testbed.images import ImageServer
from harness.testbed.serving import Handler, listening, send_parts
from wallclock.fetch import request as request_module
from wallclock.fetch import transfers
from wallclock.fetch.retries import PermanentError, RequestError, TransientError
from wallclock.service.callbacks import (
    SECRET,
    SIGNATURE,
    CallbackSender,
    sign,
    signed_url,
    verify_signature,
)
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
    got = Got()

    async def pause(seconds: float) -> None:
        got.pauses.append(seconds)
        after_pause()

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


BODY = b'{"id":"1","result":[0.5]}'
ORIGIN = "https://results.example"
URL = f"{ORIGIN}/done"


def send(handler: Handler, query: str = "") -> RequestError | None:
    """Send a callback; its failure."""

    async def post() -> RequestError | None:
        settings = ServiceSettings(allow_private=True)
        sender = CallbackSender(settings, clock=lambda: 1000.9)
        async with listening(handler) as url, sender:
            try:
                await sender.send(f"{url}/done{query}", "key-1", BODY)
            except RequestError as error:
                return error
        return None

    return asyncio.run(post())


@pytest.mark.parametrize(
    ("query", "reason", "kind"),
    [
        ("?error_rate=1&status=503", "HTTP 503", TransientError),
        ("?error_rate=1&status=400", "HTTP 400", PermanentError),
    ],
)
def test_failures(query: str, reason: str, kind: type[RequestError]) -> None:
    receiver = CallbackReceiver()
    error = send(receiver.handle, query)
    assert (type(error), str(error)) == (kind, reason)
    assert receiver.counts["requests"] == 1


def test_redirects_are_not_followed() -> None:
    paths = list[str]()

    async def handle(request: web.BaseRequest) -> web.Response:
        paths.append(request.path)
        return web.Response(status=307, headers={"Location": "/other"})

    assert str(send(handle)) == "HTTP 307: redirects are not followed"
    assert paths == ["/done"]


@pytest.mark.parametrize(
    ("length", "sent", "connections"), [(0, 0, 1), (2, 2, 1), (1 << 20, 1 << 17, 3), (9, 2, 3)]
)
def test_the_body_of_an_answer(
    length: int, sent: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read if it is short, so that the connection lives on; whatever it does, the status counts."""
    monkeypatch.setattr(request_module, "_DRAIN_S", 60 if sent == length else 0.03)
    monkeypatch.setattr(transfers, "_CHECK_S", 0.02)
    peers = set()

    async def parts() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.001)  # the body comes in a segment of its own
        yield bytes(sent)
        await asyncio.sleep(3600 * (length > sent))  # and not all of it

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        peers.add(request.get_extra_info("peername"))
        return await send_parts(request, parts(), length)

    async def post() -> None:
        patient = ServiceSettings(allow_private=True, read_s=3600, total_s=3600)
        async with listening(handle) as url, CallbackSender(patient) as sender, asyncio.timeout(30):
            for _ in range(3):
                await sender.send(url, "key-1", BODY)

    asyncio.run(post())
    assert len(peers) == connections


def test_private_addresses_are_refused() -> None:
    async def post() -> None:
        async with CallbackSender(ServiceSettings()) as sender:
            with pytest.raises(PermanentError, match="address is not public"):
                await sender.send("http://169.254.169.254/", "key-1", BODY)

    asyncio.run(post())


@pytest.mark.parametrize("secret", ["", "correct horse"])
def test_what_a_receiver_sees(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, secret)
    seen: dict[str, Any] = {}

    async def handle(request: web.BaseRequest) -> web.Response:
        seen.update(request.headers, body=await request.read(), target=request.raw_path)
        return web.Response(status=204)

    assert send(handle, "?order=%C3%A9+7&x=a b#part") is None
    assert (seen["Content-Type"], seen["Idempotency-Key"]) == ("application/json", "key-1")
    if secret:
        request = f"http://{seen['Host']}", seen["target"], seen["body"]
        assert verify_signature(secret, seen[SIGNATURE], *request, now=1010)
    else:
        assert SIGNATURE not in seen


@pytest.mark.parametrize(
    ("url", "signed"),
    [
        ("HTTPS://Results.Example:443", "https://results.example/"),
        ("http://results.example:80/done#part", "http://results.example/done"),
        ("http://results.example:8080/a/../b?x=%2F", "http://results.example:8080/a/../b?x=%2F"),
        ("https://user:word@results.example/", "https://results.example/"),
        ("https://bücher.example/é?ü", "https://xn--bcher-kva.example/%C3%A9?%C3%BC"),
        ("http://[FE80::1]:80/", "http://[fe80::1]/"),
        ("http://[::1]:81/", "http://[::1]:81/"),
        ("https://results.example/a%2fb%20c", "https://results.example/a%2fb%20c"),
        ("https://results.example/b c%", "https://results.example/b%20c%"),
    ],
)
def test_signed_url(url: str, signed: str) -> None:
    assert signed_url(url) == signed_url(signed) == signed


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_signed_url_of_a_request_line_is_that_of_the_message(text: str) -> None:
    """However a message spells path and query: the receiver signs what it was asked for."""
    signed = signed_url(f"http://results.example/{text}")
    assert signed_url(signed) == signed


@pytest.mark.parametrize(
    "origin",
    [
        *("", "/done", "results.example", f"{ORIGIN}/", f"{ORIGIN}?", f"{ORIGIN}#"),
        *("https://a@b.example", "ftp://results.example", f"{ORIGIN}\\", f"{ORIGIN} {ORIGIN}"),
    ],
)
def test_an_origin_that_is_more_or_less_is_a_mistake(origin: str) -> None:
    with pytest.raises(ValueError, match=r"give scheme://host\[:port\]"):
        verify_signature("secret", HEADER, origin, "/done", BODY, now=1000)


def test_signature() -> None:
    # echo -n '1000 https://results.example/done {}' | openssl dgst -sha256 -hmac secret
    expected = "ebdf94ba92a6280445ea4b42fa7782f8dcbefbda98aecb0fc90f954c763b80cf"
    assert sign("secret", URL, b"{}", 1000) == f"t=1000,v2={expected}"


HEADER = sign("secret", URL, BODY, 1000)
#: echo -n '1000.{"id":"1","result":[0.5]}' | openssl dgst -sha256 -hmac secret
V1 = "aca7d3e3adc0bf3e403302d1d341431bae50c61a3a47a853ad817258f156481c"


@pytest.mark.parametrize(
    ("changes", "genuine"),
    [
        ({}, True),
        ({"now": 1300}, True),
        ({"now": 700}, True),
        ({"now": 1301}, False),
        ({"now": 699}, False),
        ({"now": 1301, "tolerance_s": 400}, True),
        ({"secret": "Secret"}, False),
        ({"body": BODY + b" "}, False),
        ({"header": ""}, False),
        ({"header": "t=1000"}, False),
        ({"header": "t=1000,v2=é"}, False),
        ({"header": "t=1000,v2=\udcff"}, False),
        ({"header": "t=٣,v2=00"}, False),
        ({"header": f"t={'9' * 5000},v2=00"}, False),
        ({"header": HEADER.replace("t=1000", "t=1200"), "now": 1200}, False),
        ({"header": HEADER.replace(",", ", ")}, True),
        ({"header": HEADER.replace("v2", "v1")}, False),
        ({"header": f"t=1000,v1={V1}"}, False),  # of time and body alone
        ({"header": f"t=1000,v2={V1}"}, False),
        ({"origin": "https://RESULTS.example:443"}, True),
        ({"origin": "https://other.example"}, False),
        ({"origin": "https://results.example:8443"}, False),
        ({"origin": "http://results.example"}, False),
        ({"target": "/other"}, False),
        ({"target": "/done?order=7"}, False),
        ({"target": "/done#part"}, False),
        ({"target": URL}, False),
    ],
)
def test_verify_signature(changes: dict[str, Any], genuine: bool) -> None:
    values: dict[str, Any] = {"secret": "secret", "header": HEADER, "body": BODY, "now": 1000}
    assert verify_signature(**values | {"origin": ORIGIN, "target": "/done"} | changes) is genuine
