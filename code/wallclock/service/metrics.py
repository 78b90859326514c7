"""What Prometheus scrapes of the service. A metric is written where the thing happens."""

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

#: Upper bounds in seconds, from a resize to a time-out.
_SECONDS = tuple(float(f"{digit}e{power}") for power in range(-4, 2) for digit in (1, 2.5, 5))
_STAGES = ("download", "preprocess", "process", "callback", "total")
BUFFERS = ("downloads", "images", "batch", "results")
#: What becomes of a message. lost: redelivery has it.
_OUTCOMES = ("delivered", "retried", "dead_lettered", "returned", "lost")


class Metrics:
    """The metrics of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry: CollectorRegistry = CollectorRegistry()
        names = {"namespace": "wallclock", "subsystem": "service"}
        self._of: Any = {**names, "registry": self.registry}
        of, seconds = self._of, {"buckets": _SECONDS, **self._of}
        text = "Time in a stage, of one message (process: of a batch); total: from its receipt."
        stages = Histogram("stage_seconds", text, ["stage"], **seconds)
        text = "Time that a message waited in a buffer."
        waits = Histogram("buffer_wait_seconds", text, ["buffer"], **seconds)
        text = "Messages that are done with, by outcome."
        outcomes = Counter("messages", text, ["outcome"], **of)
        self.stage: dict[str, Histogram] = {name: stages.labels(name) for name in _STAGES}
        self.wait: dict[str, Histogram] = {name: waits.labels(name) for name in BUFFERS}
        self.outcome: dict[str, Counter] = {name: outcomes.labels(name) for name in _OUTCOMES}
        rows = [2**power for power in range(13)]
        self.batch: Histogram = Histogram("batch_rows", "Rows of a batch.", buckets=rows, **of)
        text = "Deliveries after a message's first."
        self.redelivered: Counter = Counter("redeliveries", text, **of)
        text = "Calls that the queue has refused for good; the log says which and why."
        self.refusals: Counter = Counter("refusals", text, **of)

    def read(self, name: str, text: str, values: Mapping[str, Callable[[], float]]) -> None:
        """Gauges by buffer that a scrape reads; `""` for one without a label."""
        gauge = Gauge(name, text, [] if "" in values else ["buffer"], **self._of)
        for label, value in values.items():
            (gauge.labels(label) if label else gauge).set_function(value)
