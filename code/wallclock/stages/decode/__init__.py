"""Stage `decode`: JPEG bytes to an RGB array, by libraries that agree on the pixels.

One policy for all of them:
- RGB of 8 bits; grayscale becomes RGB. Two more modes on request: `L`, of a JPEG its luma, from
  which Pillow's `convert("L")` differs where RGB is clipped; `RGBA`, opaque for a JPEG.
- EXIF orientation is ignored: pixels come as they are stored.
- The accurate integer DCT and smooth ("fancy") chroma upsampling, libjpeg-turbo's defaults.
- Damage is an error, libjpeg-turbo's warnings included, unless no pixel depends on those bytes.
- Anything but a 1- or 3-component JPEG is decoded by Pillow in every recipe, and its pixels are
  read where Pillow has them; still WebP images by OpenCV where it is installed. The records count
  such images. `native` decodes PNGs of 8 bits itself, to Pillow's pixels.

Other pixels become what Pillow's `convert("RGB")` makes of them, as in transformers' `load_image`:
- Alpha is dropped, and not blended with a background. Palettes become their colours, the
  transparent one too. No embedded profile is applied.
- Of 16 bits a sample the high byte counts. (Pillow's `convert` would make most 16-bit grey white.)
- Of an animation the first frame counts, of a TIFF the first page.
- Refused: a TIFF of floats, of 32-bit, 12-bit or signed integers, or of 16 bits with white as zero,
  whose range no tag states; a camera's raw file, whose first page is a thumbnail.
- Pillow turns a TIFF upright as its EXIF says; here it is turned back. HEIC comes turned as its own
  boxes say, and has no other orientation.

A caller may ask for 1/2, 1/4 or 1/8 of the size; for other scales libjpeg-turbo has no vector code.
Importing this package imports no image library.
"""

from functools import partial, update_wrapper
from typing import Any

from wallclock.errors import Unavailable, check_name, image_errors
from wallclock.jpeg import read_bare
from wallclock.stages.decode import native, pil, simplejpeg, webp
from wallclock.stages.decode.decoder import MODES as MODES
from wallclock.stages.decode.decoder import Decode as Decode
from wallclock.stages.decode.decoder import Decoder as Decoder
from wallclock.stages.decode.picture import Picture as Picture
from wallclock.stages.pixels import PixelArray as PixelArray

#: Name → decoder: the product's own; the benchmark suite adds others.
DECODERS: dict[str, Decoder] = {
    decoder.name: decoder for decoder in (pil.DECODER, simplejpeg.DECODER, native.DECODER)
}


def make(
    name: str, *, scales: bool = False, reuse: bool = False, resizer: str = "", mode: str = "RGB"
) -> Decode:
    """Return the decoder called `name`, of 1- or 3-component JPEGs, to one of `MODES`.

    Args:
        scales: whether it will be asked for less than the full size.
        reuse: decode into a buffer of the decoder's own where the library can; pixels are then
            valid until the next call, and the decoder belongs to one thread.
        resizer: what takes the pixels next; Pillow's resize takes Pillow's image.

    Raises UserError: an unknown name; Unavailable: the library is not installed, or cannot.
    """
    decoder = DECODERS[check_name(name, DECODERS, "decoder")]
    if scales and not decoder.scales:
        able = ", ".join(name for name in DECODERS if DECODERS[name].scales)
        raise Unavailable(f"decoder={name} decodes to full size only; dct_scale=auto is for {able}")
    if mode not in decoder.modes:
        able = ", ".join(name for name in DECODERS if mode in DECODERS[name].modes)
        raise Unavailable(f"decoder={name} decodes to RGB only; {mode} is for {able}")
    if name == resizer == "pil":
        return image_errors("decode", decoder.label, pil.make_image(mode))
    try:
        decode = decoder.make(reuse) if mode == "RGB" else decoder.make(reuse, mode)
    except ImportError as error:
        raise Unavailable(f"decoder={name}: {error}") from error
    if decoder.strict:
        decode = update_wrapper(partial(read_bare, decode), decode)
    return image_errors("decode", decoder.label, decode)


def make_other(name: str, *, reuse: bool = False, mode: str = "RGB") -> Decode:
    """What decodes any other image where `name` decodes JPEGs; pixels are as of `PixelArray`."""
    decode = image_errors("decode", pil.DECODER.label, partial(_of_any_kind, mode=mode))
    if name != "native":
        return decode
    return native.with_fallback(decode, reuse, mode, is_png=True)


def _of_any_kind(
    data: Any, scale: int = 1, size: tuple[int, int] | None = None, *, mode: str
) -> PixelArray:
    if isinstance(data, Picture):
        return data.pixels(mode)
    pixels = webp.decode(data) if mode == "RGB" and data[8:12] == b"WEBP" else None
    return pil.decode_in_place(data, mode) if pixels is None else pixels
