"""What the short names in the tables are called in figures, captions and prose."""

from collections.abc import Sequence
from pathlib import Path

from harness import decoders
from harness.engines import third_party
from paper.csvfile import Row, distinct, read_table

_ROWS = read_table(Path(__file__).parent / "report_template" / "labels.csv")


class Labels(dict[str, str]):
    """Label by name; a name without a label is its own."""

    def __missing__(self, name: str) -> str:
        return name


def _labels(kind: str) -> Labels:
    return Labels({row["name"]: row["label"] for row in _ROWS if row["kind"] == kind})


DECODERS = Labels({name: decoder.label for name, decoder in decoders.DECODERS.items()})
#: An image set in a sentence, and where space is short.
SETS, SHORT_SETS, CORPORA = _labels("set"), _labels("short set"), _labels("corpus")
RUNTIMES, STEPS = _labels("runtime"), _labels("step")
SYSTEMS, ABLATION = _labels("system"), _labels("ablation")
SYSTEMS.update({name: loader.label for name, loader in third_party.LOADERS.items()})


def weights(rows: Sequence[Row]) -> str:
    """Whose weights the forward passes had; of a mock model, its time."""
    parts = [f"{name} weights" for name in distinct(rows, "weights") if name != "none"]
    mocks = [row for row in rows if row.get("weights") == "none"]
    if mocks:
        times = [f"{float(ms):g}" for ms in distinct(mocks, "service_ms")]
        # A sweep over batches has as many times as batches: first and last are enough.
        ends = " to ".join(dict.fromkeys((times[0], times[-1]))) if times else ""
        parts.append(f"forward: mock model{f' of {ends} ms a batch' if ends else ''}")
    return ", ".join(parts)
