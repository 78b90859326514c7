"""Runs a program under the trace, in processes of its own, and gives its `Trace`."""

import contextlib
import os
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from tests.running import PATH
from wallclock.trace.collect import collect
from wallclock.trace.record import Function, Spent, Trace, by_function
from wallclock.trace.run import run

ENVIRONMENT = {**os.environ, **PATH}


@dataclass(frozen=True)
class Done:
    """What a traced program printed, and its trace."""

    trace: Trace
    stdout: str
    stderr: str

    def main(self) -> dict[Function, Spent]:
        """What the main thread of the main process spent."""
        return by_function(self.trace.threads(of_workers=False))

    def calls(self, stage: str, name: str) -> int:
        """Calls of a function in all processes."""
        threads = [thread for process in self.trace.processes for thread in process.threads]
        return by_function(threads).get(Function(stage, name), Spent()).calls

    def images(self, stage: str) -> int:
        """Images that a stage took in all processes."""
        threads = [thread for process in self.trace.processes for thread in process.threads]
        return sum(
            spent.images
            for function, spent in by_function(threads).items()
            if function.stage == stage
        )


def write(folder: Path, source: str, name: str = "program.py") -> Path:
    """A program as a file."""
    path = folder / name
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    return path


def trace(
    *words: str | Path, cwd: Path, given: str = "", env: Mapping[str, str] | None = None
) -> Done:
    """Trace `python words…`, from this process."""
    with contextlib.ExitStack() as stack:
        streams = [
            stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(3)
        ]
        streams[0].write(given)
        streams[0].seek(0)
        with (
            contextlib.chdir(cwd),
            mock.patch.dict(os.environ, {**ENVIRONMENT, **(env or {})}),
            _standard_streams([stream.fileno() for stream in streams]),
        ):
            counters = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            traced = collect(counters, run([*map(str, words)], counters))
        for stream in streams:
            stream.seek(0)
        _, stdout, stderr = (stream.read() for stream in streams)
    return Done(traced, stdout, stderr)


@contextlib.contextmanager
def _standard_streams(descriptors: Sequence[int]) -> Iterator[None]:
    """Standard input, output and error of this process and those that it starts."""
    kept = [os.dup(number) for number in range(3)]
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        yield
    finally:
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)
