"""Batches to vectors."""

from wallclock.infer.finite import not_finite, rows_not_finite
from wallclock.infer.inference import CudaInference, Put, in_flight
from wallclock.infer.network import Embedder, open_embedder
from wallclock.stages.pixels import Vectors

__all__ = [
    "CudaInference",
    "Embedder",
    "Put",
    "Vectors",
    "in_flight",
    "not_finite",
    "open_embedder",
    "rows_not_finite",
]
