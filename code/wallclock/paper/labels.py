"""What the short names in the tables are called in figures, captions and prose."""

from __future__ import annotations

from collections.abc import Sequence

from wallclock.engines import third_party
from wallclock.paper.csvfile import Row, distinct
from wallclock.stages import decode


class Labels(dict[str, str]):
    """Label by name; a name without a label is its own."""

    def __missing__(self, name: str) -> str:
        return name


DECODERS = Labels({name: decoder.label for name, decoder in decode.DECODERS.items()})
#: An image set in a sentence, and where space is short.
SETS = Labels(small_256="images of 256 px", original="originals at full resolution")
SHORT_SETS = Labels(small_256="256 px images", original="originals")
CORPORA = Labels(
    abo="Amazon Berkeley Objects", synthetic="synthetic images", folder="images of a folder"
)
RUNTIMES = Labels(
    {
        "pytorch": "PyTorch",
        "pytorch-compile": "torch.compile",
        "pytorch-cudagraph": "PyTorch, CUDA graph,",
        "onnxruntime": "ONNX Runtime, CUDA,",
        "onnxruntime-tensorrt": "ONNX Runtime, TensorRT,",
        "onnxruntime-cpu": "ONNX Runtime, CPU,",
    }
)
STEPS = Labels(
    baseline="Baseline",
    decode_resize="+ decode, resize",
    workers="+ workers",
    batch="+ batch",
    fp16="+ FP16",
)
SYSTEMS = Labels(
    {
        "ours": "wallclock (threads)",
        "paper": "the paper's recipe",
        "baseline": "the paper's baseline",
        **{name: loader.label for name, loader in third_party.LOADERS.items()},
    }
)


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
