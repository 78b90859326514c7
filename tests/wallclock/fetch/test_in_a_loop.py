"""Transfers in an event loop. `test_download.py` and `test_callbacks.py` have what they answer."""

import asyncio
import os
import threading
import time
from concurrent.futures import CancelledError
from typing import Any

import pytest

from tests.wallclock.fetch.raw_server import ok, serving
from wallclock.fetch.request import Request
from wallclock.fetch.transfers import Transfers


def silent(_: Any) -> None:
    time.sleep(2)


def test_all_is_done_in_the_loops_thread() -> None:
    """No other one is started, and nothing stays open."""
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()

    async def ask(url: str) -> None:
        transfers, results = (
            Transfers(2, "tests/1", loop=asyncio.get_running_loop()),
            asyncio.Queue[Any](),
        )
        for path in "/", "/", "/none", "/":
            transfers.submit(Request(url + path, 10), results.put_nowait)
        assert threading.active_count() == threads + 1  # the server
        answers = [await results.get() for _ in range(4)]
        assert [answer.status for answer in answers] == [200] * 4
        transfers.close()

    with serving({"/": ok(b"body"), "/none": ok(b"")}) as server:
        asyncio.run(ask(server.url))
    deadline = time.monotonic() + 10
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("n_turns", [0, 3])
def test_closing_ends_what_is_on_its_way(n_turns: int) -> None:
    async def close(url: str) -> list[Any]:
        transfers, results = Transfers(2, "tests/1", loop=asyncio.get_running_loop()), list[Any]()
        for _ in range(4):
            transfers.submit(Request(url, 10), results.append)
        for _ in range(n_turns):
            await asyncio.sleep(0.001)
        transfers.close()
        transfers.submit(Request(url, 10), results.append)
        transfers.close()
        return results

    with serving({"/": silent}) as server:
        results = asyncio.run(close(f"{server.url}/"))
    assert [type(result) for result in results] == [CancelledError] * 5


def test_an_error_in_a_callback_ends_all() -> None:
    async def fail(url: str) -> list[Any]:
        transfers, results = (
            Transfers(2, "tests/1", loop=asyncio.get_running_loop()),
            asyncio.Queue[Any](),
        )
        transfers.submit(Request(f"{url}/silent", 10), results.put_nowait)
        transfers.submit(Request(f"{url}/", 10), lambda _: 1 // 0)
        ended = [await results.get()]
        transfers.submit(Request(f"{url}/", 10), results.put_nowait)
        return [*ended, results.get_nowait()]

    with serving({"/": ok(b"body"), "/silent": silent}) as server:
        for error in asyncio.run(fail(server.url)):
            with pytest.raises(RuntimeError, match="has failed: ZeroDivisionError"):
                raise error
