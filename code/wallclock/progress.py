"""How far a run is and how long it will take: bars on a terminal, lines elsewhere."""

import time
from contextlib import AbstractContextManager, nullcontext

from rich import progress as rich
from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn
from rich.table import Column

#: Without a terminal, the seconds between two lines that say how far the work is.
LINE_INTERVAL_S = 30.0


def bars(console: Console) -> AbstractContextManager[Progress]:
    """Show bars while the block runs; without a terminal they are counted and not drawn."""
    # In 80 columns the name gives way, never a number.
    name, number = Column(ratio=1, no_wrap=True, overflow="ellipsis"), Column(no_wrap=True)
    progress = Progress(
        TextColumn("{task.description}", table_column=name),
        rich.BarColumn(bar_width=12),
        rich.MofNCompleteColumn(table_column=number),
        rich.TimeElapsedColumn(table_column=number.copy()),
        TextColumn("{task.fields[note]}", table_column=number.copy()),
        console=console,
        speed_estimate_period=600.0,  # some batches take half a minute
        refresh_per_second=2,  # more would take time from what is being measured
        transient=True,
        expand=True,
    )
    return progress if console.is_terminal else nullcontext(progress)


def waiting(console: Console, what: str) -> AbstractContextManager[object]:
    """Show on a terminal what is done while the block runs, and for how long."""
    columns = (rich.SpinnerColumn(), TextColumn("{task.description}"), rich.TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    progress.add_task(what, total=None)
    return progress


class CorpusProgress:
    """Progress of preparing a corpus: called with `(done, total, step)`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._last_line, self._updated_s = time.monotonic(), 0.0

    def __call__(self, done: int, total: int, step: str, limited_by: str = "") -> None:
        """`done` of `total` images have passed the step, which `limited_by` slows down most."""
        now, is_new = time.monotonic(), step not in self._tasks
        # At each update rich walks through its last 1,000 for the rate.
        if not is_new and done < total and now < self._updated_s + 0.1:
            return
        self._updated_s = now
        if is_new:
            self._tasks[step] = self._progress.add_task(step, total=total, note="")
        task_id, console = self._tasks[step], self._progress.console
        self._progress.update(task_id, completed=done, total=total)
        # The first image, which may stand for many of an earlier run, is not in rich's rate.
        task = self._progress.tasks[task_id]
        notes = []
        if task.speed:  # after a second update
            left = format_duration(task.time_remaining or 0)
            notes += [format_rate(task.speed), f"{left} left"]
        if limited_by:
            notes.append(f"bottleneck: {limited_by}")
        note = " · ".join(notes)
        if not console.is_terminal and now - self._last_line > LINE_INTERVAL_S:
            self._last_line = now
            line = ", ".join(filter(None, (f"{step}: {done:,} of {total:,}", note)))
            console.print(line, markup=False, highlight=False)
        self._progress.update(task_id, note=note)


def format_rate(per_s: float) -> str:
    """'1,234 images/s', '0.4 images/s'."""
    return f"{per_s:,.0f} images/s" if per_s >= 10 else f"{per_s:.2g} images/s"


def format_duration(seconds: float) -> str:
    """'45 s', '12 min', '3.4 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
