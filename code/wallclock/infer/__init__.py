"""Batches to vectors, and vectors to a sink."""

from wallclock.infer.inference import Inference, open_inference
from wallclock.infer.network import Embedder, Floats, open_embedder
from wallclock.infer.writer import Writer, open_writer

__all__ = [
    "Embedder",
    "Floats",
    "Inference",
    "Writer",
    "open_embedder",
    "open_inference",
    "open_writer",
]
