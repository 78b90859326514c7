"""How the service stops: in its own words, and without waiting for what cannot be delivered."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.wallclock.service.local_bed import LocalBed, body

#: The service waits for its work as long as this test may last, and for receivers even longer.
PATIENT = ("grace_s=3600", "callback_patience_s=3600")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?error_rate=1", ["attempts=1"]),  # its result waits in a pause
        ("?error_rate=1", ["attempts=100"]),  # so does its request
        ("?latency_s=3600", ["read_s=0.5", "attempts=100"]),  # it hangs
    ],
)
def test_callback_that_fails_is_not_tried_again(
    query: str, words: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its message returns to the queue; what is in work meanwhile is finished."""
    failing = json.dumps({"url": "IMAGES/1", "callback_url": f"CALLS{query}", "id": "failing"})
    slow = [body("2?latency_s=0.3", id="slow")]

    async def serve() -> LocalBed:
        bed = LocalBed(tmp_path)

        def tried() -> bool:
            return bed.calls.counts["requests"] >= 2

        async with asyncio.timeout(30):
            await bed.run([failing, body(3), *slow], *PATIENT, *words, until=1, also=tried)
        assert await bed.counts("work") == (1, 0)
        assert await bed.counts("dead") == (0, 0)
        return bed

    bed = asyncio.run(serve())
    results = [json.loads(call.body) for call in bed.calls.accepted.values()]
    assert sorted(result["result"] for result in results) == [[2], [3]]
    retried = [r.__dict__["fields"] for r in caplog.records if r.message == "retried"]
    assert [fields["stage"] for fields in retried] == ["callback"]


LOADING = """
import time
from tests.wallclock.service.toy import Toy

class Slow(Toy):
    def __init__(self) -> None:
        print("loading", flush=True)
        time.sleep(600)
"""


def test_stopped_while_the_module_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "loading.py").write_text(LOADING, encoding="utf-8")
    words = ["serve", "http://127.0.0.1:1/0/work", "module=loading:Slow"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "wallclock", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "code"), str(ROOT)))},
        stdout=pipe,
        stderr=pipe,
        text=True,
    ) as service:
        try:
            assert service.stdout is not None
            assert service.stdout.readline() == "loading\n"
            service.send_signal(signal.SIGTERM)
            _, errors = service.communicate(timeout=30)
        finally:
            service.kill()
    assert errors.strip() == "wallclock: stopped; no message was taken yet"
    assert service.returncode == 128 + signal.SIGTERM
