"""Batches to vectors, and vectors to a sink."""

from wallclock.infer.finite import not_finite, rows_not_finite
from wallclock.infer.inference import Inference, open_inference
from wallclock.infer.network import Embedder, open_embedder
from wallclock.infer.writer import Writer, open_writer
from wallclock.stages.pixels import Vectors

__all__ = [
    "Embedder",
    "Inference",
    "Vectors",
    "Writer",
    "not_finite",
    "open_embedder",
    "open_inference",
    "open_writer",
    "rows_not_finite",
]
