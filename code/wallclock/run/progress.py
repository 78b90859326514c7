"""What a person sees while a run goes on: one bar for the corpus, one for the cells."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from wallclock.run.estimate import format_duration

#: Redraws a second. More would take time from what is being measured.
_REFRESH_HZ = 2
#: Where there is no terminal, a line about a long corpus step so often, in seconds.
_LINE_EVERY_S = 30.0


class Screen:
    """Progress bars on a terminal; a line per finished step elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress: Progress | None = None

    @contextmanager
    def bars(self) -> Iterator[Progress]:
        """Show bars while the block runs."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        progress = Progress(
            *columns, console=self.console, refresh_per_second=_REFRESH_HZ, transient=True
        )
        if not self.console.is_terminal:
            yield progress
            return
        with progress:
            yield progress


class CorpusProgress:
    """Progress of preparing a corpus: `(done, total, what)`, with the rate and the time left."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._what = ""
        self._total = -1
        self._began = 0.0
        self._before = 0
        self._bytes = 0
        self._said = time.monotonic()

    def add_bytes(self, n: int) -> None:
        """So many bytes of the current step have come over a network."""
        self._bytes += n

    def __call__(self, done: int, total: int, what: str) -> None:
        """`done` of `total` images are through the step called `what`."""
        if self._task is None or what != self._what:
            self._task = self._progress.add_task(what, total=total, note="")
            self._what, self._total = what, -1
        if total != self._total:
            # What was there before this step began is not its rate.
            self._total, self._began, self._before, self._bytes = (
                total,
                time.monotonic(),
                done - 1,
                0,
            )
        seconds = max(time.monotonic() - self._began, 1e-9)
        rate = (done - self._before) / seconds
        note = f"{rate:,.0f} images/s · {format_duration((total - done) / rate)} left"
        if self._bytes:
            note = f"{self._bytes / 1e6 / seconds:,.1f} MB/s · {note}"
        if not self._progress.console.is_terminal and time.monotonic() - self._said > _LINE_EVERY_S:
            self._said = time.monotonic()
            self._progress.console.print(
                f"{what}: {done:,} of {total:,}, {note}", markup=False, highlight=False
            )
        self._progress.update(self._task, completed=done, total=total, note=note)


class CellProgress:
    """Progress of the cells: how many are done, the current one's img/s, the time left."""

    def __init__(self, progress: Progress, total: int, seconds_left: float, screen: Screen) -> None:
        self._progress = progress
        self._screen = screen
        self._task = progress.add_task(
            "cells", total=total, note=f"about {format_duration(seconds_left)} left"
        )
        self._name = ""
        self._done = 0
        self._total = total
        self._began = 0.0

    def start(self, name: str, seconds_left: float) -> None:
        """A cell begins."""
        self._name, self._began = name, time.monotonic()
        self._progress.update(
            self._task, description=name, note=f"about {format_duration(seconds_left)} left"
        )

    def images(self, done: int, seconds_left: float) -> None:
        """The current cell has done so many images."""
        rate = done / max(time.monotonic() - self._began, 1e-9)
        self._progress.update(
            self._task, note=f"{rate:,.1f} img/s · about {format_duration(seconds_left)} left"
        )

    def finish(self, outcome: str) -> None:
        """The current cell ended."""
        self._done += 1
        self._progress.update(self._task, completed=self._done)
        if not self._screen.console.is_terminal:
            spent = format_duration(time.monotonic() - self._began)
            self._screen.console.print(
                f"[{self._done}/{self._total}] {self._name}: {outcome}, {spent}", markup=False
            )
