"""NVIDIA DALI: the file reader, the image decoder and the resize of its own pipeline, on the CPU.

https://docs.nvidia.com/deeplearning/dali/user-guide/docs/advanced_topics_performance_tuning.html:
the defaults perform well; `num_threads` is one a core, `prefetch_queue_depth` its default of 2. The
reader cycles endlessly. The decoder applies EXIF orientation by default; disabled here. Before a
GPU the pipeline ends in its own copy, `.gpu()`: from pinned memory, on its stream, batches ahead.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from harness.engines.third_party import _interface as api
from harness.engines.third_party._interface import DecodedBatch, LoaderSpec, Stream
from harness.peers import import_or_unavailable

DISTRIBUTION = "nvidia-dali-cuda130"
_PREFETCH = 2


@contextmanager
def open_stream(spec: LoaderSpec, decoder: str = "cpu") -> Iterator[Stream]:
    """Open the pipeline.

    Args:
        decoder: `cpu`, or `mixed` for nvJPEG and the resize on the GPU, where the images stay.
    """
    pipeline = _build(spec, decoder)
    resize = "resize on the CPU" if decoder == "cpu" else "resize on the GPU"
    if spec.on_gpu and decoder == "cpu":
        resize += ", .gpu()"
    settings = (
        f"readers.file, decoders.image {decoder}, {resize}, num_threads={spec.workers}, "
        f"prefetch_queue_depth={_PREFETCH}, uint8"
    )
    yield Stream(
        api.version(DISTRIBUTION), settings, _PREFETCH + 1, _batches(pipeline, spec.on_gpu)
    )


def _build(spec: LoaderSpec, decoder: str) -> Any:
    dali = import_or_unavailable("nvidia.dali")
    fn = import_or_unavailable("nvidia.dali.fn")
    types = import_or_unavailable("nvidia.dali.types")

    @dali.pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=spec.batch_size,
        num_threads=spec.workers,
        device_id=0 if spec.on_gpu else None,
        prefetch_queue_depth=_PREFETCH,
    )
    def define() -> Any:
        positions = list(range(len(spec.files)))
        data, labels = fn.readers.file(files=list(spec.files), labels=positions, name="reader")
        images = fn.decoders.image(
            data, device=decoder, output_type=types.RGB, adjust_orientation=False
        )
        images = fn.resize(images, resize_x=spec.input_px, resize_y=spec.input_px)
        return images.gpu() if spec.on_gpu else images, labels

    pipeline = define()
    pipeline.build()
    return pipeline


def _batches(pipeline: Any, on_gpu: bool) -> Iterator[DecodedBatch]:
    from torch.utils.dlpack import from_dlpack

    while True:
        images, labels = pipeline.run()
        positions = np.asarray(labels.as_cpu().as_tensor()).ravel().tolist()
        # Neither copies: DALI keeps a batch's memory until the next one.
        batch = images.as_tensor()
        yield positions, from_dlpack(batch) if on_gpu else np.asarray(batch)


LOADER = api.ThirdPartyLoader("dali", "DALI (CPU)", open_stream, (DISTRIBUTION,))
