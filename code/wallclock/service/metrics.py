"""What Prometheus scrapes of the service. A metric is written where the thing happens."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

#: Upper bounds in seconds, from a resize to a time-out.
_SECONDS = tuple(float(f"{digit}e{power}") for power in range(-4, 2) for digit in (1, 2.5, 5))
_STAGES = ("download", "preprocess", "process", "callback", "total")
BUFFERS = ("downloads", "images", "batch", "results")
#: What becomes of a message. duplicate: it was settled before; lost: redelivery has it.
_OUTCOMES = ("delivered", "retried", "dead_lettered", "returned", "duplicate", "lost")


class _Values:
    """How many values there were up to each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._sum = (*bounds, float("inf")), 0.0
        self._counts = [0] * len(self._bounds)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        bounds, counts = map(floatToGoString, self._bounds), map(float, accumulate(self._counts))
        family.add_metric(labels, [*zip(bounds, counts, strict=True)], self._sum)


class _Histograms(Collector):
    """A histogram for each value of a label, all written in one thread, and scraped there.

    A tenth of the CPU time of `prometheus_client.Histogram`, which has locks.
    """

    def __init__(
        self, name: str, text: str, label: str, values: Iterable[str], bounds: Sequence[float]
    ) -> None:
        self._about = (name, text, None, None, [label])
        self.values = {value: _Values(bounds) for value in values}

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """What a scrape reads."""
        family = HistogramMetricFamily(*self._about)
        for label, values in self.values.items():
            values.add_to(family, [label])
        yield family


class Metrics:
    """The metrics of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        prefix = "wallclock_service_"
        text = "Time in a stage, of one message (process: of a batch); total: from its receipt."
        stages = _Histograms(f"{prefix}stage_seconds", text, "stage", _STAGES, _SECONDS)
        text = "Time that a message waited in a buffer."
        waits = _Histograms(f"{prefix}buffer_wait_seconds", text, "buffer", BUFFERS, _SECONDS)
        text = "Messages that are done with, by outcome."
        outcomes = Counter(f"{prefix}messages", text, ["outcome"], registry=registry)
        for histograms in (stages, waits):
            registry.register(histograms)
        self.stage, self.wait = stages.values, waits.values
        self.outcome = {name: outcomes.labels(name) for name in _OUTCOMES}
        self.batch = Histogram(
            f"{prefix}batch_rows",
            "Rows of a batch.",
            buckets=[2**power for power in range(13)],
            registry=registry,
        )
        self.redelivered = Counter(
            f"{prefix}redeliveries", "Deliveries after a message's first.", registry=registry
        )

    def read(self, name: str, text: str, values: Mapping[str, Callable[[], float]]) -> None:
        """Gauges by buffer that a scrape reads; `""` for one without a label."""
        labels = [] if "" in values else ["buffer"]
        gauge = Gauge(f"wallclock_service_{name}", text, labels, registry=self.registry)
        for label, value in values.items():
            (gauge.labels(label) if label else gauge).set_function(value)
