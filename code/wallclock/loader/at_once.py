"""Loads many images at once by the native module: two calls for all of them, without the GIL.

Files are read and their headers parsed; Python says what is to be made of each; then they are
decoded and resized. What the module does not take is left to the stages of `prepare`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, TypeAlias

import numpy as np

from wallclock import native
from wallclock.check import LARGE_PIXELS, Image, Inspector
from wallclock.errors import ImageError
from wallclock.fetch.sources import Reader
from wallclock.loader.resizing import Arrays, RowWriter
from wallclock.loader.ring import Chunk
from wallclock.orientation import UPRIGHT, oriented_size, stored_placement
from wallclock.preprocess import Preprocess
from wallclock.stages.augment import Augmentation, in_pixels
from wallclock.stages.decode.native import PNG, count_fallback
from wallclock.stages.pixels import PixelArray

#: Bytes of a file at most, and of those that are read at once, about: they wait in memory.
_MOST_BYTES, _BYTES_AT_ONCE = 1 << 24, 1 << 20
_MOST_AT_ONCE, _MOST_WAYS = 64, 1024

#: Start of each stage and the end, in nanoseconds, of an image that was loaded.
Times: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True)
class Left:
    """An image that is left to the other stages: its bytes, if they were read, in so many ns.

    `fallback`: the native module does not decode it. `inspected`: it was, before that.
    """

    data: bytes | None = None
    read_ns: int = 0
    fallback: bool = False
    inspected: bool = False


#: What became of an image.
Result: TypeAlias = Times | Left | ImageError
_UNREAD = Left()


#: How an image is loaded: a `_native.Plan`, and the shape of what it makes; None: the row itself.
Way: TypeAlias = tuple[Any, tuple[int, int, int] | None]


class Ways:
    """How the native module loads images: by their sizes, or by what was drawn for each."""

    def __init__(
        self, rows: RowWriter, preprocess: Preprocess, choose_scale: Callable[[Image], int]
    ) -> None:
        self._rows, self._preprocess, self._choose_scale = rows, preprocess, choose_scale
        self._new = native.find().Plan
        self._of_kind: dict[tuple[int, int, int, bool], Way | None] = {}

    def __call__(self, image: Image) -> Way | None:
        """None: it is not for the native module."""
        if self._rows.crops and (drawn := image.augmentation) is not None:
            return self._make(image, drawn)
        kind = image.height, image.width, image.orientation, image.plain_jpeg
        try:
            return self._of_kind[kind]
        except KeyError:
            if len(self._of_kind) >= _MOST_WAYS:
                self._of_kind.clear()
            way = self._of_kind[kind] = self._make(image, None)
            return way

    def _make(self, image: Image, drawn: Augmentation | None) -> Way | None:
        if image.pixels > LARGE_PIXELS:
            return None
        full, n = (image.height, image.width), self._choose_scale(image)
        extent, window = (full[0] / n, full[1] / n), self._rows.shape[:2]
        is_bicubic = self._preprocess.interpolation == "bicubic"
        options: dict[str, Any] = {"denominator": n, "bicubic": is_bicubic}
        resized, is_row = window, not self._rows.stores
        if drawn is not None:
            if not drawn.is_whole:
                left, top, width, height = in_pixels(drawn, -(-full[1] // n), -(-full[0] // n))
                # A crop has no size in the file that would bound it.
                options["crop"], extent = (top, left, height, width), (height, width)
            is_row = is_row and not drawn.jitters
            options["mirror"] = drawn.flip and is_row
        else:
            turn = image.orientation if self._preprocess.rotate else UPRIGHT
            upright = self._preprocess.place(*oriented_size(*full, turn))
            is_row = is_row and turn == UPRIGHT and upright.window == window
            resized, start, window, _ = stored_placement(upright, turn)
            options["window"] = (*start, *window)
        try:
            plan = self._new(full, resized, extent=extent, **options)
        except ValueError:  # a side of more pixels than it has numbers for
            return None
        return plan, None if is_row else (*window, self._rows.shape[2])


class _Part:
    """Images of a chunk that are loaded together, from the one at offset `start` on."""

    opened: Any
    headers: Sequence[tuple[int, ...]]

    def __init__(self, chunk: Chunk, start: int, n: int, rows: Sequence[Arrays]) -> None:
        self.chunk, self.start = chunk, start
        self.items = chunk.items[start : start + n]
        first = chunk.first + start
        self.rows = rows[first : first + len(self.items)]
        self.results: list[Result] = [_UNREAD] * len(self.items)
        #: Of each image: how it is loaded, and into which row: the batch's, or one of `scratch`.
        self.plans: list[Any] = [None] * len(self.items)
        self.direct: list[Arrays | None] = [None] * len(self.items)
        self.scratch: list[PixelArray | None] = [None] * len(self.items)

    def leave(self, at: int, *, fallback: bool = False, inspected: bool = True) -> None:
        """Leave an image that was read to the other stages."""
        data, read_ns = self.opened.bytes(at), self.headers[at][2]
        self.results[at] = Left(data, read_ns, fallback, inspected)


class AtOnce:
    """What one thread loads many images with.

    `read`: of what the reader names no place of. `decode`: of what the module does not take.
    """

    def __init__(
        self,
        ways: Ways,
        rows: RowWriter,
        reader: Reader,
        read: Callable[[Any], bytes],
        decode: Callable[[Image, bytes], PixelArray],
    ) -> None:
        self._ways, self._rows = ways, rows
        self._reader, self._read, self._decode = reader, read, decode
        self._open = native.find().open
        self._most_bytes = min(_MOST_BYTES, reader.max_bytes)
        #: How many images are read before the first is decoded, by the length of those before.
        self._n = 1
        self._scratch: dict[int, PixelArray] = {}

    def decode_fallback(self, image: Image, data: bytes) -> PixelArray:
        """As `InPlaceStages.decode`, without another try of the native module."""
        if image.plain_jpeg or data.startswith(PNG):
            count_fallback()
        return self._decode(image, data)

    def load(
        self, inspector: Inspector | None, chunk: Chunk, start: int, rows: Sequence[Arrays]
    ) -> list[Result]:
        """Load some images of a chunk, from the one at offset `start` on; at least one.

        `rows`: of the chunk's buffer. `chunk.items` then has what each that was inspected is.
        """
        began = perf_counter_ns()
        part = _Part(chunk, start, self._n, rows)
        places = self._places(part)
        if not any(places):  # pixels in memory: there is nothing to open
            self._n = _MOST_AT_ONCE
            return part.results
        try:
            part.opened = self._open(places, self._most_bytes)
        except ValueError:  # a path with a zero byte
            return part.results
        part.headers = headers = part.opened.headers
        n, was_read = len(headers), perf_counter_ns()
        n_bytes = sum([header[1] for header in headers])
        self._n = max(1, min(_MOST_AT_ONCE, n * _BYTES_AT_ONCE // (n_bytes + 1)))
        for at, header in enumerate(headers):
            self._judge(inspector, part, at, header)
        inspect_ns = (perf_counter_ns() - was_read) // n
        self._finish(part, began, inspect_ns, self._fill(part), inspector is not None)
        return part.results

    def _places(self, part: _Part) -> list[str | bytes]:
        """Where each image is; of one that cannot be read, nothing."""
        place_of, places = self._reader.place, list[str | bytes]()
        for at, item in enumerate(part.items):
            place = place_of(item)
            if place is None:
                try:
                    place = self._read(item)
                except ImageError as error:
                    place, part.results[at] = b"", error
                if not isinstance(place, bytes):  # pixels
                    place, part.results[at] = b"", Left(place)
            places.append(place)
        return places

    def _judge(
        self, inspector: Inspector | None, part: _Part, at: int, header: tuple[int, ...]
    ) -> None:
        """Say how an image is loaded; or what becomes of it instead."""
        image, offset = part.items[at], part.start + at
        if status := header[0]:
            # What cannot be read is said in other words.
            if status > 0 and part.results[at] is _UNREAD:
                part.leave(at, fallback=True, inspected=False)
            return
        if inspector is not None:
            position = part.chunk.positions[offset]
            found = inspector.of_header(position, image.id, header, part.opened.bytes, at)
            if found is None:
                part.leave(at, inspected=False)
                return
            image = part.chunk.items[offset] = found
        elif (image.bytes, image.width, image.height) != (header[1], *header[3:5]):
            return  # it changed since it was listed
        way = self._ways(image)
        if way is None:
            part.leave(at)
            return
        part.plans[at], shape = way
        if shape is None:
            part.direct[at] = part.rows[at]
            return
        pixels = self._scratch.get(at)
        if pixels is None or pixels.shape != shape:
            pixels = self._scratch[at] = np.empty(shape, np.uint8)
        part.scratch[at] = pixels

    def _fill(self, part: _Part) -> list[Any]:
        """A `_native.Filled` of each image that has a plan."""
        fill, plans = part.opened.fill, part.plans
        filled: list[Any] = [None] * len(plans)
        if any(row is not None for row in part.direct):
            filled = fill(plans, part.direct, self._rows.normalization(part.rows[0].dtype))
        if any(row is not None for row in part.scratch):
            in_scratch = fill(plans, part.scratch)
            filled = [times or others for times, others in zip(in_scratch, filled, strict=True)]
        return filled

    def _finish(
        self, part: _Part, began: int, inspect_ns: int, filled: Sequence[Any], inspected: bool
    ) -> None:
        """Do what is left, and note times as if images had been loaded one after another."""
        for at, done in enumerate(filled):
            if done is None:
                continue
            status, decode_ns, resize_ns = done
            if status:
                # Of a PNG, Pillow may refuse the header as well.
                inspected &= part.chunk.items[part.start + at].plain_jpeg
                part.leave(at, fallback=True, inspected=inspected)
                continue
            pixels = part.scratch[at]
            if pixels is not None:
                finishing = perf_counter_ns()
                try:
                    image = part.chunk.items[part.start + at]
                    self._rows.finish(image, pixels, part.rows[at])
                except ImageError as error:
                    part.results[at] = error
                    continue
                resize_ns += perf_counter_ns() - finishing
            was_read = began + part.headers[at][2] + inspect_ns
            decoded = was_read + decode_ns
            end = decoded + resize_ns
            part.results[at] = began, was_read, decoded, end
            began = end
