"""What a long run is doing, for whoever watches: Prometheus text and JSON lines, once a second.

    <export>/wallclock.prom     replaced whole: node_exporter's textfile collector reads it as it is
             wallclock.jsonl    one line appended and flushed each time

Metrics (`wallclock_…`, base units): stage_seconds_total{stage} and stage_calls_total{stage}, busy time of every
process; wait_seconds_total, the main process waiting for a batch; images_total, images_failed_total,
batches_total; run_seconds_total, since the steady state began; and of the last interval images_per_second,
accelerator_utilization_ratio (0 to 1: h2d, forward and d2h, of the clock) and queue_batches, those that are loaded
and wait. run_info names the experiment and the cell.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from wallclock.clock import STAGES
from wallclock.files import atomic_open
from wallclock.spec import Cell

_PERIOD_S = 1.0
_DEVICE = ("h2d", "forward", "d2h")

#: Name → type and help, in the order of the file.
METRICS: Mapping[str, tuple[str, str]] = {
    "run_info": ("gauge", "The cell that is measured: always 1."),
    "stage_seconds_total": ("counter", "Busy seconds of a stage, summed over processes."),
    "stage_calls_total": ("counter", "Calls of a stage."),
    "wait_seconds_total": ("counter", "Seconds the main process waited for a batch."),
    "images_total": ("counter", "Images whose vectors are in the sink."),
    "images_failed_total": ("counter", "Images that failed."),
    "batches_total": ("counter", "Batches through the sink."),
    "run_seconds_total": ("counter", "Seconds since the steady state began."),
    "images_per_second": ("gauge", "Images a second over the last interval."),
    "accelerator_utilization_ratio": (
        "gauge",
        "Share of the last interval in which the device worked, 0 to 1.",
    ),
    "queue_batches": ("gauge", "Batches that are loaded and wait for the main process."),
    "update_timestamp_seconds": ("gauge", "Unix time at which this file was written."),
}


class Monitor:
    """Writes both files at most once a second; between two writes it only looks at the clock.

    Args:
        folder: where they go; made if it is not there.
        cell: what is measured.
    """

    def __init__(self, folder: Path, cell: Cell) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._prom, self._lines = folder / "wallclock.prom", folder / "wallclock.jsonl"
        self._info = {"experiment": cell.experiment, "cell": cell.label, "repeat": str(cell.repeat)}
        self._seconds: dict[str, float] = dict.fromkeys((*STAGES, "wait"), 0.0)
        self._seen: dict[str, int] = dict.fromkeys(self._seconds, 0)
        self._began = self._last = time.monotonic()
        self._images, self._busy = 0, 0.0

    def begin(self) -> None:
        """The steady state begins now."""
        self._began = self._last = time.monotonic()

    def update(
        self,
        samples: Mapping[str, Sequence[int]],
        images: int,
        batches: int,
        failed: int,
        ready: Callable[[], int],
        *,
        final: bool = False,
    ) -> None:
        """Say how far the run is, if a second has passed since the last time or this is the last.

        Args:
            samples: stage → nanoseconds of each call so far; lists that only grow.
            ready: counts the batches that wait; asked only when something is written.
        """
        now = time.monotonic()
        if now - self._last < _PERIOD_S and not final:
            return
        for name in self._seconds:
            # What came since: summing it all again each second would cost more with every hour.
            self._seconds[name] += sum(samples[name][self._seen[name] :]) / 1e9
            self._seen[name] = len(samples[name])
        busy, interval = sum(self._seconds[name] for name in _DEVICE), max(now - self._last, 1e-9)
        values = {
            "wait_seconds_total": self._seconds["wait"],
            "images_total": images,
            "images_failed_total": failed,
            "batches_total": batches,
            "run_seconds_total": now - self._began,
            "images_per_second": (images - self._images) / interval,
            "accelerator_utilization_ratio": min(1.0, (busy - self._busy) / interval),
            "queue_batches": ready(),
            "update_timestamp_seconds": time.time(),
        }
        self._last, self._images, self._busy = now, images, busy
        self._write(values)

    def _write(self, values: Mapping[str, float]) -> None:
        rounded = {name: round(value, 6) for name, value in values.items()}
        seconds = {name: round(self._seconds[name], 6) for name in STAGES}
        with self._lines.open("a", encoding="utf-8") as handle:
            handle.write(
                json.dumps({**self._info, **rounded, "stage_seconds_total": seconds}) + "\n"
            )
        with atomic_open(self._prom, sync=False) as handle:
            handle.write(self._text(rounded, seconds))

    def _text(self, values: Mapping[str, float], seconds: Mapping[str, float]) -> str:
        info = ",".join(f'{name}="{_escaped(value)}"' for name, value in self._info.items())
        series = {
            "run_info": [(f"{{{info}}}", 1.0)],
            "stage_seconds_total": [
                (f'{{stage="{name}"}}', value) for name, value in seconds.items()
            ],
            "stage_calls_total": [
                (f'{{stage="{name}"}}', float(self._seen[name])) for name in STAGES
            ],
        }
        lines = []
        for name, (kind, words) in METRICS.items():
            lines += [f"# HELP wallclock_{name} {words}", f"# TYPE wallclock_{name} {kind}"]
            found = series[name] if name in series else [("", values[name])]
            lines += [f"wallclock_{name}{labels} {value:.17g}" for labels, value in found]
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    r"""A label's value: backslash, double quote and line feed are written \\, \" and \n."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


_current: list[Monitor] = []


def start(folder: Path, cell: Cell) -> None:
    """From now on this process's run is watched."""
    _current[:] = [Monitor(folder, cell)]


def current() -> Monitor | None:
    """The monitor of this process's run, if someone asked for one."""
    return _current[0] if _current else None
