"""What Prometheus scrapes of the service. A metric is written where the thing happens."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

#: Upper bounds in seconds, from a resize to a time-out.
_SECONDS = tuple(float(f"{digit}e{power}") for power in range(-4, 2) for digit in (1, 2.5, 5))
_STAGES = ("download", "preprocess", "process", "callback", "total")
BUFFERS = ("downloads", "images", "batch", "results")
#: What becomes of a message. duplicate: it was settled before; lost: redelivery has it.
_OUTCOMES = ("delivered", "retried", "dead_lettered", "returned", "duplicate", "lost")


class Metrics:
    """The metrics of one service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        prefix = "wallclock_service_"
        text = "Time in a stage, of one message (process: of a batch); total: from its receipt."
        stages = Histogram(
            f"{prefix}stage_seconds", text, ["stage"], buckets=_SECONDS, registry=registry
        )
        text = "Time that a message waited in a buffer."
        waits = Histogram(
            f"{prefix}buffer_wait_seconds", text, ["buffer"], buckets=_SECONDS, registry=registry
        )
        text = "Messages that are done with, by outcome."
        outcomes = Counter(f"{prefix}messages", text, ["outcome"], registry=registry)
        self.stage = {name: stages.labels(name) for name in _STAGES}
        self.wait = {name: waits.labels(name) for name in BUFFERS}
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
        text = "Calls that the queue has refused for good; the log says which and why."
        self.refusals = Counter(f"{prefix}refusals", text, registry=registry)
        text = "JPEGs that the native module left to libjpeg-turbo."
        self.fallbacks = Counter(f"{prefix}fallbacks", text, registry=registry)

    def read(self, name: str, text: str, values: Mapping[str, Callable[[], float]]) -> None:
        """Gauges by buffer that a scrape reads; `""` for one without a label."""
        labels = [] if "" in values else ["buffer"]
        gauge = Gauge(f"wallclock_service_{name}", text, labels, registry=self.registry)
        for label, value in values.items():
            (gauge.labels(label) if label else gauge).set_function(value)
