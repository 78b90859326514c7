"""Live metrics of a long run: Prometheus text and JSON lines, once a second.

<export>/wallclock.prom     replaced atomically: node_exporter's textfile collector reads it
         wallclock.jsonl    one line appended and flushed each time
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from wallclock.clock import DEVICE_STAGES, STAGES
from wallclock.files import atomic_open
from wallclock.spec import Cell

_PERIOD_S = 1.0

#: Name, `wallclock_…` in the file → type and help, in the file's order. Base units.
METRICS: Mapping[str, tuple[str, str]] = {
    "run_info": ("gauge", "Experiment, cell and repeat that are measured: always 1."),
    "stage_seconds_total": ("counter", "Busy seconds of a stage, summed over processes."),
    "stage_calls_total": ("counter", "Calls of a stage."),
    "wait_seconds_total": ("counter", "Seconds the main process waited for a batch."),
    "images_total": ("counter", "Images whose vectors are in the sink."),
    "images_failed_total": ("counter", "Images that failed."),
    "batches_total": ("counter", "Batches through the sink."),
    "run_seconds_total": ("counter", "Seconds since the steady state began."),
    "images_per_second": ("gauge", "Images a second over the last interval."),
    "accelerator_utilization_ratio": ("gauge", "Busy share of the device, last interval, 0 to 1."),
    "queue_batches": ("gauge", "Batches that are loaded and wait for the main process."),
    "update_timestamp_seconds": ("gauge", "Unix time at which this file was written."),
}


class Monitor:
    """Writes both files into `folder` at most once a second; between, it only reads the clock."""

    def __init__(
        self, folder: Path, cell: Cell, clock: Callable[[], float] = time.monotonic
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._prom, self._lines = folder / "wallclock.prom", folder / "wallclock.jsonl"
        self._info = {"experiment": cell.experiment, "cell": cell.label, "repeat": str(cell.repeat)}
        self._seconds: dict[str, float] = dict.fromkeys((*STAGES, "wait"), 0.0)
        self._calls: dict[str, int] = dict.fromkeys(self._seconds, 0)
        self._images, self._busy = 0, 0.0
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """The steady state begins now."""
        self._began = self._last = self._clock()

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
        """Write both files, if a second has passed since the last time or this is the last.

        `samples`: stage → nanoseconds of each call so far, lists that only grow. `ready` counts the
        batches that are loaded; called only when something is written.
        """
        now = self._clock()
        if now - self._last < _PERIOD_S and not final:
            return
        for name in self._seconds:
            # New samples only: summing all of them each second would cost more with every hour.
            self._seconds[name] += sum(samples[name][self._calls[name] :]) / 1e9
            self._calls[name] = len(samples[name])
        busy = sum(self._seconds[name] for name in DEVICE_STAGES)
        interval = max(now - self._last, 1e-9)
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
        rounded = {name: round(value, 6) for name, value in values.items()}
        seconds = {name: round(self._seconds[name], 6) for name in STAGES}
        line = {**self._info, **rounded, "stage_seconds_total": seconds}
        with self._lines.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")
        with atomic_open(self._prom, sync=False) as handle:
            handle.write(self._text(rounded, seconds))

    def _text(self, values: Mapping[str, float], seconds: Mapping[str, float]) -> str:
        info = ",".join(f'{name}="{_escaped(value)}"' for name, value in self._info.items())
        series: dict[str, dict[str, float]] = {
            "run_info": {f"{{{info}}}": 1},
            "stage_seconds_total": {f'{{stage="{name}"}}': seconds[name] for name in STAGES},
            "stage_calls_total": {f'{{stage="{name}"}}': self._calls[name] for name in STAGES},
        }
        lines = []
        for name, (kind, text) in METRICS.items():
            lines += [f"# HELP wallclock_{name} {text}", f"# TYPE wallclock_{name} {kind}"]
            for label, value in (series.get(name) or {"": values[name]}).items():
                lines.append(f"wallclock_{name}{label} {value:.17g}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    r"""A label's value: backslash, double quote and line feed are written \\, \" and \n."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


#: The monitor of this process's run, if `--export` was set.
current: Monitor | None = None


def start(folder: Path, cell: Cell) -> None:
    """Export metrics of this process's run from now on."""
    global current
    current = Monitor(folder, cell)
