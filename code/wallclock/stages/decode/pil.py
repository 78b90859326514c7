"""Decoder `pil`: Pillow, called as everyone calls it; `convert` and `asarray` both copy.

Every other format than JPEG is read here too, in every recipe. `open_image` is the only place that
opens a file by Pillow: by the one format that its bytes announce, and no other.
"""

import ctypes
import io
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from typing import Any

from wallclock import jpeg
from wallclock.errors import ImageError
from wallclock.formats import HEAD_BYTES, sniff
from wallclock.orientation import UPRIGHT, valid
from wallclock.recipe import Limits
from wallclock.stages.decode.decoder import MODES, Decode, Decoder
from wallclock.stages.pixels import PixelArray, as_array, at_address

#: Format → what Pillow calls it, where that is another name.
_FORMATS = {"jp2": "JPEG2000", "heic": "HEIF"}
_NEEDS = {"HEIF": "HEIC needs pillow-heif: pip install pillow-heif"}
_ORIENTATION, _BITS, _PHOTOMETRIC, _WHITE_IS_ZERO = 0x0112, 258, 262, 0
#: An item's entry in the list of an AVIF: libavif decodes none whose EXIF it cannot read.
_AVIF_EXIF = re.compile(rb"(infe[\2\3].{7,9})Exif", re.DOTALL)
_STRIPPERS = {"jpeg": jpeg.bare, "avif": lambda data: _AVIF_EXIF.sub(rb"\1skip", data)}
#: Orientation → what makes it upright, as Pillow calls it.
_TURNS = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE"}
_TURNS |= {6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"}
#: Pillow's modes whose pixels begin with those of one of `MODES`.
_BEGIN_WITH = {"RGB": ("RGB", "RGBA", "RGBX", "L"), "L": ("L",), "RGBA": ("RGBA",)}
#: Pillow joins the metadata segments of a JPEG one by one, each time copying all before it: above
#: so many bytes they are cut out.
_MOST_METADATA = 1 << 20


class _Quiet:
    """Ignores warnings, about damage that the strict pass judges or sizes that our limits judge.

    And has Pillow take one block of memory for an image, not one for each 16 MB. Both are settings
    of the process: the first to enter changes them, the last to leave restores them.
    (`catch_warnings` alone is not safe in threads.)
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
                self._blocks = _pillow().core.get_use_block_allocator()
                _pillow().core.set_use_block_allocator(1)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._filters.__exit__(None, None, None)
                _pillow().core.set_use_block_allocator(self._blocks)


def _pillow() -> Any:
    from PIL import Image

    return Image


quiet: _Quiet = _Quiet()


def admit_pixels(most: int) -> None:
    """Let Pillow open images of so many pixels: its own limit is raised, and never lifted."""
    limit = _pillow().MAX_IMAGE_PIXELS
    if limit is not None and limit < most:
        _pillow().MAX_IMAGE_PIXELS = most


@cache
def _register_heif() -> None:
    """Add HEIC to Pillow's formats, where its plugin is installed."""
    with suppress(ImportError):
        import_module("pillow_heif").register_heif_opener(thumbnails=False)


@cache
def _silence_libtiff() -> None:
    """It writes to standard error, without the file's name; of damage, Pillow raises it as well."""
    library = ctypes.CDLL(import_module("PIL._imaging").__file__)
    for name in ("TIFFSetWarningHandler", "TIFFSetErrorHandler"):
        with suppress(AttributeError):  # a Pillow without libtiff, or Windows
            getattr(library, name)(None)


def open_image(data: bytes, format: str) -> Any:
    """Pillow's image of a file of this format of `formats.sniff`; its pixels are not decoded yet.

    Raises ImageError: this Pillow has no decoder; whatever else Pillow raises: it is damaged.
    """
    if format == "heic":
        _register_heif()
    if format == "tiff":
        _silence_libtiff()
    name = _FORMATS.get(format, format.upper())
    pillow = _pillow()
    if name not in pillow.OPEN:
        pillow.init()
    if name not in pillow.OPEN:
        needs = _NEEDS.get(name, f"this Pillow reads no {name}: pip install -U pillow")
        raise ImageError("decode", needs)
    if format == "jpeg":
        data = without_metadata(data)

    def read(data: bytes) -> Any:
        return pillow.open(io.BytesIO(data), formats=(name,))

    strip = _STRIPPERS.get(format)
    return jpeg.read_bare(read, data, strip=strip) if strip else read(data)


def without_metadata(data: bytes) -> bytes:
    """The bare JPEG, where its metadata are over a megabyte."""
    if len(data) <= _MOST_METADATA:
        return data
    bare = jpeg.bare(data)
    return bare if len(data) - len(bare) > _MOST_METADATA else data


def stated_orientation(image: Any) -> int:
    """The orientation, 1 to 8, that Pillow reads of an opened image; 1 where it cannot."""
    with suppress(Exception):
        # Its method for PNG decodes whatever has no EXIF.
        return valid(_pillow().Image.getexif(image).get(_ORIENTATION))
    return UPRIGHT


def turn_upright(image: Any, orientation: int) -> Any:
    """As `ImageOps.exif_transpose`, which fails where it cannot write the other EXIF again."""
    if orientation == UPRIGHT:
        return image
    return image.transpose(_pillow().Transpose[_TURNS[orientation]])


def load_stored(image: Any) -> Any:
    """Decode the pixels of an opened image, as they are stored: a TIFF is turned back."""
    orientation = stated_orientation(image) if image.format == "TIFF" else UPRIGHT
    image.load()
    return turn_upright(image, {6: 8, 8: 6}.get(orientation, orientation))


def _make(reuse: bool, mode: str = "RGB") -> Decode:
    decode_image = make_image(mode)

    def decode(data: bytes, scale: int = 1, size: tuple[int, int] | None = None) -> PixelArray:
        return as_array(decode_image(data, scale))

    return decode


def decode_in_place(data: bytes, mode: str) -> PixelArray:
    """The pixels of a file of any format, in the memory that Pillow decoded them to."""
    with _stored(data, 1) as image:
        return pixels_of(image, mode)


def pixels_of(image: Any, mode: str) -> PixelArray:
    """Uint8 (h, w, c) of a decoded image; read-only, in its memory where it can. Or ImageError."""
    import numpy as np

    _check_samples(image)
    if image.mode not in _BEGIN_WITH[mode]:
        image = _convert(image, mode)
    pixels = _memory_of(image)
    if image.mode == "L" != mode:
        return np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    return pixels[..., : MODES[mode]]


class _ArrowArray(ctypes.Structure):
    """See https://arrow.apache.org/docs/format/CDataInterface.html."""


_ArrowArray._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowArray))),
]
_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _memory_of(image: Any) -> PixelArray:
    """The pixels of an image of 8 bits a sample, (h, w, 1) or (h, w, 4), or a copy of them."""
    try:
        # Of what lies in memory of others, or has rows apart, Pillow may not know it.
        if image.readonly or _pillow().core.get_alignment() > 1:
            raise ValueError(image)
        _, capsule = image.__arrow_c_array__()
    except ValueError:  # several blocks
        return as_array(image)
    array = _ArrowArray.from_address(_pointer_in(capsule, b"arrow_array"))
    channels = 4 if array.n else 1
    address = (array.children[0].contents if array.n else array).buffers[1]
    return at_address(address, (image.height, image.width, channels), capsule)


def make_image(mode: str = "RGB") -> Callable[..., Any]:
    """A decoder that leaves the pixels in Pillow's own image, for Pillow's own resize."""
    # Validation has checked sizes against our limits, of which an inspector tells Pillow.
    admit_pixels(Limits.max_pixels)

    def decode_image(data: bytes, scale: int = 1, size: tuple[int, int] | None = None) -> Any:
        with _stored(data, scale) as image:
            return _convert(image, mode)

    return decode_image


@contextmanager
def _stored(data: bytes, scale: int) -> Iterator[Any]:
    """Pillow's image of a file of any format, its pixels decoded at 1/`scale`."""
    # What is no image at all, Pillow refuses in its own words.
    with quiet, open_image(data, sniff(data[:HEAD_BYTES]) or "jpeg") as image:
        if scale > 1:
            image.draft("RGB", (image.width // scale, image.height // scale))
        _check_samples(image)
        # `open` only reads the header; the decoding happens here.
        yield load_stored(image)


def _check_samples(image: Any) -> None:
    """Raise `ImageError` for samples of which nothing says what is black and what white."""
    if not image.mode.startswith(("I", "F")):
        return
    tags = getattr(image, "tag_v2", {_BITS: (16,), _PHOTOMETRIC: 1})
    is_16_bit = image.mode.startswith("I;16") and tags.get(_BITS, (1,))[0] == 16
    # As older versions of Pillow have the 16 bits of these formats.
    is_16_bit |= image.mode == "I" and image.format in ("PNG", "JPEG2000")
    if not is_16_bit or tags.get(_PHOTOMETRIC, _WHITE_IS_ZERO) == _WHITE_IS_ZERO:
        kind = "float" if image.mode == "F" else "32-bit, 12-bit, signed or inverted"
        raise ImageError("decode", f"{kind} samples; convert it to 8 or 16 bits a sample")


def _convert(image: Any, mode: str) -> Any:
    """An image of any mode of Pillow's in one of `MODES`, once its samples are checked."""
    if image.mode == "LAB" and mode == "L":
        image = image.convert("RGB")
    if image.mode in ("La", "RGBa"):  # multiplied by alpha
        image = image.convert(image.mode.upper())
    if not image.mode.startswith("I"):
        return image.convert(mode)
    import numpy as np

    # Pillow clips 16-bit samples to 255 on conversion; the high byte is the image.
    return _pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert(mode)


_CODEC = "libjpeg-turbo in pillow"
DECODER = Decoder("pil", "PIL", ("pillow",), _make, scales=True, codec=_CODEC, modes=tuple(MODES))
