"""As for the harness's engines, libraries have one thread before a loader forks."""

import multiprocessing
import threading
from collections.abc import Iterator

import pytest

from tests.harness.engines.conftest import _single_threaded_libraries as _single_threaded_libraries


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Neither a thread nor a process of a loader or a sink outlives its block."""
    yield
    for thread in threading.enumerate():
        if thread.name == "loader stream":  # its generator may wait for the test's last line
            thread.join(10)
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith(("loader", "remote-read", "sink"))]
    assert not multiprocessing.active_children()
