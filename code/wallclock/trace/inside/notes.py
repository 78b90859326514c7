"""What a call tells of its images: how many, their sizes and formats. Named by rows of `targets`.

Format and stored size of an encoded image are those of its first bytes.
"""

from __future__ import annotations

import os
from typing import Any

from .tracer import Done, Size, Tracer

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
_BRANDS = {b"WEBP": "WEBP", b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIF", b"mif1": "HEIF"}
_SUFFIXES = {
    **{"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "gif": "GIF", "bmp": "BMP", "tif": "TIFF"},
    **{"tiff": "TIFF", "webp": "WEBP", "avif": "AVIF", "jp2": "JPEG2000"},
}
#: Start-of-frame markers with these low bits are of progressive JPEGs.
_PROGRESSIVE = (0xC2, 0xC6, 0xCA, 0xCE)
#: Markers of the same range that start no frame.
_NO_FRAME = (0xC4, 0xC8, 0xCC)


def saved_image(tracer: Tracer, done: Done) -> None:
    """A Pillow image in a file: its format, and what the encoder was told."""
    given = dict(zip(("self", "fp", "format"), done.args)) | done.kwargs
    form = (given.get("format") or format_by_name(given["fp"])).upper()
    told = {key: given[key] for key in _TOLD if given.get(key) is not None}
    tracer.write_use("PIL.Image.save", {"format": form, **told})


def resized_image(tracer: Tracer, done: Done) -> None:
    """A Pillow image or an array that became another one."""
    pair = done.first, done.result
    sizes = [size_of(each.shape) if hasattr(each, "shape") else each.size for each in pair]
    tracer.count(done.slot, 1)
    tracer.count_kind(done.slot, "", *sizes)


def resized_batch(tracer: Tracer, done: Done) -> None:
    """A tensor of images, channels first."""
    source = done.first
    if isinstance(source.shape, tuple) and len(source.shape) == 4:  # no proxy of torch.fx
        images = source.shape[0]
        tracer.count(done.slot, images)
        sizes = (source.shape[3], source.shape[2]), (done.result.shape[3], done.result.shape[2])
        form = str(source.dtype).removeprefix("torch.") if source.is_floating_point() else ""
        tracer.count_kind(done.slot, form, *sizes, images=images)


def decoded_data(tracer: Tracer, done: Done) -> None:
    """An array that was decoded from bytes: the first argument that has any."""
    data = next(filter(None, map(_bytes_of, (*done.args, *done.kwargs.values()))), b"")
    form, source = read_header(data)
    _count_decoded(tracer, done, form, len(data), source)


def decoded_file(tracer: Tracer, done: Done) -> None:
    """An array that was decoded from a path, which the library has read itself."""
    flags = done.args[1] if len(done.args) > 1 else done.kwargs.get("flags", 0)
    is_flags = isinstance(flags, int) and flags > 0
    scale = next((by for bit, by in _REDUCED if is_flags and flags & bit), 1)
    if done.result is not None:
        size = size_of(done.result.shape)
        source = size[0] * scale, size[1] * scale
        n_bytes = os.path.getsize(done.first) if os.path.exists(done.first) else 0
        _count_decoded(tracer, done, format_by_name(done.first), n_bytes, source)
        tracer.write_path(done.first)


def _count_decoded(
    tracer: Tracer, done: Done, form: str, n_bytes: int, source: Size | None
) -> None:
    """`source`: None where it is not known: then nothing has shrunk it."""
    if done.result is not None:
        made = size_of(done.result.shape)
        tracer.count(done.slot, 1, done.started)
        tracer.count_kind(done.slot, form, source or made, made, n_bytes=n_bytes)


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
    tracer.write_path(done.first)


def read_image(tracer: Tracer, done: Done) -> None:
    """Bytes that a read gave: an image, if they begin as one and are no mere header."""
    if isinstance(done.result, bytes) and len(done.result) > 64 and format_of(done.result):
        tracer.count(done.slot, 1, done.started)


def collated_batch(tracer: Tracer, done: Done) -> None:
    """A list of samples that became a batch."""
    tracer.count(done.slot, len(done.first))


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
            is_mapping = hasattr(value, "values") and hasattr(value, "keys")
            shape: Any = getattr(value, "shape", ())
            images = batch_of(value.values()) if is_mapping else 0
            if images or len(shape) in (4, 5):
                return images or int(shape[0])
    except Exception:  # noqa: BLE001 - an argument that is nothing of the kind
        return 0
    return 0


def size_of(shape: tuple[int, ...]) -> Size:
    """Width and height of an array: channels last, or first where the last axis is long."""
    if len(shape) < 3 or (shape[-1] > 4 and shape[-3] <= 4):
        return int(shape[-1]), int(shape[-2])
    return int(shape[-2]), int(shape[-3])


def _bytes_of(value: Any) -> memoryview | None:
    if hasattr(value, "numpy") and not isinstance(value, (bytes, bytearray, memoryview)):
        value = value.numpy()  # a tensor of bytes
    try:
        data = memoryview(value).cast("B")
    except (TypeError, ValueError):
        return None
    return data if data.nbytes > 64 else None


def format_of(data: bytes | memoryview) -> str:
    """Name of the format by content, as Pillow spells it; empty for no image."""
    head = bytes(data[:12])
    for magic, name in _MAGICS:
        if head.startswith(magic):
            return name
    return _BRANDS.get(head[8:], "") if head[:4] == b"RIFF" or head[4:8] == b"ftyp" else ""


def format_by_name(path: object) -> str:
    """Name of the format by the file's suffix; empty for another one."""
    return _SUFFIXES.get(str(path).rpartition(".")[2].lower(), "")


def read_header(data: bytes | memoryview) -> tuple[str, Size | None]:
    """Format, `progressive JPEG` included; of a JPEG width and height, None where it has none."""
    form, at = format_of(data), 2
    while form == "JPEG" and at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            form = "progressive JPEG" if marker in _PROGRESSIVE else "JPEG"
            return form, (_number(data, at + 7), _number(data, at + 5))
        else:
            at += 2 + _number(data, at + 2)
    return form, None


def _number(data: bytes | memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")
