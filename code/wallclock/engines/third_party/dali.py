"""NVIDIA DALI: the file reader, the image decoder and the resize of its own pipeline.

https://docs.nvidia.com/deeplearning/dali/user-guide/docs/advanced_topics_performance_tuning.html: the
defaults perform well; `num_threads` is one a core, `prefetch_queue_depth` its default of 2. The reader
loops without end. The decoder turns pictures by EXIF unless told; here nobody does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wallclock import provenance
from wallclock.engines.third_party import Batch, Job, Peer, require, version
from wallclock.errors import Unavailable

_PREFETCH = 2


@contextmanager
def cpu(job: Job) -> Iterator[Peer]:
    """The whole pipeline on the CPU; it needs no GPU."""
    pipeline = _build(job, "cpu")
    words = f"readers.file, decoders.image and resize on the CPU, {_threads(job)}, uint8"
    yield Peer(version("nvidia-dali-cuda130"), words, _PREFETCH + 1, _batches(pipeline))


@contextmanager
def gpu(job: Job) -> Iterator[Peer]:
    """Hybrid decoding (`mixed`: nvJPEG) and the resize on the GPU; the batch is copied back to the host."""
    if not provenance.gpus():
        raise Unavailable("no NVIDIA GPU is here")
    pipeline = _build(job, "mixed")
    words = f"readers.file, decoders.image mixed, resize on the GPU, copied back, {_threads(job)}, uint8"
    yield Peer(version("nvidia-dali-cuda130"), words, _PREFETCH + 1, _batches(pipeline))


def _threads(job: Job) -> str:
    return f"num_threads={job.cores}, prefetch_queue_depth={_PREFETCH}"


def _build(job: Job, decoder: str) -> Any:
    dali = require("nvidia.dali")
    fn, types = require("nvidia.dali.fn"), require("nvidia.dali.types")

    @dali.pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=job.batch_size,
        num_threads=job.cores,
        device_id=0 if decoder == "mixed" else None,
        prefetch_queue_depth=_PREFETCH,
    )
    def pipeline() -> Any:
        data, labels = fn.readers.file(
            files=list(job.files), labels=list(range(len(job.files))), name="reader"
        )
        images = fn.decoders.image(
            data, device=decoder, output_type=types.RGB, adjust_orientation=False
        )
        return fn.resize(images, resize_x=job.input_px, resize_y=job.input_px), labels

    made = pipeline()
    made.build()
    return made


def _batches(pipeline: Any) -> Iterator[Batch]:
    while True:
        images, labels = pipeline.run()
        positions = np.asarray(labels.as_cpu().as_tensor()).ravel().tolist()
        yield positions, np.asarray(images.as_cpu().as_tensor())
