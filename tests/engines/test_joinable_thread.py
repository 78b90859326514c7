"""JoinableThread: joined even where an interrupt hit its start."""

from __future__ import annotations

import time

import pytest

from wallclock.engines.joinable_thread import JoinableThread


def test_an_interrupted_start_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def work() -> None:
        time.sleep(0.2)
        done.append(True)

    def interrupted(timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    hand = JoinableThread(work, "test")
    # `Thread.start` has begun the thread by then, and waits to hear from it.
    monkeypatch.setattr(hand._thread._started, "wait", interrupted)  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        hand.start()
    monkeypatch.undo()
    hand.join()
    assert done == [True]


def test_what_was_never_started_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = JoinableThread(lambda: None, "test")
    monkeypatch.setattr(hand._running, "wait", lambda timeout: pytest.fail("nothing will run"))
    hand.join()
