"""How far the cells of a run are, and how long they will take.

A cell's duration is estimated from earlier records of this machine, else from the paper's figures.
"""

import time
from pathlib import Path
from typing import Any

from rich.progress import Progress

from harness import records
from harness.engines.positions import batches_needed, plan_batches
from harness.spec import MOST_TIMES, Cell
from wallclock.progress import LINE_INTERVAL_S, format_duration
from wallclock.recipe import ModelSpec

#: Process start, imports and model load, in seconds, with and without torch; of a loader alone,
#: start and warm-up.
_START_TORCH_S, _START_S, _START_LOADER_S = 5.0, 1.0, 3.0
#: Seconds an image, from the paper: decode + resize with Pillow and with the native libraries; the
#: forward pass of a T4. A CPU's forward is the paper's 1.3 img/s on one thread.
_PILLOW_S = {"small_256": 0.0025, "original": 0.046}
_NATIVE_S = {"small_256": 0.0015, "original": 0.011}
_FORWARD_S = {"cuda": 1 / 264, "cpu": 1 / 1.3}
#: FP16's forward over FP32's: a CPU emulates it.
_FP16 = {"cuda": 264 / 1006, "cpu": 4.0}
#: A whole job on a system for clusters: its start, and its end.
_START_JOB_S = 10.0
#: A run that takes so many times as long as announced says so, once this many seconds are spent.
_SLOWER, _SURE_S = 1.5, 20.0
#: Protocols that run the model.
_EMBEDS = frozenset({"serial", "fidelity", "profiler", "throughput", "runtime", "layers"})
#: Protocols that start torch.
_STARTS_TORCH = _EMBEDS | {"contention", "batch_transfer", "step", "train", "train_step"}


class CellProgress:
    """Progress of the cells: how many are done, the current one's img/s, the time left.

    What is left is corrected by how long the cells so far took; `seconds_left` is as announced.
    """

    def __init__(self, progress: Progress) -> None:
        self.seconds_left = 0.0
        self._progress = progress
        self._done = self._total = 0
        #: Of the cells so far: seconds expected and spent; times as long as was last said.
        self._expected = self._spent = 0.0
        self._said = 1.0
        self._task = progress.add_task("cells", visible=False, note="")
        #: The current cell: its name, the line of the time left, when it began.
        self._name = ""
        self._left = ""
        self._start = self._last_line = time.monotonic()

    def add(self, seconds: float) -> None:
        """Another cell, which is expected to take so long."""
        self._total += 1
        self.seconds_left += seconds
        self._progress.update(self._task, total=self._total, visible=True)

    def start(self, name: str) -> None:
        """A cell begins."""
        self._name, self._start = name, time.monotonic()
        self._left = f"about {format_duration(self.seconds_left * self._pace())} left"
        self._progress.update(self._task, description=name, note=self._left)

    def images(self, done: int) -> None:
        """The current cell has done so many images."""
        rate = done / max(time.monotonic() - self._start, 1e-9)
        self._progress.update(self._task, note=f"{rate:,.1f} img/s · {self._left}")

    def finish(self, outcome: str, seconds: float) -> None:
        """The current cell ended; it was expected to take so long.

        Without a terminal a line says so, if it is time for one.
        """
        self._done += 1
        self.seconds_left -= seconds
        self._progress.update(self._task, completed=self._done)
        now = time.monotonic()
        self._expected += seconds
        self._spent += now - self._start
        pace = self._pace()
        if self._spent > _SURE_S and pace > _SLOWER * self._said:
            self._said = pace
            left = format_duration(self.seconds_left * pace)
            self.note(f"takes {pace:.1f} times as long as announced; about {left} left")
        if now - self._last_line > LINE_INTERVAL_S and not self._progress.console.is_terminal:
            self.note(f"{outcome}, {format_duration(now - self._start)}")

    def _pace(self) -> float:
        """How many times as long as expected the cells so far took; 1 before the first."""
        return self._spent / self._expected if self._expected else 1.0

    def note(self, text: str) -> None:
        """Print a line about the current cell."""
        self._last_line = time.monotonic()
        line = f"[{self._done}/{self._total}] {self._name}: {text}"
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


class Estimator:
    """Estimates a cell's seconds, from the records of similar cells where there are any."""

    def __init__(self, runs: Path, cores: int) -> None:
        #: Of earlier records: what makes cells similar → images and seconds.
        self._earlier = {
            _similarity_key(cell): (_images(cell), seconds)
            for cell, seconds in records.durations(runs)
        }
        self._cores = max(cores, 1)

    def seconds(self, cell: Cell) -> float:
        """Expected wall time of one cell, its process included."""
        earlier_n, earlier_s = self._earlier.get(_similarity_key(cell), (0, 0.0))
        if not earlier_s:
            return self._from_paper(cell)
        fixed = min(_START_TORCH_S, earlier_s)
        return fixed + (earlier_s - fixed) * (_images(cell) / earlier_n if earlier_n else 1)

    def _from_paper(self, cell: Cell) -> float:
        if cell.protocol == "cluster":  # a pass that tells how long one lasts, then that one
            least_s = float(cell.params.get("least_s", 0))
            return 2 * _START_JOB_S + least_s if least_s else _START_JOB_S
        embeds = cell.protocol in _EMBEDS
        n, recipe = _images(cell), cell.recipe
        load = warmup_s = 0.0
        if cell.corpus:
            load_s = _PILLOW_S if recipe.decoder == "pil" else _NATIVE_S
            load = load_s[cell.corpus.image_set]
        forward = 0.0
        if embeds and cell.model.weights == "none":
            batch_ms, image_ms = cell.model.service_ms, cell.model.service_ms_per_image
            forward = (batch_ms / recipe.batch_size + image_ms) / 1e3
        elif embeds:
            single = recipe.device == "cuda" or recipe.torch_threads == 1
            forward = _FORWARD_S[recipe.device] / (1 if single else self._cores)
            forward *= _FP16[recipe.device] if recipe.dtype == "fp16" else 1
            # Of networks of the same depth: most of the work is products of width by width.
            forward *= (cell.model.dim / ModelSpec.dim) ** 2
        seconds = load + forward
        if cell.protocol == "throughput":
            warm, count, positions = plan_batches(n, recipe, batches_needed(cell))
            n = sum(map(len, positions[: warm + count]))
            # In the paper's cells with Pillow nothing overlaps: 168 img/s, and 170 serially.
            workers = recipe.workers or (self._cores if recipe.engine == "threads" else 0)
            if workers and recipe.decoder != "pil":
                seconds = max(forward, load / min(workers, self._cores))
        elif cell.protocol in ("runtime", "layers"):
            n = recipe.batch_size * (1 + int(cell.params["batches"]))
            warmup_s = float(cell.params.get("warmup_seconds", 0))
        elif cell.protocol == "formats":  # each is encoded, then decoded
            n *= 2 * len(cell.params["encodings"])
        # Of a loader's or a training's steady state, what was loaded ahead comes first.
        passes_of = {
            "step": 3,
            "train_step": 3,
            "train": 2,
            "forms": 4 * len(cell.params.get("where", ())),
        }
        timed = passes_of.get(cell.protocol, 1) * float(cell.params.get("seconds", 0))
        start = _START_TORCH_S if cell.protocol in _STARTS_TORCH else _START_S
        if cell.protocol == "contention":
            # As many processes as cores take as long as one alone, twice as many twice as long.
            alone_s = min(max(n * seconds, timed), MOST_TIMES * timed)
            return start + (self._cores.bit_length() + 2) * alone_s
        if cell.protocol == "loading":
            start, n = _START_LOADER_S, max(n, int(cell.params.get("min_images", 0)))
        return start + warmup_s + max(n * seconds, timed)


def _images(cell: Cell) -> int:
    return cell.corpus.n if cell.corpus else 0


def _similarity_key(cell: Cell) -> tuple[Any, ...]:
    return (
        cell.experiment,
        cell.protocol,
        cell.label,
        cell.corpus.image_set if cell.corpus else "",
        cell.model.weights,
        cell.recipe.device,
        cell.recipe.torch_threads,
    )
