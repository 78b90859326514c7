"""SPDL: Meta's pipeline of threads around FFmpeg's decoders.

Two ways that its documentation shows, as variants: `batch`, where a thread loads a whole batch
(https://facebookresearch.github.io/spdl/main/generated/image_dataloading.html), and `image`, where threads
decode and resize single images and one stage puts them into a batch
(https://facebookresearch.github.io/spdl/main/best_practice.html). One thread a core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wallclock.engines.third_party import Batch, Job, Peer, broken, cycle, require, version

_SINK = 2
_FFMPEG = "it needs FFmpeg's shared libraries: sudo apt-get install -y ffmpeg"


@contextmanager
def spdl(job: Job) -> Iterator[Peer]:
    """Open the pipeline that the variant names."""
    pipelines = require("spdl.pipeline")
    media = require("spdl.io", hint=_FFMPEG)
    try:
        media.demux_config()  # it imports without FFmpeg, and fails at its first use
    except RuntimeError as error:
        raise broken("spdl.io", error, _FFMPEG) from error
    batchwise = job.variant == "batch"
    builder = (_by_batch if batchwise else _by_image)(pipelines.PipelineBuilder(), media, job)
    pipeline = builder.add_sink(_SINK).build(num_threads=job.cores)
    how = (
        "load_image_batch"
        if batchwise
        else "decode_packets with a scale filter, then convert_frames"
    )
    words = f"{how}, concurrency={job.cores}, num_threads={job.cores}, sink of {_SINK}, uint8"
    with pipeline.auto_stop():
        burst = job.cores if batchwise else 1
        yield Peer(version("spdl-io"), words, job.cores + _SINK + 2, pipeline.get_iterator(), burst)


def _scale(media: Any, px: int) -> str:
    # By default it keeps the aspect ratio and pads; all systems here squash to the square.
    found: str = media.get_video_filter_desc(
        scale_width=px, scale_height=px, scale_mode=None, pix_fmt="rgb24"
    )
    return found


def _by_batch(builder: Any, media: Any, job: Job) -> Any:
    def load(positions: Sequence[int]) -> Batch:
        files = [job.files[position] for position in positions]
        buffer = media.load_image_batch(
            files, width=None, height=None, pix_fmt=None, filter_desc=scale
        )
        return positions, media.to_numpy(buffer)

    scale = _scale(media, job.input_px)

    source = cycle(len(job.files), job.batch_size)
    return builder.add_source(source).pipe(load, concurrency=job.cores)


def _by_image(builder: Any, media: Any, job: Job) -> Any:
    scale = _scale(media, job.input_px)

    def load(position: int) -> tuple[int, Any]:
        packets = media.demux_image(job.files[position])
        return position, media.decode_packets(packets, filter_desc=scale)

    def batch(loaded: Sequence[tuple[int, Any]]) -> Batch:
        frames = [frame for _, frame in loaded]
        return [position for position, _ in loaded], media.to_numpy(media.convert_frames(frames))

    source = (position for positions in cycle(len(job.files), 1) for position in positions)
    return (
        builder.add_source(source)
        .pipe(load, concurrency=job.cores)
        .aggregate(job.batch_size)
        .pipe(batch)
    )
