"""One cell in one process: `python -m harness.worker`, the task on standard input.

The task is one line of JSON: {"cell", "target", "environment"}. Progress goes to standard
output as JSON lines. This process writes the record, so that it is complete or absent whatever
happens to the runner. When the runner ends (standard input is closed), the worker exits.
"""

import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

from harness import provenance, records
from harness.protocols import protocol
from harness.protocols.protocol import Measurement
from harness.records import Record
from harness.spec import Cell
from wallclock.errors import Unavailable, UserError
from wallclock.files import disk_is_full

_PROGRESS_INTERVAL_S = 0.25


def main() -> None:
    """Measure the cell on standard input and write its record."""
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    cell = Cell.from_json(task["cell"])
    target = Path(task["target"])
    work = work_dir(target)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        records.write(target, *_measure(cell, work, task["environment"]))
    except Exception as error:
        message = str(error)
        if not isinstance(error, UserError):
            if not disk_is_full(error):
                raise
            disk = f"no space left on the disk of {target.parent}"
            message = f"{disk}; free some and run the same command again"
        _emit("error", message=message)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def work_dir(target: Path) -> Path:
    """The scratch folder of the cell whose record goes to `target`; on the same disk."""
    return target.with_name(f".{target.name}.work")


def _measure(cell: Cell, work: Path, environment: dict[str, Any]) -> tuple[Record, list[Path]]:
    """Run the cell's protocol; return its record and the files to keep with it."""
    before = provenance.current_state()
    start = time.perf_counter()
    status, reason = "ok", ""
    measurement = Measurement()
    try:
        measurement = protocol.find(cell)(cell, work, _Reporter())
    except Unavailable as error:
        status, reason = "unavailable", str(error)
    except RuntimeError as error:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(error, torch.OutOfMemoryError):
            raise
        status, reason = "oom", " ".join(str(error).split())[:300]
    record = Record(
        cell,
        status,
        reason,
        samples={name: list(values) for name, values in measurement.samples.items()},
        values=measurement.values,
        failures=measurement.failures,
        environment=environment | {"before": before, "after": provenance.current_state()},
        seconds=time.perf_counter() - start,
        spans=measurement.spans,
    )
    return record, list(measurement.keep)


class _Reporter:
    """Sends the number of images done, at most every quarter of a second."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_INTERVAL_S
            _emit("progress", done=done)


def _emit(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def _exit_with_parent() -> None:
    # Not through sys.stdin: its lock would be held at a fork, and a forked DataLoader worker
    # begins by closing sys.stdin.
    while os.read(0, 4096):
        pass
    os._exit(3)


if __name__ == "__main__":
    main()
