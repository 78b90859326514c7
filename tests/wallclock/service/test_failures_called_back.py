"""Failed images whose requesters are told: `notify_failures=true`."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web

from harness.testbed.callbacks import CallbackReceiver
from harness.testbed.faults import Faults
from tests.wallclock.service.local_bed import LocalBed, body
from tests.wallclock.service.toy import POISON
from wallclock.service.callbacks import SECRET, SIGNATURE, verify_signature

NOTIFY = "notify_failures=true"


class Checking(CallbackReceiver):
    """A receiver that counts the callbacks whose signature is genuine."""

    async def answer(self, request: web.BaseRequest, faults: Faults) -> web.StreamResponse:
        header, origin = request.headers[SIGNATURE], f"http://{request.host}"
        body, at = await request.read(), self._clock()
        genuine = verify_signature("secret", header, origin, request.path, body, at)
        self.counts["genuine"] += genuine
        return await super().answer(request, faults)


def test_every_requester_hears_what_became_of_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each dead letter's reason once, signed; of a body that is no request there is no callback."""
    monkeypatch.setenv(SECRET, "secret")
    bodies = ["{", *(body(image, id=str(image)) for image in (1, "short", "none", POISON))]

    async def serve() -> tuple[LocalBed, dict[str, tuple[str, str]]]:
        bed = LocalBed(tmp_path)
        bed.calls = Checking()
        # Three failures and a result are called back; all failures are dead letters.
        metrics = await bed.run(bodies, NOTIFY, until=4 + 4)
        assert 'wallclock_service_messages_total{outcome="dead_lettered"} 4.0' in metrics
        assert 'wallclock_service_messages_total{outcome="delivered"} 1.0' in metrics
        assert await bed.counts("work") == (0, 0)
        return bed, await bed.dead_letters()

    bed, dead = asyncio.run(serve())
    sent = {call["id"]: call for call in (json.loads(a.body) for a in bed.calls.accepted.values())}
    assert sent.pop("1") == {"id": "1", "result": [1]}
    assert {identity: call["error"] for identity, call in sent.items()} == {
        "short": {"stage": "decode", "reason": "truncated"},
        "none": {"stage": "download", "reason": "HTTP 404"},
        str(POISON): {"stage": "process", "reason": f"{POISON} in a batch"},
    }
    assert {*dead.values()} - {dead["{"]} == {
        (call["error"]["stage"], call["error"]["reason"]) for call in sent.values()
    }
    assert bed.calls.counts["genuine"] == bed.calls.counts["accepted"] == 4


def test_message_is_held_until_its_failure_is_delivered(tmp_path: Path) -> None:
    """A receiver that is down: no dead letter, the image is not requested again."""

    async def serve() -> LocalBed:
        bed = LocalBed(tmp_path)
        bed.calls.faults = Faults(error_rate=1)

        async def mend() -> None:
            while bed.calls.counts["errors"] < 3:
                await asyncio.sleep(0.01)
            assert await bed.counts("dead") == (0, 0)
            assert await bed.counts("work") == (0, 1)
            bed.calls.faults = Faults()

        mending = asyncio.create_task(mend())
        await bed.run([body("short")], NOTIFY, until=2)
        await mending
        assert await bed.counts("work") == (0, 0)
        return bed

    bed = asyncio.run(serve())
    assert (bed.calls.counts["accepted"], bed.images.counts["requests"]) == (1, 1)


@pytest.mark.parametrize(
    ("query", "deliveries"), [("?error_rate=1&status=410", 1), ("?error_rate=1&status=503", 2)]
)
def test_failure_that_cannot_be_delivered(
    query: str, deliveries: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused: a dead letter at once; down: after the last delivery. It has the image's reason."""
    text = json.dumps({"url": "IMAGES/short", "callback_url": f"CALLS{query}"})

    async def serve() -> tuple[LocalBed, dict[str, tuple[str, str]]]:
        bed = LocalBed(tmp_path)
        await bed.run([text], NOTIFY, "callback_patience_s=0", until=1)
        assert await bed.counts("work") == (0, 0)
        return bed, await bed.dead_letters()

    bed, dead = asyncio.run(serve())
    assert [*dead.values()] == [("decode", "truncated")]
    assert bed.images.counts["requests"] == bed.calls.counts["requests"] == deliveries
    logged = Counter(record.message for record in caplog.records)
    assert logged["failure not called back"] == 1
    assert logged["retried"] == deliveries - 1


def test_refused_result_is_no_failure_of_its_image(tmp_path: Path) -> None:
    text = json.dumps({"url": "IMAGES/1", "callback_url": "CALLS?error_rate=1&status=410"})

    async def serve() -> LocalBed:
        bed = LocalBed(tmp_path)
        await bed.run([text], NOTIFY, until=1)
        assert [stage for stage, _ in (await bed.dead_letters()).values()] == ["callback"]
        return bed

    assert asyncio.run(serve()).calls.counts["requests"] == 1
