"""Libraries of images whose functions a row of `targets` cannot describe.

Pillow decodes where an image is first used, so that one name has several stages.
"""

from functools import wraps
from types import ModuleType
from typing import Any

from . import files
from .patch import replace
from .tracer import Call, Tracer

#: Attributes that traced images have: size in the file, where `draft` made it smaller; size as
#: decoded.
_STORED = "_wallclock_stored"
_DECODED = "_wallclock_decoded"
_SAME = {"MPO": "JPEG"}
#: Formats whose plugins decode before they load.
_LOADED_RAW = ("WEBP", "AVIF", "HEIF")


def patch_image(tracer: Tracer, module: ModuleType) -> None:
    """`convert` right after `open` belongs to decode, later it is a transform."""
    decode = tracer.slot("decode", "PIL.Image.convert")
    transform = tracer.slot("transform", "PIL.Image.convert")
    plain = module.Image

    def wrap(original: Call) -> Call:
        @wraps(original)
        def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
            slot = transform
            if type(self) is not plain and vars(self).get(_DECODED, self.size) == self.size:
                slot = decode
            return tracer.call(slot, original, self, *args, **kwargs)

        return convert

    replace(tracer, module, "Image.convert", wrap)


def patch_image_file(tracer: Tracer, module: ModuleType) -> None:
    """`load` decodes once, and is called by every method that needs pixels."""
    slot = tracer.slot("decode", "PIL.ImageFile.load")

    def wrap(original: Call) -> Call:
        @wraps(original)
        def load(self: Any) -> Any:
            if not self.tile:
                return original(self)
            stored, file = vars(self).get(_STORED, self.size), self.fp
            is_raw = self.format in _LOADED_RAW
            n_bytes = 0 if is_raw else files.length_of(file)
            entered = tracer.enter(slot)
            try:
                result = original(self)
            finally:
                tracer.leave(slot, entered)
            vars(self)[_DECODED] = self.size
            tracer.count(slot, 1, entered[1])
            tracer.count_kind(slot, _format_of(self), stored, self.size, n_bytes=n_bytes)
            if not is_raw:
                files.count_read(tracer, file)
            return result

        return load

    replace(tracer, module, "ImageFile.load", wrap)


def patch_jpeg(tracer: Tracer, module: ModuleType) -> None:
    """`draft` has a JPEG decoded at a smaller scale."""
    slot = tracer.slot("decode", "PIL.Image.draft")

    def wrap(original: Call) -> Call:
        @wraps(original)
        def draft(self: Any, mode: Any, size: Any) -> Any:
            stored = self.size
            result = tracer.call(slot, original, self, mode, size)
            vars(self).setdefault(_STORED, stored)
            return result

        return draft

    replace(tracer, module, "JpegImageFile.draft", wrap)


def _format_of(image: Any) -> str:
    form = str(image.format or "")
    form = _SAME.get(form, form)
    return f"progressive {form}" if form == "JPEG" and image.info.get("progressive") else form
