"""What the short names in the tables are called in figures, captions and prose."""

from collections.abc import Sequence

from experiments import ablation, frontier, onnx, steps
from experiments._words import CORPORA, DECODERS, SETS, SHORT_SETS
from paper.csvfile import Row, distinct

__all__ = [
    "ABLATION",
    "CORPORA",
    "DECODERS",
    "RUNTIMES",
    "SETS",
    "SHORT_SETS",
    "STEPS",
    "SYSTEMS",
    "weights",
]

ABLATION = ablation.LABELS
RUNTIMES = onnx.LABELS
STEPS = steps.LABELS
SYSTEMS = frontier.LABELS


def weights(rows: Sequence[Row]) -> str:
    """Whose weights the forward passes had; of a mock model, its time."""
    parts = [f"{name} weights" for name in distinct(rows, "weights") if name != "none"]
    mocks = [row for row in rows if row.get("weights") == "none"]
    if mocks:
        parts.append(f"forward: mock model{_service_times(mocks)}")
    return ", ".join(parts)


def _service_times(mocks: Sequence[Row]) -> str:
    """` of 5 to 40 ms per batch`; empty where the time is not given."""
    times = [f"{float(ms):g}" for ms in distinct(mocks, "service_ms")]
    if not times:
        return ""
    # A sweep over batches has as many times as batches: first and last are enough.
    ends = dict.fromkeys((times[0], times[-1]))
    return f" of {' to '.join(ends)} ms per batch"
