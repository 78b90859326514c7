"""examples/picture_api.py: a picture's URL in, the service's result out."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests

from examples.picture_api import Pictures, PictureServer
from harness.testbed.api import ACCOUNT
from harness.testbed.images import ImageServer
from harness.testbed.serving import listening
from harness.testbed.sqs import SqsServer
from tests.conftest import ROOT
from tests.wallclock.service.bed import Bed
from tests.wallclock.service.toy import Adding
from wallclock.service.callbacks import SECRET, SIGNATURE, sign
from wallclock.service.settings import read
from wallclock.service.worker import Worker, queue_of

SETTINGS = (
    "module=tests.wallclock.service.toy:Adding",
    "allow_private=true",
    "notify_failures=true",
    "port=0",
    "wait_s=0",
    "attempts=1",
)


@contextmanager
def endpoint(send: Any, seconds: float = 20, most: int = 10) -> Iterator[str]:
    """The URL of a server of pictures in a thread."""
    with PictureServer("127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        server.pictures = Pictures(send, f"{url}/done", seconds, most)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield url
        server.shutdown()
        thread.join()


def post(url: str, value: Any, **headers: str) -> tuple[int, Any]:
    answer = requests.post(url, json.dumps(value), headers=headers, timeout=30)
    return answer.status_code, answer.json()


async def served(folder: Path, *pictures: Any) -> list[tuple[int, Any]]:
    """The answers for pictures, by a service between the test bed's queue and image store."""
    sqs, store = SqsServer(), ImageServer(folder)
    await sqs.call("CreateQueue", {"QueueName": "dead"})
    arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    await sqs.call("CreateQueue", {"QueueName": "work", "Attributes": {"RedrivePolicy": policy}})
    async with listening(sqs.handle) as queue, listening(store.handle) as images:
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        client = boto3.client("sqs", "us-east-1", endpoint_url=queue, **keys)

        def send(body: str) -> object:
            return client.send_message(QueueUrl="work", MessageBody=body)

        with endpoint(send) as url:
            setup = read(SETTINGS, {})
            worker = Worker(queue_of(f"{queue}/{ACCOUNT}/work", setup.service), setup, Adding())
            running = asyncio.create_task(worker.run())
            text = json.dumps(pictures).replace("IMAGES", images)
            asked = [asyncio.to_thread(post, f"{url}/pictures", each) for each in json.loads(text)]
            answers = await asyncio.gather(*asked)
            worker.stop()
            assert await running == 0
        client.close()
    return answers


def test_a_picture_goes_through_queue_module_and_callback(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / str(n)).write_bytes(bytes([n, 0]))
    (tmp_path / "short").write_bytes(b"x")
    adding = [{"url": f"IMAGES/{n}", "parameters": {"add": 10 * n}} for n in range(3)]
    failing = [{"url": f"IMAGES/{name}"} for name in ("short", "none")]
    answers = asyncio.run(served(tmp_path, *adding, *failing))
    assert [status for status, _ in answers] == [200, 200, 200, 422, 422]
    assert [value["result"] for _, value in answers[:3]] == [0, 11, 22]
    assert [value["error"]["stage"] for _, value in answers[3:]] == ["decode", "download"]
    assert len({value["id"] for _, value in answers}) == 5


def test_no_callback_is_a_timeout_and_a_late_one_is_accepted() -> None:
    sent: list[str] = []
    with endpoint(sent.append, seconds=0.1) as url:
        status, value = post(f"{url}/pictures", {"url": "http://example.org/a.jpg"})
        assert (status, value["error"]) == (504, "no result within 0.1 s")
        message = json.loads(sent[0])
        assert message["callback_url"] == f"{url}/done"
        assert post(message["callback_url"], {"id": message["id"], "result": 1}) == (200, {})


def test_only_so_many_wait() -> None:
    sent: list[str] = []
    with endpoint(sent.append, most=1) as url:
        first: list[Any] = []

        def ask() -> None:
            first.append(post(f"{url}/pictures", {"url": "a"}))

        thread = threading.Thread(target=ask)
        thread.start()
        while not sent:
            time.sleep(0.01)
        assert post(f"{url}/pictures", {"url": "b"})[0] == 503
        identity = json.loads(sent[0])["id"]
        for result in (1, 2):  # the second is a repeat
            assert post(f"{url}/done", {"id": identity, "result": result}) == (200, {})
        thread.join()
        assert first == [(200, {"id": identity, "result": 1})]
        assert len(sent) == 1, "who is refused sends nothing"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/pictures", "no JSON", 400),
        ("/pictures", "[]", 400),
        ("/pictures", '{"url": 1}', 400),
        ("/done", "[]", 400),
        ("/else", "{}", 404),
        ("/pictures", "x" * ((1 << 20) + 1), 413),
    ],
)
def test_what_is_refused(path: str, body: str, status: int) -> None:
    sent: list[str] = []
    with endpoint(sent.append) as url:
        assert requests.post(url + path, body, timeout=10).status_code == status
    assert sent == []


def test_a_callback_must_be_signed_where_there_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "secret")
    with endpoint(print) as url:
        body = b'{"id": "unknown"}'
        assert requests.post(f"{url}/done", body, timeout=10).status_code == 403
        headers = {SIGNATURE: sign("secret", f"{url}/done", body, int(time.time()))}
        answer = requests.post(f"{url}/done", body, headers=headers, timeout=10)
        assert answer.status_code == 200


def run(*words: str, **environment: str) -> "subprocess.Popen[str]":
    """The example as a process."""
    path = os.pathsep.join((str(ROOT / "code"), str(ROOT)))
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "examples.picture_api", *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_help_and_a_missing_region_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = run("--help").communicate(timeout=60)
    assert "POST /pictures" in out
    assert err == ""
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    queue = "http://127.0.0.1:1/queue"
    _, err = run(queue, AWS_CONFIG_FILE="/nowhere").communicate(timeout=60)
    assert err.splitlines()[-1].startswith(
        "python -m examples.picture_api: error: You must specify"
    )


@pytest.mark.slow
def test_processes_of_their_own(tmp_path: Path) -> None:
    with ExitStack() as stack:
        bed = Bed(stack, tmp_path, visibility_s=30)
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
        server = run(
            f"{bed.sqs}/{ACCOUNT}/work",
            "--port=0",
            AWS_ENDPOINT_URL=bed.sqs,
            AWS_DEFAULT_REGION="us-east-1",
            **keys,
        )
        stack.callback(server.communicate)
        stack.callback(server.terminate)
        assert server.stdout is not None
        url = server.stdout.readline().removeprefix("POST ").strip()
        with bed.service():
            assert post(url, {"url": f"{bed.images}/7"})[1]["result"] == [7]
