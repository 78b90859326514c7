"""`wallclock serve`: from the command's words to a running service, and its exit status."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from wallclock.service.logs import set_up
from wallclock.service.settings import read
from wallclock.service.worker import Worker, queue_of

try:
    from uvloop import new_event_loop  # less CPU time a message than the standard library's
except ImportError:
    new_event_loop = None  # type: ignore[assignment]


def serve(url: str, words: Sequence[str]) -> int:
    """Serve a queue until SIGTERM or SIGINT; 0, or 128 + the signal if messages were not returned.

    1: the queue refuses to be served any longer; the log says why.

    A second signal returns what is held at once.

    Args:
        url: of the queue.
        words: `key=value` settings.

    Raises:
        UserError: a setting, a model or a queue that is not there.
    """
    sys.path.insert(0, os.getcwd())  # where a user's module is
    setup = read(words)
    set_up(setup.service.log)
    queue = queue_of(url, setup.service)  # before the module, which may take long to load
    module = setup.module(**setup.options)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_run(Worker(queue, setup.service, module)))


async def _run(worker: Worker) -> int:
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        worker.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    stuck = await worker.run()
    if worker.refused:
        return 1
    return 128 + received[0] if stuck and received else 0
