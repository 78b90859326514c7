"""SPDL: Meta's pipeline of threads around FFmpeg's decoders.

Two ways of use that its documentation shows, as variants: `batch`, where a thread loads a complete
batch (https://facebookresearch.github.io/spdl/main/generated/image_dataloading.html), and `image`,
where threads decode and resize single images and one stage collates them
(https://facebookresearch.github.io/spdl/main/best_practice.html). One thread a core. The filter is
bilinear, as everyone's here; its default, bicubic, costs more. `accurate` adds swscale's accurate
rounding and full chroma (https://ffmpeg.org/ffmpeg-scaler.html).

Before a GPU the last stage is its own `transfer_tensor_h2d`, in one thread, as its documentation
has it: through pinned memory, on a stream of its own, batches ahead.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from harness.engines.third_party import _interface as api
from harness.engines.third_party._interface import DecodedBatch, LoaderSpec, Stream, cycle
from harness.peers import import_or_unavailable, load_failure

_SINK = 2
_FFMPEG = "it needs FFmpeg's shared libraries: sudo apt-get install -y ffmpeg"


@contextmanager
def _open(spec: LoaderSpec) -> Iterator[Stream]:
    pipelines = import_or_unavailable("spdl.pipeline")
    media = import_or_unavailable("spdl.io", hint=_FFMPEG)
    try:
        media.demux_config()  # it imports without FFmpeg, and fails at its first use
    except RuntimeError as error:
        raise load_failure("spdl.io", error, _FFMPEG) from error
    by_batch = spec.variant.startswith("batch")
    builder = (_by_batch if by_batch else _by_image)(pipelines.PipelineBuilder(), media, spec)
    copier = ThreadPoolExecutor(max_workers=1)  # the stream belongs to its thread
    if spec.on_gpu:
        builder = builder.pipe(_to_device(media), executor=copier)
    pipeline = builder.add_sink(_SINK).build(num_threads=spec.workers)
    by_image = "decode_packets with a scale filter, then convert_frames"
    settings = (
        f"{'load_image_batch' if by_batch else by_image}, concurrency={spec.workers}, "
        f"num_threads={spec.workers}, sink of {_SINK}, scale {_algorithm(spec)}, uint8"
    )
    if spec.on_gpu:
        settings += ", transfer_tensor_h2d"
    with copier, pipeline.auto_stop():
        burst = spec.workers if by_batch else 1
        prefetched = spec.workers + _SINK + 2
        yield Stream(api.version("spdl-io"), settings, prefetched, pipeline.get_iterator(), burst)


def _algorithm(spec: LoaderSpec) -> str:
    if spec.variant.endswith("accurate"):
        return "bilinear+accurate_rnd+full_chroma_inp+full_chroma_int"
    return "bilinear"


def _scale_filter(media: Any, spec: LoaderSpec) -> Any:
    # By default it keeps the aspect ratio and pads; all loaders here resize to the square.
    size = {"scale_width": spec.input_px, "scale_height": spec.input_px, "scale_mode": None}
    return media.get_video_filter_desc(**size, scale_algo=_algorithm(spec), pix_fmt="rgb24")


def _to_device(media: Any) -> Callable[[DecodedBatch], DecodedBatch]:
    import torch

    def transfer(batch: DecodedBatch) -> DecodedBatch:
        positions, pixels = batch
        return positions, media.transfer_tensor_h2d(torch.from_numpy(pixels))

    return transfer


def _by_batch(builder: Any, media: Any, spec: LoaderSpec) -> Any:
    scale = _scale_filter(media, spec)

    def load(positions: Sequence[int]) -> DecodedBatch:
        files = [spec.files[position] for position in positions]
        buffer = media.load_image_batch(
            files, width=None, height=None, pix_fmt=None, filter_desc=scale
        )
        return positions, media.to_numpy(buffer)

    source = cycle(len(spec.files), spec.batch_size)
    return builder.add_source(source).pipe(load, concurrency=spec.workers)


def _by_image(builder: Any, media: Any, spec: LoaderSpec) -> Any:
    scale = _scale_filter(media, spec)

    def load(position: int) -> tuple[int, Any]:
        packets = media.demux_image(spec.files[position])
        return position, media.decode_packets(packets, filter_desc=scale)

    def collate(loaded: Sequence[tuple[int, Any]]) -> DecodedBatch:
        frames = [frame for _, frame in loaded]
        return [position for position, _ in loaded], media.to_numpy(media.convert_frames(frames))

    source = (position for positions in cycle(len(spec.files), 1) for position in positions)
    images = builder.add_source(source).pipe(load, concurrency=spec.workers)
    return images.aggregate(spec.batch_size).pipe(collate)


_VARIANTS = ("batch", "image", "batch accurate", "image accurate")
LOADER = api.ThirdPartyLoader("spdl", "SPDL", _open, ("spdl-io", "spdl-core"), _VARIANTS)
