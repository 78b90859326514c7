"""What a call tells of its images: how many, their sizes and formats. Named by rows of `targets`.

Format and stored size of an encoded image are those of its first bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from .tracer import Size, Tracer


class Done(NamedTuple):
    """A call of a function that is counted: its slot and when it started, what it took and gave."""

    slot: int
    started: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


Note = Callable[[Tracer, Done], None]

#: cv2.IMREAD_REDUCED_*: bits of the flags, and how often smaller they decode.
_REDUCED = ((16, 2), (32, 4), (64, 8))
#: What encoders are told that takes time.
_TOLD = ("optimize", "compress_level", "method", "speed")
#: First bytes → format. WebP, AVIF and HEIC have theirs after a length.
_MAGICS = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG", "PNG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"\0\0\0\x0cjP", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
)
_SUFFIXES = {
    **{"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "gif": "GIF", "bmp": "BMP", "tif": "TIFF"},
    **{"tiff": "TIFF", "webp": "WEBP", "avif": "AVIF", "jp2": "JPEG2000"},
}
#: Start-of-frame markers with these low bits are of progressive JPEGs.
_PROGRESSIVE = (0xC2, 0xC6, 0xCA, 0xCE)
#: Markers of the same range that start no frame.
_NO_FRAME = (0xC4, 0xC8, 0xCC)


def count_image(tracer: Tracer, done: Done) -> None:
    """One image a call, or those of a batch."""
    shape: Any = getattr(done.result, "shape", ())
    tracer.count(done.slot, shape[0] if len(shape) == 4 else 1)


def saved_image(tracer: Tracer, done: Done) -> None:
    """A Pillow image in a file: its format, and what the encoder was told."""
    given = dict(zip(("self", "fp", "format"), done.args)) | done.kwargs
    form = (given.get("format") or format_by_name(given["fp"])).upper()
    told = {key: given[key] for key in _TOLD if given.get(key) is not None}
    tracer.write_use("PIL.Image.save", {"format": form, **told})


def resized_image(tracer: Tracer, done: Done) -> None:
    """A Pillow image that became another one."""
    tracer.count(done.slot, 1)
    tracer.count_kind(done.slot, "", done.args[0].size, done.result.size)


def resized_array(tracer: Tracer, done: Done) -> None:
    """An array that became another one, e.g. by `cv2.resize`."""
    source = done.args[0] if done.args else done.kwargs["src"]
    tracer.count(done.slot, 1)
    tracer.count_kind(done.slot, "", size_of(source.shape), size_of(done.result.shape))


def resized_batch(tracer: Tracer, done: Done) -> None:
    """A tensor of images, channels first."""
    source = done.args[0] if done.args else done.kwargs["input"]
    if isinstance(source.shape, tuple) and len(source.shape) == 4:  # no proxy of torch.fx
        images = source.shape[0]
        tracer.count(done.slot, images)
        sizes = (source.shape[3], source.shape[2]), (done.result.shape[3], done.result.shape[2])
        form = str(source.dtype).removeprefix("torch.") if source.is_floating_point() else ""
        tracer.count_kind(done.slot, form, *sizes, images=images)


def decoded_data(tracer: Tracer, done: Done) -> None:
    """An array that was decoded from bytes: the first argument that has any."""
    if done.result is None:
        return
    data = next(filter(None, map(_bytes_of, (*done.args, *done.kwargs.values()))), None)
    made = size_of(done.result.shape)
    form, source = read_header(data) if data is not None else ("", None)
    tracer.count(done.slot, 1, done.started)
    n_bytes = 0 if data is None else data.nbytes
    tracer.count_kind(done.slot, form, source or made, made, n_bytes=n_bytes)


def decoded_file(tracer: Tracer, done: Done) -> None:
    """An array that was decoded from a path, which the library has read itself."""
    if done.result is None:
        return
    path = done.args[0] if done.args else next(iter(done.kwargs.values()))
    made = size_of(done.result.shape)
    flags = done.args[1] if len(done.args) > 1 else done.kwargs.get("flags", 0)
    scale = next(
        (by for bit, by in _REDUCED if isinstance(flags, int) and flags > 0 and flags & bit), 1
    )
    tracer.count(done.slot, 1, done.started)
    source = made[0] * scale, made[1] * scale
    form = format_by_name(path)
    tracer.count_kind(done.slot, form, source, made, n_bytes=_length_of(path))
    tracer.write_path(path)


def loaded_at_once(tracer: Tracer, done: Done) -> None:
    """A method of `wallclock` that reads, decodes and resizes: it returns each image's times."""
    _, _, chunk, start, rows = done.args
    view = tracer.view()
    read, resize = (tracer.slot(stage, f"wallclock {stage}") for stage in ("read", "resize"))
    view[done.slot + 1] -= 1  # each image is a call
    for image, times in zip(chunk.items[start:], done.result):
        if not isinstance(times, tuple):
            continue
        for slot, ns in ((read, times[1] - times[0]), (resize, times[3] - times[2])):
            view[slot] += ns
            view[slot + 1] += 1
            view[done.slot] -= ns
            tracer.count(slot, 1)
        view[done.slot + 1] += 1
        tracer.count(done.slot, 1, done.started)
        form = "progressive JPEG" if image.process == "progressive" else "JPEG"
        source, made = (image.width, image.height), size_of(rows[0].shape)
        tracer.count_kind(done.slot, form, source, made, n_bytes=image.bytes)
        tracer.write_path(image.id)


def read_file(tracer: Tracer, done: Done) -> None:
    """A tensor of a file's bytes, by its path."""
    tracer.write_path(done.args[0] if done.args else done.kwargs["path"])


def read_image(tracer: Tracer, done: Done) -> None:
    """Bytes that a read gave: an image, if they begin as one and are no mere header."""
    if isinstance(done.result, bytes) and len(done.result) > 64 and format_of(done.result):
        tracer.count(done.slot, 1, done.started)


def collated_batch(tracer: Tracer, done: Done) -> None:
    """A list of samples that became a batch."""
    samples = done.args[0] if done.args else next(iter(done.kwargs.values()))
    tracer.count(done.slot, len(samples))


def fed_session(tracer: Tracer, done: Done) -> None:
    """The inputs of an onnxruntime session, by name."""
    feed = done.kwargs.get("input_feed", done.args[2] if len(done.args) > 2 else {})
    tracer.count(done.slot, batch_of(feed.values()))


def batch_of(values: Any) -> int:
    """Images of the first argument that is a batch of them: four or five dimensions.

    An argument may be a mapping of tensors.
    """
    try:
        for value in values:
            if hasattr(value, "values") and hasattr(value, "keys"):
                images = batch_of(value.values())
                if images:
                    return images
            shape: Any = getattr(value, "shape", ())
            if len(shape) in (4, 5):
                return int(shape[0])
    except Exception:  # noqa: BLE001 - an argument that is nothing of the kind
        return 0
    return 0


def size_of(shape: tuple[int, ...]) -> Size:
    """Width and height of an array: channels last, or first where the last axis is long."""
    if len(shape) >= 3 and shape[-1] > 4 and shape[-3] <= 4:
        return int(shape[-1]), int(shape[-2])
    if len(shape) >= 3:
        return int(shape[-2]), int(shape[-3])
    return int(shape[1]), int(shape[0])


def _bytes_of(value: Any) -> memoryview | None:
    if hasattr(value, "numpy") and not isinstance(value, (bytes, bytearray, memoryview)):
        value = value.numpy()  # a tensor of bytes
    try:
        data = memoryview(value).cast("B")
    except (TypeError, ValueError):
        return None
    return data if data.nbytes > 64 else None


def _length_of(path: Any) -> int:
    try:
        return os.path.getsize(path)
    except (OSError, TypeError, ValueError):
        return 0


def format_of(data: bytes | memoryview) -> str:
    """Name of the format by content, as Pillow spells it; empty for no image."""
    head = bytes(data[:12])
    for magic, name in _MAGICS:
        if head.startswith(magic):
            return name
    if head[:4] == b"RIFF" and head[8:] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp":
        return {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIF", b"mif1": "HEIF"}.get(
            head[8:], ""
        )
    return ""


def format_by_name(path: object) -> str:
    """Name of the format by the file's suffix; empty for another one."""
    return _SUFFIXES.get(str(path).rpartition(".")[2].lower(), "")


def read_header(data: bytes | memoryview) -> tuple[str, Size | None]:
    """Format, `progressive JPEG` included, and width and height; None where they are not found."""
    form = format_of(data)
    if form == "JPEG":
        return _jpeg(data)
    if form == "PNG" and len(data) >= 24:
        return form, (_number(data, 16, 4), _number(data, 20, 4))
    return form, None


def _jpeg(data: bytes | memoryview) -> tuple[str, Size | None]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            form = "progressive JPEG" if marker in _PROGRESSIVE else "JPEG"
            return form, (_number(data, at + 7, 2), _number(data, at + 5, 2))
        else:
            at += 2 + _number(data, at + 2, 2)
    return "JPEG", None


def _number(data: bytes | memoryview, at: int, length: int) -> int:
    return int.from_bytes(data[at : at + length], "big")
