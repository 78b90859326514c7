"""Live metrics of a loop over HTTP, as Prometheus scrapes them: the suite's own loops, or yours.

    profiler = StageProfiler()
    exporter = serve(9400, Loop.from_profiler(profiler))       # http://127.0.0.1:9400/metrics
    ...
    exporter.close()

The loop does nothing for it: a scrape reads the counters that it keeps anyway, in a thread of
prometheus_client's. `deploy/monitoring/` has alert rules and a dashboard for these metrics.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Lock
from typing import Any

import numpy as np

from wallclock.clock import StageProfiler
from wallclock.errors import UserError, import_extra
from wallclock.machine import ProcessTree, gpu_readings, nvml_handles, swapped_bytes
from wallclock.outside import without_secrets

#: Upper bounds of the histogram's buckets, in seconds.
BOUNDS = tuple(float(f"{digit}e{power}") for power in range(-5, 3) for digit in (1, 2.5, 5))

#: Name, `wallclock_…` → help, in the order of the answer. Base units.
METRICS: Mapping[str, str] = {
    "run_info": "What runs, in its labels: always 1.",
    "images_total": "Images whose vectors are on their way to the sink.",
    "failures_total": "Images that failed, by stage.",
    "stage_seconds": "Calls of a stage; wait and batch: the loop's; latency: an image's.",
    "queue_batches": "Batches that wait: loaded, on the device, or before the sink.",
    "resident_memory_bytes": "Memory of the process and its children; shared pages count in each.",
    "cpu_cores": "CPU use of the process and its children since the last scrape.",
    "swapped_bytes_total": "To and from the machine's swap since its start, of all programs.",
    "gpu_utilization_ratio": "Share of the last period in which a kernel ran, 0 to 1.",
    "gpu_memory_bytes": "Memory in use on the GPU, other processes' included.",
}

#: Labels of those that have some.
_LABELS = {
    "failures_total": ["stage"],
    "queue_batches": ["queue"],
    "gpu_utilization_ratio": ["gpu"],
    "gpu_memory_bytes": ["gpu"],
}


@dataclass(frozen=True)
class Loop:
    """What a loop counts: functions that another thread may call at any time.

    `samples`: stage → nanoseconds of each call so far, lists that only grow. `failures`: by stage.
    `queues`: name → batches that wait in it.
    """

    samples: Callable[[], Mapping[str, Sequence[int]]]
    images: Callable[[], int]
    failures: Callable[[], Mapping[str, int]]
    queues: Mapping[str, Callable[[], int]] = field(default_factory=dict)

    @staticmethod
    def from_profiler(profiler: StageProfiler) -> "Loop":
        """A loop that wraps its stages in a profiler; its images: those through every stage."""

        def images() -> int:
            return min(profiler.counts.values(), default=0)

        return Loop(profiler.samples, images, lambda: profiler.failures)


class _Histogram:
    """The calls of one stage, by duration. Reads each sample once."""

    def __init__(self) -> None:
        self.seconds, self._seen = 0.0, 0
        self._calls = np.zeros(len(BOUNDS) + 1, dtype=np.int64)

    def read(self, samples: Sequence[int]) -> list[tuple[str, float]]:
        """Take the new samples, ns; return bound → calls up to it, as Prometheus' buckets."""
        new = np.array(samples[self._seen :], dtype=np.float64) / 1e9
        self._seen += len(new)
        self.seconds += float(new.sum())
        self._calls += np.bincount(np.searchsorted(BOUNDS, new), minlength=len(self._calls))
        names = [*map(str, BOUNDS), "+Inf"]
        return [*zip(names, map(float, accumulate(self._calls.tolist())), strict=True)]


class Exporter:
    """Answers scrapes with a loop's counters, and the memory, CPU and GPU use of this process.

    prometheus_client calls `collect`. Use `serve` to make one.
    """

    def __init__(self, port: int, loop: Loop, info: Mapping[str, str], address: str) -> None:
        prometheus_client = import_extra("prometheus_client", f"export={port}", "embed")
        self._loop = loop
        self._info = {name: without_secrets(value) for name, value in info.items()}
        self._histograms = dict[str, _Histogram]()
        self._lock, self._open = Lock(), ExitStack()
        self._processes = ProcessTree()
        self._processes.sample()  # the first reading has no interval
        self._handles = self._open.enter_context(nvml_handles())
        registry = prometheus_client.CollectorRegistry()
        registry.register(self)  # no subclass of its: every cell would pay for the import
        try:
            server, thread = prometheus_client.start_http_server(port, address, registry)
        except OSError as error:
            self.close()
            raise UserError(f"export={port}: cannot listen there: {error.strerror}") from error
        self.port = server.server_port
        for stop in (thread.join, server.server_close, server.shutdown):  # the last one first
            self._open.callback(stop)

    def close(self) -> None:
        """Stop answering."""
        self._open.close()

    def describe(self) -> list[Any]:
        """Nothing in advance: registering must not scrape."""
        return []

    def collect(self) -> Iterator[Any]:
        """The metrics' families, as they are now."""
        from prometheus_client import core

        calls = "stage_seconds"
        histogram = core.HistogramMetricFamily(
            f"wallclock_{calls}", METRICS[calls], labels=["stage"]
        )
        with self._lock:  # scrapes may overlap
            for stage, samples in self._loop.samples().items():
                of_stage = self._histograms.setdefault(stage, _Histogram())
                histogram.add_metric([stage], of_stage.read(samples), of_stage.seconds)
            values = self._values()
        yield histogram
        for name, of_labels in values.items():
            kind = core.CounterMetricFamily if name.endswith("_total") else core.GaugeMetricFamily
            names = [*self._info] if name == "run_info" else _LABELS.get(name, [])
            family = kind(f"wallclock_{name}", METRICS[name], labels=names)
            for labels, value in of_labels.items():
                family.add_metric(labels, value)
            yield family

    def _values(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Metric → its labels' values → its value."""
        loop, usage = self._loop, self._processes.sample().values()
        gpus = {(str(at),): gpu_readings(handle) for at, handle in enumerate(self._handles)}

        def of_gpus(reading: str, unit: float) -> dict[tuple[str, ...], float]:
            return {gpu: now[reading] * unit for gpu, now in gpus.items() if reading in now}

        return {
            "run_info": {tuple(self._info.values()): 1},
            "images_total": {(): loop.images()},
            "failures_total": {(stage,): count for stage, count in loop.failures().items()},
            "queue_batches": {(name,): length() for name, length in loop.queues.items()},
            "resident_memory_bytes": {(): sum(used.rss_mib for used in usage) * 2**20},
            "cpu_cores": {(): sum(used.cpu_cores for used in usage)},
            "swapped_bytes_total": {(): swapped_bytes()},
            "gpu_utilization_ratio": of_gpus("gpu_util", 0.01),
            "gpu_memory_bytes": of_gpus("gpu_mem_mib", 2**20),
        }


def serve(
    port: int, loop: Loop, info: Mapping[str, str] | None = None, address: str = "127.0.0.1"
) -> Exporter:
    """Answer scrapes of a loop at `http://<address>:<port>/metrics` until `close`.

    Port 0: any that is free, which `port` of the result says. `info`: labels of the metric
    `wallclock_run_info`. Raises UserError: the port is not free.
    """
    return Exporter(port, loop, info or {}, address)
