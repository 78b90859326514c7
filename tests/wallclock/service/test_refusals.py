"""Queues of moto with poison in them, FIFO or not; what a queue refuses for good, and its end."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import pytest
from aiohttp import web
from moto.server import ThreadedMotoServer
from moto.sqs.models import Queue

from harness.testbed.sqs import SqsServer
from tests.wallclock.service.local_bed import LocalBed, Moto, body
from tests.wallclock.service.toy import POISON

#: What fails, by the stage that refuses it, and why.
REASONS = {
    "parse": "the body is not JSON: ",
    "download": "HTTP 404",
    "decode": "truncated",
    "process": f"{POISON} in a batch",
    "callback": "HTTP 410",
}


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    delete, alone = Queue.delete_message, Lock()

    def delete_alone(queue: Queue, handle: str) -> None:
        """Of two at once, moto would undo one."""
        with alone:
            delete(queue, handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Queue, "delete_message", delete_alone)
        yield Moto(f"http://{host}:{port}")
    server.stop()


def messages(n: int) -> list[str]:
    """Of each ten one is poison; these are in one group of a FIFO queue."""
    refusing = json.dumps({"url": "IMAGES/1", "callback_url": "CALLS?error_rate=1&status=410"})
    poison = ["no JSON", body("none"), body("short"), body(POISON), refusing]
    texts = [body(number % 20, id=f"{number}") for number in range(n)]
    texts[::10] = [poison[number % 5] + " " * number for number in range(n // 10)]
    return texts


@pytest.mark.timeout(600)
@pytest.mark.parametrize("n", [50, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fifo", [False, True])
def test_every_message_is_called_back_or_dead_lettered(
    fifo: bool, n: int, moto: Moto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bed, n_dead = LocalBed(tmp_path, moto, fifo), n // 10

    async def serve() -> list[tuple[str, str]]:
        # Two receives at a time would get the same messages of moto.
        metrics = await bed.run(messages(n), "pulls=1", until=n)
        # One of five is transient: it is tried twice, as often as the queue says.
        counts = {"delivered": n - n_dead, "dead_lettered": n_dead, "retried": n_dead // 5}
        for outcome, count in {**counts, "lost": 0}.items():
            assert f'wallclock_service_messages_total{{outcome="{outcome}"}} {count}.0' in metrics
        assert f"wallclock_service_redeliveries_total {n_dead // 5}.0" in metrics
        assert await bed.counts(bed.work) == (0, 0)
        letters = await bed.dead_letters()
        for name in (bed.work, bed.dead):
            await moto.call("DeleteQueue", {"QueueUrl": name})
        return [*letters.values()]

    letters = asyncio.run(serve())
    assert Counter(stage for stage, _ in letters) == dict.fromkeys(REASONS, n_dead // 5)
    assert all(reason.startswith(REASONS[stage]) for stage, reason in letters)
    results = [json.loads(accepted.body) for accepted in bed.calls.accepted.values()]
    expected = {str(number): [number % 20] for number in range(n) if number % 10}
    assert {result["id"]: result["result"] for result in results} == expected
    assert refusals(caplog) == []


class Denying(SqsServer):
    """Refuses every SendMessage."""

    async def handle(self, request: web.BaseRequest) -> web.Response:
        if request.headers["X-Amz-Target"] != "AmazonSQS.SendMessage":
            return await super().handle(request)
        reason = {"__type": "com.amazonaws.sqs#AccessDeniedException", "message": "not\nyou"}
        return web.json_response(reason, status=400)


def refusals(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Action and reason of what was refused, as the log has it."""
    records = [record for record in caplog.records if record.levelno == logging.ERROR]
    fields = [record.__dict__["fields"] for record in records]
    return [(values["action"], values["reason"]) for values in fields]


def test_dead_letters_that_may_not_be_sent_are_left_to_redrive(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve() -> dict[str, tuple[str, str]]:
        bed = LocalBed(tmp_path, Denying())
        metrics = await bed.run(messages(50), until=50)
        assert len(bed.calls.accepted) == 45
        assert "wallclock_service_refusals_total 9.0" in metrics
        assert await bed.counts("work") == (0, 0)
        return await bed.dead_letters()

    assert [*asyncio.run(serve()).values()] == [("", "")] * 5
    reason = "AccessDeniedException: not you; allow SendMessage to these credentials"
    assert refusals(caplog) == [("SendMessage", reason)]


@pytest.mark.parametrize("fifo", [False, True])
def test_a_queue_that_is_deleted_ends_the_service(
    fifo: bool, moto: Moto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it holds is finished first: no one else has it."""

    async def serve() -> LocalBed:
        bed = LocalBed(tmp_path, moto, fifo)

        def delete() -> bool:
            moto.client.delete_queue(QueueUrl=bed.work)
            return True

        words, bodies = ("step_s=0.05", "batch=2", "grace_s=60"), [body(1)] * 30
        await bed.run(bodies, *words, until=10, also=delete, status=1)
        await moto.call("DeleteQueue", {"QueueUrl": bed.dead})
        return bed

    bed = asyncio.run(serve())
    assert bed.images.counts["images"] == len(bed.calls.accepted) >= 10
    (_, said), *others = refusals(caplog)
    assert said == "QueueDoesNotExist: The specified queue does not exist; check the queue's URL"
    assert others == []
