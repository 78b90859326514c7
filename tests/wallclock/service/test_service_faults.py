"""Real processes and what goes wrong with them: no message lost, none accepted twice."""

import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from harness.testbed.serving import process, serving
from harness.testbed.sqs import SqsServer
from tests.wallclock.service.bed import Bed, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def images(bed: Bed, n: int) -> list[str]:
    return [bed.body(number % 20) for number in range(n)]


def check(bed: Bed, expected: set[str], duplicates: int | None = None) -> None:
    """Every message of these was accepted, with one body; the queue is empty."""
    wait_until(lambda: bed.count("work") == 0)
    stats = bed.stats(bed.calls)
    assert set(stats["accepted_at_s"]) == expected
    assert stats.get("conflicts", 0) == 0
    if duplicates is not None:
        assert stats.get("duplicates", 0) <= duplicates


def downloads_since(bed: Bed, before: int) -> bool:
    return bool(bed.stats(bed.images).get("requests", 0) > before)


@pytest.mark.timeout(600)
def test_kills_stops_and_a_receiver_that_is_down(stack: ExitStack, tmp_path: Path) -> None:
    """Nine of ten images have a result, the others a failure: each requester hears once of it.

    A tenth of the callbacks are accepted, and their answer is lost.
    """
    rng, bed = random.Random(1), Bed(stack, tmp_path)
    words = ("notify_failures=true", "attempts=2", "step_s=0.1", "batch=4")
    failing = [bed.body("none", f"#{n}") for n in range(100)]
    bodies = images(bed, 900) + failing
    rng.shuffle(bodies)
    expected = bed.send(bodies)
    ends = [signal.SIGKILL] * 10 + [signal.SIGTERM] * 5
    rng.shuffle(ends)
    amid = 0
    for number, end in enumerate(ends):
        bed.change(bed.calls, reset_rate=float(number in (5, 6, 7)), cut_rate=0.1)
        n_downloads = bed.stats(bed.images).get("requests", 0)
        with bed.service(*words) as service:
            wait_until(partial(downloads_since, bed, n_downloads))
            time.sleep(rng.uniform(0, 2))
            amid += bed.count("work", "NotVisible") > 0
            service.send_signal(end)
            status = service.wait(30)
        assert end == signal.SIGKILL or status == 0
    assert amid == len(ends), "every end was amid work"
    with bed.service(*words):
        wait_until(lambda: bed.count("work") == 0, 120)
    check(bed, expected)
    dead = bed.dead()
    assert set(dead) == set(failing)
    assert set(dead.values()) == {("download", "HTTP 404")}


def test_sigterm_finishes_and_a_second_signal_returns(stack: ExitStack, tmp_path: Path) -> None:
    """Neither loses a message, downloads it twice, or lets it wait for its timeout."""
    bed = Bed(stack, tmp_path, visibility_s=600)
    expected = bed.send(images(bed, 600))
    for n_signals in (1, 2):
        done = len(bed.accepted())
        with bed.service("step_s=0.02", "batch=4") as service:
            wait_until(lambda done=done: len(bed.accepted()) > done)  # type: ignore[misc]
            for _ in range(n_signals):
                service.send_signal(signal.SIGTERM)
                time.sleep(0.1)
            assert service.wait(25) == 0
        assert done < len(bed.accepted()) < 600
        assert bed.count("work", "NotVisible") == 0
        if n_signals == 1:
            assert bed.stats(bed.images)["images"] == len(bed.accepted())
    with bed.service():
        check(bed, expected, duplicates=32)  # callbacks that the second signal cut off


def test_work_longer_than_the_visibility_timeout(stack: ExitStack, tmp_path: Path) -> None:
    bed = Bed(stack, tmp_path, visibility_s=1, max_receives=1)
    expected = bed.send(images(bed, 8))
    with bed.service("step_s=2.5", "batch=8"):
        check(bed, expected, duplicates=0)
    assert bed.stats(bed.images)["images"] == 8
    assert bed.dead() == {}


def test_callback_receiver_is_down(stack: ExitStack, tmp_path: Path) -> None:
    """Gone, then broken, then stalled, each for longer than the visibility timeout.

    The results are kept, not computed again.
    """
    bed = Bed(stack, tmp_path, max_receives=2)
    bed.calls_process.kill()
    expected = bed.send(images(bed, 300))
    with bed.service("step_s=0.02", "batch=8"):
        wait_until(lambda: bed.stats(bed.images).get("images", 0) > 20)
        time.sleep(3)
        bed.restart_calls()
        wait_until(lambda: bed.stats(bed.calls).get("accepted", 0) > 20)
        bed.change(bed.calls, error_rate=1)
        time.sleep(3)
        bed.change(bed.calls, error_rate=0)
        bed.calls_process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        bed.calls_process.send_signal(signal.SIGCONT)
        expected |= bed.send(images(bed, 100))
        check(bed, expected)
    assert bed.stats(bed.images)["images"] == 400
    assert bed.dead() == {}


def test_queue_server_is_restarted(stack: ExitStack, tmp_path: Path) -> None:
    bed = Bed(stack, tmp_path)
    expected = bed.send(images(bed, 600))
    with bed.service("step_s=0.02", "batch=4"):
        for _ in range(3):
            done = len(bed.accepted())
            wait_until(lambda done=done: len(bed.accepted()) > done)  # type: ignore[misc]
            bed.sqs_process.kill()
            bed.sqs_process.wait()
            time.sleep(0.5)
            port = bed.sqs.rpartition(":")[2]
            words = ("sqs", "--port", port, "--journal", str(bed.journal))
            _, bed.sqs_process = stack.enter_context(process(*words))
        check(bed, expected)
    log = bed.log.read_text(encoding="utf-8")
    assert log.count('"queue unreachable"') == log.count('"queue reachable again"') == 3


def test_clock_of_the_queue_leaps_ahead(stack: ExitStack, tmp_path: Path) -> None:
    """Each leap makes every held message visible: they are delivered again while they are held."""
    ahead_s = [3600.0]
    server = SqsServer(clock=lambda: time.time() + ahead_s[0])
    bed = Bed(stack, tmp_path, visibility_s=30, sqs=stack.enter_context(serving(server.handle)))
    expected = bed.send(images(bed, 400))
    with bed.service("step_s=0.05", "batch=4"):
        wait_until(lambda: len(bed.accepted()) > 0)
        for _ in range(10):
            time.sleep(0.2)
            ahead_s[0] += 60
        check(bed, expected, duplicates=0)
    assert bed.stats(bed.images)["images"] == 400
