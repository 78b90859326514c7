"""Functions that a row of `targets` cannot describe: of Pillow, of torch's loader, and `open`.

Pillow decodes where an image is first used, so that one name has several stages.
"""

from __future__ import annotations

import builtins
import io
import os
from types import ModuleType
from typing import Any

from . import layout
from .notes import format_by_name, format_of
from .patch import interpose
from .tracer import Call, Tracer, disguise_as

#: Attributes that traced images have: size in the file, where `draft` made it smaller; size as
#: decoded.
_STORED = "_wallclock_stored"
_DECODED = "_wallclock_decoded"
#: Formats whose plugins decode before they load.
_LOADED_RAW = ("WEBP", "AVIF", "HEIF")
_DATALOADER_SETTINGS = ("num_workers", "batch_size", "prefetch_factor", "pin_memory")
#: In the names of options for numbers of workers.
_OF_WORKERS = ("workers", "jobs", "num_proc", "threads", "processes")


def patch_image(tracer: Tracer, module: ModuleType) -> None:
    """`convert` right after `open` belongs to decode, later it is a transform."""
    decode = tracer.slot("decode", "PIL.Image.convert")
    transform = tracer.slot("transform", "PIL.Image.convert")
    plain = module.Image

    def convert(original: Call, self: Any, *args: Any, **kwargs: Any) -> Any:
        is_decoded = type(self) is plain or vars(self).get(_DECODED, self.size) != self.size
        return tracer.call(transform if is_decoded else decode, original, self, *args, **kwargs)

    interpose(tracer, module, "Image.convert", convert)


def patch_image_file(tracer: Tracer, module: ModuleType) -> None:
    """`load` decodes once, and is called by every method that needs pixels."""
    slot = tracer.slot("decode", "PIL.ImageFile.load")

    def load(original: Call, self: Any) -> Any:
        if not self.tile:
            return original(self)
        stored, file = vars(self).get(_STORED, self.size), self.fp
        is_raw = self.format in _LOADED_RAW
        n_bytes = 0 if is_raw else _length_of(file)
        started = tracer.clock()
        result = tracer.call(slot, original, self)
        vars(self)[_DECODED] = self.size
        tracer.count(slot, 1, started)
        tracer.count_kind(slot, _format_of(self), stored, self.size, n_bytes=n_bytes)
        # Read piece by piece by the decoder.
        if not is_raw and type(file).__module__ == "_io" and isinstance(file, io.BufferedReader):
            tracer.count(tracer.slot("read", "file.read"), 1)
        return result

    interpose(tracer, module, "ImageFile.load", load)


def patch_jpeg(tracer: Tracer, module: ModuleType) -> None:
    """`draft` has a JPEG decoded at a smaller scale."""
    slot = tracer.slot("decode", "PIL.Image.draft")

    def draft(original: Call, self: Any, mode: Any, size: Any) -> Any:
        stored = self.size
        result = tracer.call(slot, original, self, mode, size)
        vars(self).setdefault(_STORED, stored)
        return result

    interpose(tracer, module, "JpegImageFile.draft", draft)


def _format_of(image: Any) -> str:
    form = "JPEG" if image.format == "MPO" else str(image.format or "")
    return f"progressive {form}" if form == "JPEG" and image.info.get("progressive") else form


def patch_dataloader(tracer: Tracer, module: ModuleType) -> None:
    """Note each DataLoader."""

    def __init__(original: Call, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        settings = {name: getattr(self, name, "") for name in _DATALOADER_SETTINGS}
        tracer.write_use("torch.utils.data.DataLoader", settings)

    interpose(tracer, module, "DataLoader.__init__", __init__)


def patch_argparse(tracer: Tracer, module: ModuleType) -> None:
    """Note the program's own options for numbers of workers."""

    def parse_known_args(original: Call, self: Any, *args: Any, **kwargs: Any) -> Any:
        parsed = original(self, *args, **kwargs)
        for action in self._actions:
            value = getattr(parsed[0], str(action.dest), None)
            if type(value) is int and any(word in action.dest for word in _OF_WORKERS):
                flag = max(action.option_strings, key=len, default="")
                tracer.write_use("option", {"flag": flag, "value": value})
        return parsed

    interpose(tracer, module, "ArgumentParser.parse_known_args", parse_known_args)


def patch_worker(tracer: Tracer, module: ModuleType) -> None:
    """A worker process knows that it is one."""

    def _worker_loop(original: Call, *args: Any, **kwargs: Any) -> Any:
        tracer.counters.words[layout.IS_WORKER] = 1
        return original(*args, **kwargs)

    interpose(tracer, module, "_worker_loop", _worker_loop)


def patch_io(tracer: Tracer, module: ModuleType) -> None:
    """Have `open` give readers that count."""
    traced = _open(tracer, io.open, _reader(tracer))
    tracer.made[id(traced)] = traced
    builtins.open = io.open = traced


def _open(tracer: Tracer, original: Call, reader: Any) -> Call:
    timed = tracer.timed(_counted, tracer.slot("read", "open"))

    def open(file: Any, mode: str = "r", buffering: int = -1, *more: Any, **options: Any) -> Any:
        # Other modes and buffers give files of other classes.
        if mode not in ("rb", "br") or buffering in (0, 1):
            return original(file, mode, buffering, *more, **options)
        if format_by_name(file):
            tracer.write_path(file)
        return timed(original, reader, file, mode, buffering, *more, **options)

    return disguise_as(original, open)


def _counted(original: Call, reader: Any, *args: Any, **options: Any) -> Any:
    """The file, in a buffer of the same size that counts."""
    opened = original(*args, **options)
    if type(opened) is not io.BufferedReader:
        return opened
    buffering, raw = args[2], opened.detach()
    # The attribute is Python's own, and the block size of the file system.
    size = buffering if buffering > 1 else getattr(raw, "_blksize", 0)
    return reader(raw, size if size > 1 else io.DEFAULT_BUFFER_SIZE)


def _reader(tracer: Tracer) -> Any:
    """The class of the files: a `BufferedReader` in all but its clock."""
    slot = tracer.slot("read", "file.read")
    count = tracer.count

    class BufferedReader(io.BufferedReader):
        __slots__ = ()

        def __repr__(self) -> str:
            try:
                return f"<_io.BufferedReader name={self.name!r}>"
            except AttributeError:
                return "<_io.BufferedReader>"

        def __reduce_ex__(self, protocol: Any) -> Any:
            raise TypeError("cannot pickle '_io.BufferedReader' object")

    def read(self: Any, size: int | None = -1, /) -> bytes:
        """Read and return up to n bytes."""
        data: bytes = timed_read(self, size)
        if (size is None or size < 0) and len(data) > 64 and format_of(data):
            count(slot, 1, tracer.clock())
        return data

    inner = io.BufferedReader
    timed_read = tracer.timed(inner.read, slot)
    made: Any = BufferedReader
    made.read = read
    for name in ("read1", "readinto", "readinto1", "peek"):
        setattr(made, name, tracer.timed(getattr(inner, name), slot))
    made.__module__, made.__qualname__ = "_io", "BufferedReader"
    return made


def _length_of(file: Any) -> int:
    """Bytes of an open file; 0 where it cannot tell."""
    try:
        if isinstance(file, io.BytesIO):
            return file.getbuffer().nbytes
        return os.fstat(file.fileno()).st_size
    except (AttributeError, OSError, ValueError):
        return 0
