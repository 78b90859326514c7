"""tf.data: TensorFlow's input pipeline, its JPEG decoder at a reduced scale and its own resize.

https://www.tensorflow.org/guide/data_performance: a parallel `map`, then `batch`, then `prefetch`,
here with one call a worker and a pool of as many threads; `AUTOTUNE` would let queues grow that the
measurement drains before its clock starts. `decode_jpeg(ratio=)` scales while it decodes
(https://www.tensorflow.org/api_docs/python/tf/io/decode_jpeg).

Variants. `exact`: `ScaleAndTranslate` with the triangle kernel
(https://www.tensorflow.org/api_docs/python/tf/raw_ops/ScaleAndTranslate) takes a scale for each
side, so that the extent that the image covers is resized, not the array that holds it. `resize`:
`tf.image.resize(antialias=True)`, which everyone calls and which resizes all of the array.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from harness.engines.third_party._interface import (
    DecodedBatch,
    LoaderSpec,
    Stream,
    ThirdPartyLoader,
)
from harness.peers import import_or_unavailable
from wallclock.errors import Unavailable

DISTRIBUTION = "tensorflow-cpu"
_PREFETCH = 2
#: How far above the target's side the decoder stays, as this suite's recipe does.
_MARGIN = 1.25
_RATIOS = (1, 2, 4, 8)


@contextmanager
def _open(spec: LoaderSpec) -> Iterator[Stream]:
    if spec.on_gpu:
        raise Unavailable("tf.data is measured on the host only")
    tensorflow = import_or_unavailable("tensorflow")
    exact = spec.variant != "resize"
    load = partial(_load, tensorflow, spec.input_px, _resize_extent if exact else _resize_all)
    options = tensorflow.data.Options()
    options.threading.private_threadpool_size = spec.workers
    options.threading.max_intra_op_parallelism = 1
    listed = (list(range(len(spec.files))), list(spec.files))
    dataset = (
        tensorflow.data.Dataset.from_tensor_slices(listed)
        .repeat()
        .map(load, num_parallel_calls=spec.workers, deterministic=True)
        .batch(spec.batch_size, drop_remainder=True)
        .prefetch(_PREFETCH)
        .with_options(options)
    )
    resize = "ScaleAndTranslate(triangle, antialias)" if exact else "image.resize(antialias)"
    how = (
        f"map({spec.workers} calls), batch, prefetch({_PREFETCH}), {spec.workers} threads, uint8; "
        f"decode_jpeg(ratio) at margin {_MARGIN}, {resize}"
    )
    # In flight: those prefetched, the one being batched, and the calls' own images.
    ahead = _PREFETCH + 1 + -(-spec.workers // spec.batch_size)
    yield Stream(f"tensorflow {tensorflow.__version__}", how, ahead, _batches(dataset))


def _load(
    tensorflow: Any, px: int, resize: Callable[..., Any], position: Any, path: Any
) -> tuple[Any, Any]:
    """Position and uint8 (px, px, 3) of a file, as operations of TensorFlow's graph."""
    data = tensorflow.io.read_file(path)
    size = tensorflow.io.extract_jpeg_shape(data)[:2]
    shorter = tensorflow.reduce_min(size)
    # The largest ratio that leaves enough pixels; each is an operation of its own.
    enough = [-(-shorter // ratio) >= math.ceil(_MARGIN * px) for ratio in _RATIOS[1:]]
    chosen = tensorflow.reduce_sum(tensorflow.cast(enough, tensorflow.int32))
    decoders = [
        partial(tensorflow.io.decode_jpeg, data, channels=3, ratio=ratio) for ratio in _RATIOS
    ]
    pixels = tensorflow.switch_case(chosen, decoders)
    extent = tensorflow.cast(size, tensorflow.float32) / tensorflow.cast(
        tensorflow.constant(_RATIOS)[chosen], tensorflow.float32
    )
    resized = resize(tensorflow, pixels, px, extent)
    rounded = tensorflow.round(tensorflow.clip_by_value(resized, 0.0, 255.0))
    return position, tensorflow.cast(rounded, tensorflow.uint8)


def _resize_extent(tensorflow: Any, pixels: Any, px: int, extent: Any) -> Any:
    """Float32 (px, px, 3) of the rows and columns that the image covers."""
    return tensorflow.raw_ops.ScaleAndTranslate(
        images=pixels[None],
        size=[px, px],
        scale=px / extent,
        translation=[0.0, 0.0],
        kernel_type="triangle",
        antialias=True,
    )[0]


def _resize_all(tensorflow: Any, pixels: Any, px: int, extent: Any) -> Any:
    """Float32 (px, px, 3) of all pixels of the array."""
    return tensorflow.image.resize(pixels, [px, px], antialias=True)


def _batches(dataset: Any) -> Iterator[DecodedBatch]:
    for positions, images in dataset.as_numpy_iterator():
        yield positions.tolist(), images


LOADER = ThirdPartyLoader(
    "tf-data", "tf.data", _open, (DISTRIBUTION,), ("exact", "resize"), workers_per_core=(1, 4)
)
