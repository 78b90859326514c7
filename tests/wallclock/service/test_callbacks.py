"""Callbacks: retries with one key, what is refused, and the signature as a receiver checks it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from harness.testbed.callbacks import CallbackReceiver
from harness.testbed.faults import Faults
from harness.testbed.server import Handler, Request, Response
from harness.testbed.serving import listening
from wallclock.service import callbacks
from wallclock.service.callbacks import SECRET, SIGNATURE, CallbackSender, sign, verify_signature
from wallclock.service.module import ItemError
from wallclock.service.settings import CallbackSettings

BODY = b'{"id":"1","result":[0.5]}'


def send(
    handler: Handler, query: str = "", after_pause: Callable[[], object] = int
) -> ItemError | None:
    """Send a callback; its failure."""

    async def pause(seconds: float) -> None:
        after_pause()

    async def post() -> ItemError | None:
        settings = CallbackSettings(allow_private=True)
        sender = CallbackSender(settings, pause=pause, clock=lambda: 1000.9)
        async with listening(handler) as url, sender:
            try:
                await sender.send(f"{url}/done{query}", "key-1", BODY)
            except ItemError as error:
                return error
        return None

    return asyncio.run(post())


def test_a_lost_answer_leads_to_a_second_callback_with_the_same_key() -> None:
    receiver = CallbackReceiver(faults=Faults(cut_rate=1))

    def mend() -> None:
        receiver.faults = Faults()

    assert send(receiver.handle, after_pause=mend) is None
    assert receiver.accepted["key-1"].body == BODY
    assert (receiver.counts["accepted"], receiver.counts["duplicates"]) == (1, 1)
    assert receiver.counts["conflicts"] == 0


@pytest.mark.parametrize(
    ("query", "reason", "permanent", "requests"),
    [
        ("?error_rate=1&status=503", "HTTP 503", False, 4),
        ("?error_rate=1&status=429", "HTTP 429", False, 4),
        ("?error_rate=1&status=400", "HTTP 400", True, 1),
        ("?error_rate=1&status=410", "HTTP 410", True, 1),
        ("?error_rate=1&status=307", "HTTP 307: redirects are not followed", False, 4),
    ],
)
def test_failures(query: str, reason: str, permanent: bool, requests: int) -> None:
    receiver = CallbackReceiver()
    error = send(receiver.handle, query)
    assert error is not None
    assert (error.stage, error.reason, error.permanent) == ("callback", reason, permanent)
    assert receiver.counts["requests"] == requests


@pytest.mark.parametrize(
    ("length", "sent", "connections"), [(0, 0, 1), (2, 2, 1), (1 << 20, 1 << 17, 3), (9, 2, 3)]
)
def test_the_body_of_an_answer(
    length: int, sent: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read if it is short, so that the connection lives on; whatever it does, the status counts."""
    monkeypatch.setattr(callbacks, "_DRAIN_S", 60 if sent == length else 0.03)
    peers = set()

    async def parts() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.001)  # the body comes in a segment of its own
        yield bytes(sent)
        await asyncio.sleep(length > sent)  # and not all of it

    def handle(request: Request) -> Response:
        peers.add(request.transport.get_extra_info("peername"))
        return Response(body=parts(), length=length)

    async def post() -> None:
        settings = CallbackSettings(allow_private=True, attempts=1)
        async with listening(handle) as url, CallbackSender(settings) as sender:
            for _ in range(3):
                await sender.send(url, "key-1", BODY)

    asyncio.run(post())
    assert len(peers) == connections


def test_private_addresses_are_refused() -> None:
    async def post() -> None:
        async with CallbackSender() as sender:
            with pytest.raises(ItemError, match="address is not public") as caught:
                await sender.send("http://169.254.169.254/", "key-1", BODY)
        assert caught.value.permanent

    asyncio.run(post())


@pytest.mark.parametrize("secret", ["", "correct horse"])
def test_what_a_receiver_sees(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, secret)
    seen: dict[str, Any] = {}

    def handle(request: Request) -> Response:
        names = ("Content-Type", "Idempotency-Key", SIGNATURE)
        seen.update({name: request.header(name) for name in names}, body=request.body)
        return Response(204)

    assert send(handle) is None
    assert (seen["Content-Type"], seen["Idempotency-Key"]) == ("application/json", "key-1")
    if secret:
        assert verify_signature(secret, seen[SIGNATURE], seen["body"], now=1010)
    else:
        assert not seen[SIGNATURE]


def test_signature() -> None:
    # echo -n '1000.{}' | openssl dgst -sha256 -hmac secret
    expected = "026360fb6284f077f1148b1ae7c62679730497810a6a0321574de01e8b009e7a"
    assert sign("secret", b"{}", 1000) == f"t=1000,v1={expected}"


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
        ({"header": "v1=00"}, False),
        ({"header": "t=1000"}, False),
        ({"header": "t=1000,v1="}, False),
        ({"header": "t=1000,v1=é"}, False),
        ({"header": "t=٣,v1=00"}, False),
        ({"header": f"t={'9' * 5000},v1=00"}, False),
        ({"header": sign("secret", BODY, 1000).replace("t=1000", "t=1200"), "now": 1200}, False),
        ({"header": sign("secret", BODY, 1000).replace(",", ", ")}, True),
    ],
)
def test_verify_signature(changes: dict[str, Any], genuine: bool) -> None:
    header = sign("secret", BODY, 1000)
    values: dict[str, Any] = {"secret": "secret", "header": header, "body": BODY, "now": 1000}
    assert verify_signature(**values | changes) is genuine
