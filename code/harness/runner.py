"""Runs cells: reuses what is measured, shuffles the rest in blocks, a fresh process for each.

The runner never imports torch: it starts `harness.worker` processes one at a time, reads
their progress and leaves the records to them.
"""

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import Progress

from harness import provenance, records
from harness.digests import digest_of
from harness.progress import CellProgress, Estimator
from harness.protocols import registry
from harness.records import Record
from harness.spec import ALLOCATORS, Cell, Settings
from harness.worker import work_dir
from wallclock.errors import UserError
from wallclock.files import write_text
from wallclock.outside import printable
from wallclock.progress import format_duration

#: CUDA then numbers GPUs as NVML does, whose names and clocks the records hold.
_CUDA_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
#: A worker that says nothing for so long hangs: in seconds, and in times of the cell's estimate.
_SILENT_S, _SLOWER = 1200.0, 10


@dataclass
class Report:
    """Cells reused, measured, and not to be measured here; why others crashed, by name.

    `crashed`: twice; `recovered`: at the first try alone.
    """

    reused: int = 0
    measured: int = 0
    unavailable: int = 0
    crashed: dict[str, str] = field(default_factory=dict)
    recovered: dict[str, str] = field(default_factory=dict)

    def summary(self) -> str:
        """'12 cells measured, 28 reused, 3 unavailable, 1 crashed'."""
        others = (("unavailable", self.unavailable), ("crashed", len(self.crashed)))
        named = "".join(f", {n} {word}" for word, n in others if n)
        return f"{self.measured} cells measured, {self.reused} reused{named}"


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


class Runner:
    """Measures the cells of one command: those that have no final record yet.

    `add` cells, then `measure` an experiment's. `context` is added to the records' environment; it
    does not identify a cell.
    """

    def __init__(
        self, settings: Settings, context: Mapping[str, Any], report: Report, progress: Progress
    ) -> None:
        self.report = report
        self._settings, self._context = settings, context
        self._estimator = Estimator(settings.runs, provenance.machine()["cores"])
        self._progress, self._console = CellProgress(progress), progress.console
        #: Of each experiment: the names of its records, in table order, and what is missing.
        self._names: dict[str, list[str]] = {}
        self._todo: dict[str, list[_Task]] = {}
        #: Why cells that have a record are measured again, and how many for that.
        self._again: Counter[str] = Counter()

    def add(self, cells: Sequence[Cell]) -> None:
        """Plan an experiment's cells, in table order."""
        for cell in cells:
            identity = provenance.identity(registry.timed_by(cell.protocol, cell.experiment))
            lasting = provenance.lasting(identity)
            target = self._settings.runs / cell.experiment / records.key_of(cell, lasting)
            self._names.setdefault(cell.experiment, []).append(target.name)
            if records.is_reusable(target, cell):
                self.report.reused += 1
            else:
                self._todo.setdefault(cell.experiment, []).append(_Task(cell, target, identity))
                self._progress.add(self._estimator.seconds(cell))
                if why := _why_again(target, cell, identity):
                    self._again[why] += 1

    def announce(self, expected: Sequence[Cell]) -> None:
        """Print how long the planned cells take, and at most the `expected` ones after them."""
        n, reused = sum(map(len, self._todo.values())), self.report.reused
        if not n:
            return
        line = f"{n} cells to measure{f', {reused} reused' if reused else ''}: "
        line += f"about {format_duration(self._progress.seconds_left)}"
        if expected:
            more = format_duration(sum(map(self._estimator.seconds, expected)))
            line += f"; then the second round, at most {len(expected)} cells: about {more}"
        self._console.print(line, highlight=False)
        for why, cells in self._again.items():
            self._console.print(f"{cells} of them again: {why}", highlight=False)

    def measure(self, experiment: str) -> None:
        """Measure what is missing of an experiment. However that ends, its records are indexed.

        Raises:
            UserError: a request that a worker cannot meet.
            KeyboardInterrupt: after the running worker was stopped.
        """
        if experiment in self._names:
            records.write_index(self._settings.runs, experiment, self._names[experiment])
        for task in _shuffled(self._todo.pop(experiment, ()), self._settings.seed):
            self._progress.start(task.name)
            status = self._measure(task, {**task.identity, **self._context})
            self._progress.finish(status, self._estimator.seconds(task.cell))

    def _measure(self, task: _Task, environment: dict[str, Any]) -> str:
        """Measure a cell, once more if that crashes; return the status of its record."""
        first, _ = self._try(task, environment)
        reason, stderr = self._try(task, environment) if first else ("", "")
        if not reason:
            self.report.recovered |= {task.name: first} if first else {}
            status = records.load(task.target).status
            if status == "unavailable":
                self.report.unavailable += 1
            else:
                self.report.measured += 1
            return status
        self.report.crashed[task.name] = reason
        state = provenance.current_state()
        environment |= {"before": state, "after": state}
        records.write(task.target, Record(task.cell, "error", reason, environment=environment))
        write_text(task.target / "stderr.txt", stderr)
        return "error"

    def _try(self, task: _Task, environment: Mapping[str, Any]) -> tuple[str, str]:
        """Run a cell's worker; return why it crashed, or nothing, and its standard error."""
        silent_s = max(_SILENT_S, _SLOWER * self._estimator.seconds(task.cell))
        with tempfile.TemporaryFile() as errors:
            worker = _start(task, environment, errors.fileno())
            reason = ""
            try:
                _listen(worker, self._progress, silent_s)
            except TimeoutError as silence:
                reason = str(silence)
            finally:
                _stop(worker)
                shutil.rmtree(work_dir(task.target), ignore_errors=True)
            errors.seek(0)
            stderr = errors.read().decode(errors="replace").strip()
        reason = reason or _crash(worker.returncode, stderr)
        if reason:
            self._progress.note(f"error: {reason}")
        return reason, stderr


def _why_again(target: Path, cell: Cell, identity: Mapping[str, Any]) -> str:
    """Why a cell that has an older record is measured again; empty where it has none."""
    for older in target.parent.glob(f"{target.name.rpartition('-')[0]}-*"):
        with suppress(UserError):  # not complete
            record = records.load(older)
            if digest_of(record.cell.identity()) != digest_of(cell.identity()):
                continue
            if not record.ok:
                return f"{record.status} before"
            then, now = map(provenance.lasting, (record.environment, identity))
            parts = [part for part in now if then.get(part) != now[part]]
            return f"other {' and '.join(parts)} than before"
    return ""


def _shuffled(tasks: Sequence[_Task], seed: int) -> list[_Task]:
    """Cells in random order within a block (one repeat of one experiment), blocks in grid order.

    A slow minute of the machine is thus spread over all cells of a block instead of one.
    """
    blocks: dict[tuple[str, int], list[_Task]] = {}
    for task in tasks:
        blocks.setdefault((task.cell.experiment, task.cell.repeat), []).append(task)
    rng = random.Random(seed)
    return [task for block in blocks.values() for task in rng.sample(block, len(block))]


def _crash(status: int, stderr: str) -> str:
    """Why a worker ended with this exit status; empty for 0."""
    if status < 0:
        memory = " (out of memory?)" if status == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-status).name}{memory}"
    last = (stderr or f"ended with status {status}").splitlines()[-1]
    return printable(" ".join(last.split())) if status else ""


def _start(task: _Task, environment: Mapping[str, Any], stderr: int) -> "subprocess.Popen[bytes]":
    allocator = dict(ALLOCATORS[task.cell.params.get("allocator", "default")])
    words = ["-m", "harness.worker"]
    if "pinned_cores" in task.cell.params:
        words = ["-m", "harness.pinned", str(task.cell.params["pinned_cores"]), *words]
    worker = subprocess.Popen(
        [sys.executable, *words],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        # A session of its own: Ctrl-C reaches the runner, which stops the whole group.
        start_new_session=True,
        env=os.environ | _CUDA_ORDER | allocator | {"PYTHONPATH": provenance.IMPORT_PATH},
    )
    assert worker.stdin is not None
    message = {"cell": asdict(task.cell), "target": str(task.target), "environment": environment}
    with suppress(BrokenPipeError):  # killed already
        worker.stdin.write(json.dumps(message).encode() + b"\n")
    return worker


def _listen(worker: "subprocess.Popen[bytes]", progress: CellProgress, silent_s: float) -> None:
    """Follow a worker to its end.

    Raises:
        UserError: the request cannot be met.
        TimeoutError: the worker said nothing for `silent_s`.
    """
    for line in _lines(worker, silent_s):
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a library's own print
        match event:
            case {"event": "progress", "done": done}:
                progress.images(done)
            case {"event": "error", "message": text}:
                raise UserError(text)
    worker.wait()


def _lines(worker: "subprocess.Popen[bytes]", silent_s: float) -> Iterator[bytes]:
    assert worker.stdout is not None
    rest, heard = b"", time.monotonic()
    while True:
        if select.select([worker.stdout], [], [], min(1, silent_s))[0]:
            chunk, heard = worker.stdout.read(1 << 16), time.monotonic()
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
        elif worker.poll() is not None:
            return  # what it had started keeps the pipe open
        elif time.monotonic() - heard > silent_s:
            raise TimeoutError(f"stopped: it did nothing for {format_duration(silent_s)}")


def _stop(worker: "subprocess.Popen[bytes]") -> None:
    """End the worker and all processes it started; nothing to do when it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            stream.close()
