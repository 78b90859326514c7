"""Runs cells: reuse what is measured, shuffle the rest in blocks, a fresh process each, resume.

The runner never imports torch: it plans, starts `wallclock.run.worker` processes one at a time, listens
to their progress and leaves the records to them.
"""

from __future__ import annotations

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wallclock import provenance, records
from wallclock.errors import UserError
from wallclock.records import Record
from wallclock.run.estimate import Estimator, format_duration
from wallclock.run.progress import CellProgress, Screen
from wallclock.run.worker import USER_ERROR, work_dir
from wallclock.spec import Cell

#: glibc's settings in a worker. By default freed memory goes back to the kernel when enough of it lies
#: at the top of the heap, which depends on what else the process has allocated; each full-size picture
#: then faults its pages in again. `keep` never gives any back.
ALLOCATORS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "keep": {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)},
}


@dataclass
class Report:
    """What a run did: cells reused, cells measured, and the cells that crashed with their last words."""

    reused: int = 0
    measured: int = 0
    crashed: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Planned:
    cell: Cell
    key: str
    target: Path


def run(
    cells: Sequence[Cell],
    runs: Path,
    seed: int,
    context: Mapping[str, Any],
    screen: Screen,
    export: Path | None = None,
) -> Report:
    """Measure every cell that has no final record yet, then index the experiments.

    Args:
        cells: the grid, in table order.
        runs: where the records go.
        seed: of the order in which cells run.
        context: what the records should also say, without being identified by it.
        export: where end-to-end runs say what they are doing while they do it; None for nowhere.

    Raises:
        UserError: a request that cannot be met, as a worker found it.
        KeyboardInterrupt: after the running worker was stopped.
    """
    identity = provenance.identity()
    environment = {**identity, **context}
    planned = [_plan(cell, runs, identity) for cell in cells]
    todo = [plan for plan in planned if records.reusable(plan.target) is None]
    report = Report(reused=len(planned) - len(todo))
    estimator = Estimator(runs, provenance.machine()["cores"])
    if todo:
        _announce(todo, report, estimator, screen)
        with screen.bars() as bars:
            seconds_left = estimator.total([plan.cell for plan in todo])
            progress = CellProgress(bars, len(todo), seconds_left, screen)
            for plan in _shuffled(todo, seed):
                progress.start(_name(plan.cell), seconds_left)
                _measure(plan, environment, progress, seconds_left, report, export)
                seconds_left -= estimator.seconds(plan.cell)
    for experiment in dict.fromkeys(cell.experiment for cell in cells):
        records.write_index(
            runs, experiment, [plan.key for plan in planned if plan.cell.experiment == experiment]
        )
    return report


def _plan(cell: Cell, runs: Path, identity: dict[str, Any]) -> _Planned:
    key = records.key_of(cell, identity)
    return _Planned(cell, key, records.directory(runs, cell, key))


def _announce(
    todo: Sequence[_Planned], report: Report, estimator: Estimator, screen: Screen
) -> None:
    about = format_duration(estimator.total([plan.cell for plan in todo]))
    reused = f", {report.reused} reused" if report.reused else ""
    screen.console.print(f"{len(todo)} cells to measure{reused}: about {about}", highlight=False)


def _shuffled(todo: Sequence[_Planned], seed: int) -> list[_Planned]:
    """Cells in random order within a block (one repeat of one experiment), blocks in plan order.

    Interleaving spreads a slow minute of the machine over all cells of a block instead of one.
    """
    blocks: dict[tuple[str, int], list[_Planned]] = {}
    for plan in todo:
        blocks.setdefault((plan.cell.experiment, plan.cell.repeat), []).append(plan)
    shuffler = random.Random(seed)
    for block in blocks.values():
        shuffler.shuffle(block)
    return [plan for block in blocks.values() for plan in block]


def _name(cell: Cell) -> str:
    image_set = f" {cell.corpus.image_set}" if cell.corpus else ""
    return f"{cell.experiment}/{cell.label}{image_set} #{cell.repeat + 1}"


def _measure(
    plan: _Planned,
    environment: dict[str, Any],
    progress: CellProgress,
    seconds_left: float,
    report: Report,
    export: Path | None,
) -> None:
    with tempfile.TemporaryFile() as errors:
        worker = _start(plan, environment, errors.fileno(), export)
        try:
            message = _listen(worker, progress, seconds_left)
        finally:
            _stop(worker)
            shutil.rmtree(work_dir(plan.target), ignore_errors=True)
        if worker.returncode == USER_ERROR:
            raise UserError(message)
        if worker.returncode == 0:
            record = records.load(plan.target)
            report.measured += 1
            progress.finish(record.status)
            return
        errors.seek(0)
        last_words = errors.read().decode(errors="replace").strip()
    reason = last_words.splitlines()[-1] if last_words else _death(worker.returncode)
    report.crashed.append((_name(plan.cell), last_words or reason))
    crash = Record(
        plan.cell,
        "error",
        reason,
        environment={**environment, "before": provenance.current_state()},
    )
    records.write(plan.target, crash)
    progress.finish(f"error: {reason}")


def _start(
    plan: _Planned, environment: dict[str, Any], errors: int, export: Path | None
) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-m", "wallclock.run.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        # A session of its own: Ctrl-C reaches the runner, which stops the whole group.
        start_new_session=True,
        env={
            **os.environ,
            **ALLOCATORS[plan.cell.params.get("allocator", "default")],
            "PYTHONPATH": os.pathsep.join(str(path) for path in _import_paths()),
        },
    )
    assert worker.stdin is not None
    task = {"cell": plan.cell.to_json(), "target": str(plan.target), "environment": environment}
    if export is not None:
        task["export"] = str(export)
    worker.stdin.write(json.dumps(task) + "\n")
    worker.stdin.flush()
    return worker


def _import_paths() -> list[Path]:
    return [provenance.PACKAGE.parent, provenance.ROOT]


def _listen(worker: subprocess.Popen[str], progress: CellProgress, seconds_left: float) -> str:
    """Follow a worker to its end; return the message of its error event, if any."""
    assert worker.stdout is not None
    message = ""
    for line in worker.stdout:
        event = _event(line)
        if event.get("event") == "progress":
            progress.images(event["done"], seconds_left)
        elif event.get("event") == "error":
            message = event["message"]
    worker.wait()
    return message


def _event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}  # a library's own print
    return event if isinstance(event, dict) else {}


def _stop(worker: subprocess.Popen[str]) -> None:
    """End the worker and whatever it started, at once; nothing to do when it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            stream.close()


def _death(code: int) -> str:
    if code == -signal.SIGKILL:
        return "the worker was killed (out of memory?)"
    return f"the worker ended with status {code}"


def summary_line(report: Report) -> str:
    """'12 cells measured, 28 reused'."""
    parts = [f"{report.measured} cells measured", f"{report.reused} reused"]
    if report.crashed:
        parts.append(f"{len(report.crashed)} crashed")
    return ", ".join(parts)
