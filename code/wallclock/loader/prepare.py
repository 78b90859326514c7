"""From an image's bytes to its row in a batch: the stages of one thread."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, TypeAlias

from wallclock.check import LARGE_PIXELS, Image
from wallclock.errors import image_errors
from wallclock.fetch.sources import Reader
from wallclock.loader.at_once import AtOnce, Ways
from wallclock.loader.loading import ChooseScale, Loading
from wallclock.loader.resizing import OwnShapes, RowWriter, Store
from wallclock.recipe import Limits
from wallclock.stages import decode
from wallclock.stages.pixels import PixelArray

#: Decoded bytes in flight are bounded: of pictures this large, one at a time in a process.
one_large: Lock = Lock()
unlimited: AbstractContextManager[Any] = nullcontext()


@dataclass(frozen=True)
class InPlaceStages:
    """The stages before the device for one thread that fills rows of a batch buffer.

    `as_destination` turns a row into what `resize_into` takes, which normalizes, too. `labels`: the
    decoder, the resizer and the reader that were bound. `at_once`: loads many images, where the
    native module is here and can.
    """

    read: Callable[[Any], bytes]
    decode: Callable[[Image, bytes], PixelArray]
    as_destination: Callable[[Any], Any]
    resize_into: Callable[[Image, PixelArray, Any], None]
    labels: Mapping[str, str] = field(default_factory=dict)
    at_once: AtOnce | None = None

    def fill(self, image: Image, data: bytes, destination: Any) -> None:
        """Decode and resize one image into a destination. Raises ImageError."""
        with one_large if image.pixels > LARGE_PIXELS else unlimited:
            self.resize_into(image, self.decode(image, data), destination)


#: Binds the stages of one thread; all threads share the reader.
BuildInPlace: TypeAlias = Callable[[Loading, Reader], InPlaceStages]


def in_place_stages(
    loading: Loading,
    reader: Reader,
    transform: Store | None = None,
    most_pixels: int = Limits.max_pixels,
) -> InPlaceStages:
    """Bind the stages before the device for one thread; all threads share `reader`.

    `transform`: what writes into a row in the place of the normalization. `most_pixels`: of a
    result, where images keep sizes of their own. Raises UserError: an unknown decoder, resizer or
    interpolation; Unavailable: a library that is not installed, or has no such mode.
    """
    decode_image = DecodeImage(loading, reuse=True)
    rows = RowWriter(loading, transform) if loading.geometry.one_size else None
    writer = rows or OwnShapes(loading, transform, most_pixels)
    stages = InPlaceStages(
        read=image_errors("read", reader.layout, reader.__call__),
        decode=decode_image.__call__,
        as_destination=writer.as_destination,
        resize_into=writer.write,
        labels={"decoder": decode_image.decoder, "layout": reader.layout, **writer.labels},
    )
    if not rows or (decode_image.decoder, rows.labels["resizer"]) != ("native", "native"):
        return stages
    ways = Ways(rows, loading.geometry, decode_image.denominator)
    others = DecodeImage(replace(loading, decoder="simplejpeg"), reuse=True)
    at_once = AtOnce(ways, rows, reader, stages.read, others.__call__)
    return replace(stages, at_once=at_once)


class DecodeImage:
    """Decodes any image: JPEGs by the decoder that was chosen, at the scale that suffices.

    `reuse`: into a buffer of the decoder's own, valid until the next call. `as_array`: an array,
    though Pillow resizes, which would take its own image.
    """

    def __init__(self, loading: Loading, *, reuse: bool = False, as_array: bool = False) -> None:
        scales, mode = loading.margin > 0, loading.mode
        resizer = "" if as_array or loading.crops else loading.resizer  # a crop is cut from one
        self._decode = decode.make(
            loading.decoder, scales=scales, reuse=reuse, resizer=resizer, mode=mode
        )
        self._decode_other = decode.make_other(loading.decoder, reuse=reuse, mode=mode)
        self._choose_scale = ChooseScale(loading) if scales else None
        #: The name of the decoder, read back from its module.
        self.decoder: str = self._decode.__module__.rpartition(".")[2]

    def __call__(self, image: Image, data: bytes) -> PixelArray:
        """Uint8 (h, w, c), or Pillow's image where Pillow resizes. Raises ImageError."""
        if not image.plain_jpeg:
            return self._decode_other(data)
        if self._choose_scale is None:
            return self._decode(data)
        return self._decode(data, self._choose_scale(image), image.current_size)

    def denominator(self, image: Image) -> int:
        """8, 4, 2 or 1: the scale of a plain JPEG; 1 of other images."""
        return self._choose_scale(image) if self._choose_scale and image.plain_jpeg else 1
