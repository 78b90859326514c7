"""What the short names in the tables are called in figures, captions and prose."""

from collections.abc import Sequence

from harness import decoders
from harness.table import Row, distinct


class Labels(dict[str, str]):
    """Label by name; a name without a label is its own."""

    def __missing__(self, name: str) -> str:
        return name


DECODERS = Labels({name: decoder.label for name, decoder in decoders.DECODERS.items()})
#: An image set in a sentence; `SHORT_SETS` where space is short.
SETS = Labels({"small_256": "images of 256 px", "original": "originals at full resolution"})
SHORT_SETS = Labels({"small_256": "256 px images", "original": "originals"})
CORPORA = Labels(
    {
        "abo": "Amazon Berkeley Objects",
        "synthetic": "synthetic images",
        "folder": "images of a folder",
    }
)


def weights(rows: Sequence[Row]) -> str:
    """Whose weights the forward passes had; of a mock model, its time."""
    parts = [f"{name} weights" for name in distinct(rows, "weights") if name != "none"]
    mocks = [row for row in rows if row.get("weights") == "none"]
    if mocks:
        parts.append(f"forward: mock model{_service_times(mocks)}")
    return ", ".join(parts)


def _service_times(mocks: Sequence[Row]) -> str:
    """` of 5 to 40 ms per batch`; empty where the time is not given."""
    times = [f"{ms:g}" for ms in distinct(mocks, "service_ms")]
    if not times:
        return ""
    # A sweep over batches has as many times as batches: first and last are enough.
    ends = dict.fromkeys((times[0], times[-1]))
    return f" of {' to '.join(ends)} ms per batch"
