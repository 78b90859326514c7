"""How far a run is and how long it will take: bars on a terminal, lines elsewhere, estimates.

A cell's duration is estimated from earlier records of this machine, else from the paper's figures.
"""

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich import progress as rich
from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn

from wallclock import records
from wallclock.spec import Cell, ModelSpec

#: Redraws a second. More would take time from what is being measured.
_REFRESH_HZ = 2
#: Between two updates of a bar: rich walks through its last 1,000 for the rate.
_UPDATE_S = 0.1
#: Without a terminal, the interval of lines about a long corpus step, in seconds.
_LINE_INTERVAL_S = 30.0

#: Process start, imports and model load, in seconds, with and without torch.
_START_S = {True: 5.0, False: 1.0}
#: Seconds an image, from the paper: decode + resize with Pillow and with the native libraries; the
#: forward pass of a T4. A CPU's forward is the paper's 1.3 img/s on one thread.
_PILLOW_S = {"small_256": 0.0025, "original": 0.046}
_NATIVE_S = {"small_256": 0.0015, "original": 0.011}
_FORWARD_S = {"cuda": 1 / 264, "cpu": 1 / 1.3}
#: FP16's forward over FP32's: a CPU emulates it.
_FP16 = {"cuda": 264 / 1006, "cpu": 4.0}
#: Protocols that run the model.
_EMBEDS = frozenset({"serial", "fidelity", "profiler", "throughput", "runtime", "layers"})


def bars(console: Console) -> AbstractContextManager[Progress]:
    """Show bars while the block runs; without a terminal they are counted and not drawn."""
    columns = (rich.BarColumn(bar_width=24), rich.MofNCompleteColumn(), rich.TimeElapsedColumn())
    texts = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
    progress = Progress(
        *(texts[0], *columns, texts[1]),
        console=console,
        refresh_per_second=_REFRESH_HZ,
        transient=True,
    )
    return progress if console.is_terminal else nullcontext(progress)


class CorpusProgress:
    """Progress of preparing a corpus: called with `(done, total, step)`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._bytes = 0
        self._last_line, self._updated_s = time.monotonic(), 0.0
        #: What limits the step, where that is known.
        self.limited_by = ""

    def add_bytes(self, n: int) -> None:
        """So many bytes of the current step have been received over a network."""
        self._bytes += n

    def __call__(self, done: int, total: int, step: str) -> None:
        """`done` of `total` images have passed the step."""
        now, is_new = time.monotonic(), step not in self._tasks
        if not is_new and done < total and now < self._updated_s + _UPDATE_S:
            return
        self._updated_s = now
        if is_new:
            self._tasks[step], self._bytes = self._progress.add_task(step, total=total, note=""), 0
        task_id, console = self._tasks[step], self._progress.console
        self._progress.update(task_id, completed=done, total=total)
        # The first image, which may stand for many of an earlier run, is not in rich's rate.
        task = self._progress.tasks[task_id]
        left = format_duration(task.time_remaining or 0)
        note = f"{task.speed or 0:,.0f} images/s · {left} left"
        if self._bytes and task.elapsed:
            note = f"{self._bytes / 1e6 / task.elapsed:,.1f} MB/s · {note}"
        if self.limited_by:
            note += f" · {self.limited_by} limits"
        if not console.is_terminal and now - self._last_line > _LINE_INTERVAL_S:
            self._last_line = now
            console.print(f"{step}: {done:,} of {total:,}, {note}", markup=False, highlight=False)
        self._progress.update(task_id, note=note)


class CellProgress:
    """Progress of the cells: how many are done, the current one's img/s, the time left."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self._task = progress.add_task("cells", total=total, note="")
        self._name, self._left, self._start = "", "", 0.0

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
        if not self._progress.console.is_terminal:
            duration = format_duration(time.monotonic() - self._start)
            line = f"[{self._done}/{self._total}] {self._name}: {outcome}, {duration}"
            self._progress.console.print(line, markup=False)


class Estimator:
    """Estimates a cell's seconds, from the records of similar cells where there are any."""

    def __init__(self, runs: Path, cores: int) -> None:
        self._known = {
            _similarity_key(cell): (_images(cell), seconds)
            for cell, seconds in records.durations(runs)
        }
        self._cores = max(cores, 1)

    def seconds(self, cell: Cell) -> float:
        """Expected wall time of one cell, its process included."""
        known_n, known_s = self._known.get(_similarity_key(cell), (0, 0.0))
        if not known_s:
            return self._from_paper(cell)
        fixed = min(_START_S[True], known_s)
        return fixed + (known_s - fixed) * (_images(cell) / known_n if known_n else 1)

    def _from_paper(self, cell: Cell) -> float:
        embeds, n, recipe = cell.protocol in _EMBEDS, _images(cell), cell.recipe
        load = forward = 0.0
        if cell.corpus:
            of_one = _PILLOW_S if recipe.decoder == "pil" else _NATIVE_S
            load = of_one[cell.corpus.image_set]
        if embeds and cell.model.weights == "none":
            batch_ms, image_ms = cell.model.service_ms, cell.model.service_ms_per_image
            forward = (batch_ms / recipe.batch_size + image_ms) / 1e3
        elif embeds:
            one_core = recipe.device == "cuda" or recipe.torch_threads == 1
            forward = _FORWARD_S[recipe.device] / (1 if one_core else self._cores)
            forward *= _FP16[recipe.device] if recipe.dtype == "fp16" else 1
            # Of networks of the same depth: most of the work is products of width by width.
            forward *= (cell.model.dim / ModelSpec.dim) ** 2
        seconds = load + forward
        if cell.protocol == "throughput":
            # At least one batch is measured; what the loader prefetches warms up, at most half.
            n = max(n, recipe.batch_size)
            n += min(n // 2, (2 * recipe.workers + 1) * recipe.batch_size)
            # In the paper's cells with Pillow nothing overlaps: 168 img/s, and 170 serially.
            workers = recipe.workers or (self._cores if recipe.engine == "threads" else 0)
            if workers and recipe.decoder != "pil":
                seconds = max(forward, load / min(workers, self._cores))
        elif cell.protocol in ("runtime", "layers"):
            n = recipe.batch_size * (1 + int(cell.params["batches"]))
        elif cell.protocol == "formats":  # each is encoded, then decoded
            n *= 2 * len(cell.params["encodings"])
        # Of a loader's or a training's steady state, what was loaded ahead comes first.
        passes_of = {"contention": self._cores.bit_length() + 1, "step": 3}
        passes = (passes_of | {"train_step": 3, "train": 2}).get(cell.protocol, 1)
        if cell.protocol == "forms":
            passes = 4 * len(cell.params["where"])
        timed = passes * float(cell.params.get("seconds", 0))
        starts_torch = embeds or cell.protocol.startswith("train")
        return _START_S[starts_torch] + max(n * seconds, timed)


def _images(cell: Cell) -> int:
    return cell.corpus.n if cell.corpus else 0


def _similarity_key(cell: Cell) -> tuple[Any, ...]:
    image_set = cell.corpus.image_set if cell.corpus else ""
    measured = (cell.experiment, cell.protocol, cell.label, image_set)
    return (*measured, cell.model.weights, cell.recipe.device, cell.recipe.torch_threads)


def format_duration(seconds: float) -> str:
    """'45 s', '12 min', '3.4 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
