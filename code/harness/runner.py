"""Runs cells: reuses what is measured, shuffles the rest in blocks, a fresh process for each.

The runner never imports torch: it starts `harness.worker` processes one at a time, reads
their progress and leaves the records to them.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from harness import provenance, records
from harness.progress import CellProgress, Estimator
from harness.protocols import registry
from harness.records import Record
from harness.spec import ALLOCATORS, Cell, Settings
from harness.worker import USER_ERROR, work_dir
from wallclock.errors import UserError
from wallclock.progress import bars, format_duration

#: CUDA then numbers GPUs as NVML does, whose names and clocks the records hold.
_CUDA_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@dataclass
class Report:
    """Cells reused and measured, and the names of crashed cells with their standard error."""

    reused: int = 0
    measured: int = 0
    crashed: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        """Count another call's cells in."""
        self.reused += other.reused
        self.measured += other.measured
        self.crashed += other.crashed

    def summary(self) -> str:
        """'12 cells measured, 28 reused, 1 crashed'."""
        crashed = f", {len(self.crashed)} crashed" if self.crashed else ""
        return f"{self.measured} cells measured, {self.reused} reused{crashed}"


@dataclass(frozen=True)
class _Task:
    cell: Cell
    target: Path
    #: What the cell's result depends on besides the cell: machine, versions, code.
    identity: Mapping[str, Any]

    @property
    def name(self) -> str:
        image_set = f" {self.cell.corpus.image_set}" if self.cell.corpus else ""
        return f"{self.cell.experiment}/{self.cell.label}{image_set} #{self.cell.repeat + 1}"


def run(
    cells: Sequence[Cell],
    settings: Settings,
    context: Mapping[str, Any],
    console: Console,
    first_round: Sequence[Cell] = (),
    expected: Sequence[Cell] = (),
) -> Report:
    """Measure every cell that has no final record yet, then index the experiments.

    Args:
        cells: the grid, in table order.
        settings: where the records go, and the seed of the cells' order.
        context: added to the records' environment; it does not identify a cell.
        first_round: cells of an earlier call, which stay in the index.
        expected: cells like those of a later round, at most; only their time is printed.

    Raises:
        UserError: a request that a worker cannot meet.
        KeyboardInterrupt: after the running worker was stopped.
    """
    runs = settings.runs
    all_tasks = [_task(cell, runs) for cell in (*first_round, *cells)]
    tasks = all_tasks[len(first_round) :]
    todo = [task for task in tasks if not records.is_reusable(task.target, task.cell)]
    report = Report(reused=len(tasks) - len(todo))
    if todo:
        estimator = Estimator(runs, provenance.machine()["cores"])
        seconds_left = sum(estimator.seconds(task.cell) for task in todo)
        reused = f", {report.reused} reused" if report.reused else ""
        line = f"{len(todo)} cells to measure{reused}: about {format_duration(seconds_left)}"
        if expected:
            more = format_duration(sum(map(estimator.seconds, expected)))
            line += f"; then the second round, at most {len(expected)} cells: about {more}"
        console.print(line, highlight=False)
        with bars(console) as progress_bars:
            progress = CellProgress(progress_bars, len(todo))
            for task in _shuffled(todo, settings.seed):
                progress.start(task.name, seconds_left)
                _measure(task, context, progress, report)
                seconds_left -= estimator.seconds(task.cell)
    for experiment in dict.fromkeys(cell.experiment for cell in cells):
        names = [task.target.name for task in all_tasks if task.cell.experiment == experiment]
        records.write_index(runs, experiment, names)
    return report


def _task(cell: Cell, runs: Path) -> _Task:
    identity = provenance.identity(registry.timed_by(cell.protocol))
    return _Task(cell, runs / cell.experiment / records.key_of(cell, identity), identity)


def _shuffled(tasks: Sequence[_Task], seed: int) -> list[_Task]:
    """Cells in random order within a block (one repeat of one experiment), blocks in grid order.

    A slow minute of the machine is thus spread over all cells of a block instead of one.
    """
    blocks: dict[tuple[str, int], list[_Task]] = {}
    for task in tasks:
        blocks.setdefault((task.cell.experiment, task.cell.repeat), []).append(task)
    rng = random.Random(seed)
    return [task for block in blocks.values() for task in rng.sample(block, len(block))]


def _measure(
    task: _Task, context: Mapping[str, Any], progress: CellProgress, report: Report
) -> None:
    environment = {**task.identity, **context}
    with tempfile.TemporaryFile() as errors:
        worker = _start(task, environment, errors.fileno())
        try:
            message = _listen(worker, progress)
        finally:
            _stop(worker)
            shutil.rmtree(work_dir(task.target), ignore_errors=True)
        if worker.returncode == USER_ERROR:
            raise UserError(message)
        if worker.returncode == 0:
            report.measured += 1
            progress.finish(records.load(task.target).status)
            return
        errors.seek(0)
        stderr = errors.read().decode(errors="replace").strip()
    killed = worker.returncode == -signal.SIGKILL
    ended = "was killed (out of memory?)" if killed else f"ended with status {worker.returncode}"
    reason = stderr.splitlines()[-1] if stderr else f"the worker {ended}"
    report.crashed.append((task.name, stderr or reason))
    environment["before"] = provenance.current_state()
    records.write(task.target, Record(task.cell, "error", reason, environment=environment))
    progress.finish(f"error: {reason}")


def _start(task: _Task, environment: Mapping[str, Any], stderr: int) -> subprocess.Popen[str]:
    import_paths = f"{provenance.CODE}{os.pathsep}{provenance.ROOT}"
    allocator = dict(ALLOCATORS[task.cell.params.get("allocator", "default")])
    words = ["-m", "harness.worker"]
    if "pinned_cores" in task.cell.params:
        words = ["-m", "harness.pinned", str(task.cell.params["pinned_cores"]), *words]
    worker = subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        # A session of its own: Ctrl-C reaches the runner, which stops the whole group.
        start_new_session=True,
        env=os.environ | _CUDA_ORDER | allocator | {"PYTHONPATH": import_paths},
    )
    assert worker.stdin is not None
    message = {"cell": asdict(task.cell), "target": str(task.target), "environment": environment}
    worker.stdin.write(json.dumps(message) + "\n")
    worker.stdin.flush()
    return worker


def _listen(worker: subprocess.Popen[str], progress: CellProgress) -> str:
    """Follow a worker to its end; return the message of its error event, if any."""
    assert worker.stdout is not None
    message = ""
    for line in worker.stdout:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a library's own print
        match event:
            case {"event": "progress", "done": done}:
                progress.images(done)
            case {"event": "error", "message": text}:
                message = text
    worker.wait()
    return message


def _stop(worker: subprocess.Popen[str]) -> None:
    """End the worker and all processes it started; nothing to do when it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            stream.close()
