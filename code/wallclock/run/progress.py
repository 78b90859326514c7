"""Progress on the terminal while a run goes on: one bar for the corpus, one for the cells."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as rich
from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn

from wallclock.run.estimate import format_duration

#: Redraws a second. More would take time from what is being measured.
_REFRESH_HZ = 2
#: Without a terminal, the interval of lines about a long corpus step, in seconds.
_LINE_INTERVAL_S = 30.0


class Screen:
    """Progress bars on a terminal; a line per finished step elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def bars(self) -> Iterator[Progress]:
        """Show bars while the block runs."""
        progress = Progress(
            TextColumn("{task.description}"),
            rich.BarColumn(bar_width=24),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            refresh_per_second=_REFRESH_HZ,
            transient=True,
        )
        if not self.console.is_terminal:
            yield progress
            return
        with progress:
            yield progress


class CorpusProgress:
    """Progress of preparing a corpus: called with `(done, total, step)`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._step = ""
        self._total = -1
        self._start = 0.0
        self._done_before = 0
        self._bytes = 0
        self._last_line = time.monotonic()

    def add_bytes(self, n: int) -> None:
        """So many bytes of the current step have been received over a network."""
        self._bytes += n

    def __call__(self, done: int, total: int, step: str) -> None:
        """`done` of `total` images have passed the step."""
        now = time.monotonic()
        if self._task is None or step != self._step:
            self._task = self._progress.add_task(step, total=total, note="")
            self._step, self._total = step, -1
        if total != self._total:
            # Images that were there before this step began do not count in its rate.
            self._total, self._start, self._bytes = total, now, 0
            self._done_before = done - 1
        seconds = max(now - self._start, 1e-9)
        rate = (done - self._done_before) / seconds
        note = f"{rate:,.0f} images/s · {format_duration((total - done) / rate)} left"
        if self._bytes:
            note = f"{self._bytes / 1e6 / seconds:,.1f} MB/s · {note}"
        console = self._progress.console
        if not console.is_terminal and now - self._last_line > _LINE_INTERVAL_S:
            self._last_line = now
            console.print(f"{step}: {done:,} of {total:,}, {note}", markup=False, highlight=False)
        self._progress.update(self._task, completed=done, total=total, note=note)


class CellProgress:
    """Progress of the cells: how many are done, the current one's img/s, the time left."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("cells", total=total, note="")
        self._name = ""
        self._done = 0
        self._total = total
        self._start = 0.0
        self._left = ""

    def start(self, name: str, seconds_left: float) -> None:
        """A cell begins; the run is expected to take `seconds_left` more."""
        self._name, self._start = name, time.monotonic()
        self._left = f"about {format_duration(seconds_left)} left"
        self._progress.update(self._task, description=name, note=self._left)

    def images(self, done: int) -> None:
        """The current cell has done so many images."""
        rate = done / max(time.monotonic() - self._start, 1e-9)
        self._progress.update(self._task, note=f"{rate:,.1f} img/s · {self._left}")

    def finish(self, outcome: str) -> None:
        """The current cell ended."""
        self._done += 1
        self._progress.update(self._task, completed=self._done)
        console = self._progress.console
        if not console.is_terminal:
            duration = format_duration(time.monotonic() - self._start)
            line = f"[{self._done}/{self._total}] {self._name}: {outcome}, {duration}"
            console.print(line, markup=False)
