"""Loads many images at once by the native module: two calls for all of them, without the GIL.

Files are read and their headers parsed; then Python, which has limits, geometry and what is drawn,
says of each what is to be made of it; then they are decoded and resized. Any image that is not the
usual one is left to the stages of `prepare`: other formats, a JPEG that the module hands over, one
to be turned, over a limit, or that cannot be read. They fail as they always have.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from time import perf_counter_ns
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from wallclock import native
from wallclock.check import LARGE_PIXELS, Image, ImageInfo
from wallclock.errors import ImageError
from wallclock.fetch.reader import Reader
from wallclock.loader.ring import Chunk
from wallclock.orientation import UPRIGHT
from wallclock.preprocess import Preprocess, Size
from wallclock.stages.augment import Augmentation, in_pixels
from wallclock.stages.decode.native import hand_over
from wallclock.stages.pixels import PixelArray

#: Bytes of a file at most, and of those that are read at once, about: they wait in memory.
_MOST_BYTES, _BYTES_AT_ONCE = 1 << 24, 1 << 20
_MOST_AT_ONCE, _MOST_PLANS = 64, 4096

#: An image's row, or what is part of one.
Arrays: TypeAlias = npt.NDArray[Any]
#: Start of each stage and the end, in nanoseconds, of an image that was loaded.
Times: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True)
class Left:
    """An image that is left to the other stages: its bytes, if they were read, in so many ns.

    `handed_over`: the native module does not decode it. `inspected`: it was, before that.
    """

    data: bytes | None = None
    read_ns: int = 0
    handed_over: bool = False
    inspected: bool = False


#: What became of an image; None: it need not be decoded.
Result: TypeAlias = Times | Left | ImageError | None


class Plans:
    """What the native module makes of an image, by its size and by what was drawn for it.

    Args:
        size: height and width of a row.
        preprocess: the geometry; None: the image is squashed.
        choose_scale: denominator of the scale that suffices.
    """

    def __init__(
        self,
        size: Size,
        preprocess: Preprocess | None,
        interpolation: str,
        choose_scale: Callable[[Image], int],
    ) -> None:
        self._size, self._preprocess, self._choose_scale = size, preprocess, choose_scale
        self._rotates = preprocess is not None and preprocess.rotate
        self._bicubic = interpolation == "bicubic"
        self._new = native.find().Plan
        self._of_size: dict[Size, Any] = {}

    def __call__(self, image: Image, drawn: Augmentation | None, *, mirrors: bool) -> Any:
        """A `_native.Plan`; None: it is not for the native module.

        `mirrors`: whether the plan turns left and right, if that was drawn.
        """
        if image.pixels > LARGE_PIXELS or (self._rotates and image.orientation != UPRIGHT):
            return None
        mirror = drawn is not None and mirrors and drawn.flip
        if mirror or (drawn is not None and not drawn.is_whole):
            return self._make(image, drawn, mirror)
        size = image.height, image.width
        try:
            return self._of_size[size]
        except KeyError:
            if len(self._of_size) >= _MOST_PLANS:
                self._of_size.clear()
            plan = self._of_size[size] = self._make(image, None, False)
            return plan

    def _make(self, image: Image, drawn: Augmentation | None, mirror: bool) -> Any:
        full, n = (image.height, image.width), self._choose_scale(image)
        extent, options = (full[0] / n, full[1] / n), dict[str, Any]()
        resized = self._size
        if drawn is not None and not drawn.is_whole:
            left, top, width, height = in_pixels(drawn, -(-full[1] // n), -(-full[0] // n))
            # A crop has no size in the file that would bound it.
            options["crop"], extent = (top, left, height, width), (height, width)
        if self._preprocess is not None:
            placement = self._preprocess.place(*full)
            if placement.window != self._size:
                return None  # black around it
            resized, options["window"] = placement.resized, (*placement.start, *placement.window)
        options |= {"denominator": n, "mirror": mirror, "bicubic": self._bicubic}
        try:
            return self._new(full, resized, extent=extent, **options)
        except ValueError:  # a side of more pixels than it has numbers for
            return None


class Rows(Protocol):
    """What becomes of an image once it is resized."""

    #: Of the resized pixels, uint8 (h, w, c).
    shape: tuple[int, int, int]

    def drawn(self, image: Image) -> Augmentation | None:
        """What was drawn for an image, where workers apply it."""

    def finishes(self, drawn: Augmentation | None) -> bool:
        """Whether there is more to do than a plan and a normalization do."""

    def finish(self, image: Image, pixels: PixelArray, row: Arrays) -> None:
        """Write resized pixels into their row. Raises ImageError."""

    def normalization(self, dtype: np.dtype[Any]) -> Any:
        """A `_native.Normalization` to rows of this type; None: they are pixels."""


class Inspects(Protocol):
    """What knows images by their headers: see `Feed`."""

    inspects: bool

    def inspect_header(
        self, position: int, item: Any, found: tuple[int, ...], read: Callable[[], bytes]
    ) -> tuple[ImageInfo, bool] | None:
        """See `Inspector.of_header`."""


class _Part:
    """Images of a chunk that are loaded together, from the one at offset `start` on."""

    opened: Any
    read_ns: Sequence[int]

    def __init__(self, chunk: Chunk, start: int, n: int, rows: Sequence[Arrays]) -> None:
        self.chunk, self.start, self.rows = chunk, start, rows
        self.items = chunk.items[start : start + n]
        self.results: list[Result] = [Left()] * len(self.items)
        #: Of each image: how it is loaded, and into which row: the batch's, or one of `scratch`.
        self.plans: list[Any] = [None] * len(self.items)
        self.direct: list[Arrays | None] = [None] * len(self.items)
        self.scratch: list[PixelArray | None] = [None] * len(self.items)

    def row(self, at: int) -> Arrays:
        """Of the batch."""
        return self.rows[self.chunk.first + self.start + at]


class AtOnce:
    """What one thread loads many images with.

    Args:
        read: an image's bytes, where the reader names no place of it. Raises ImageError.
        decode: decodes what the module hands over.
    """

    def __init__(
        self,
        plans: Plans,
        rows: Rows,
        reader: Reader,
        read: Callable[[Any], bytes],
        decode: Callable[[Image, bytes], PixelArray],
    ) -> None:
        self._plans, self._rows = plans, rows
        self._reader, self._read, self._decode = reader, read, decode
        self._open = native.find().open
        self._most_bytes = min(_MOST_BYTES, reader.max_bytes)
        #: How many images are read before the first is decoded, by the length of those before.
        self._n = 1
        self._scratch: list[PixelArray] = []

    def decode_handed_over(self, image: Image, data: bytes) -> PixelArray:
        """As `InPlaceStages.decode`, without another try of the native module."""
        if image.plain_jpeg:
            hand_over()
        return self._decode(image, data)

    def load(
        self, feed: Inspects, chunk: Chunk, start: int, rows: Sequence[Arrays]
    ) -> list[Result]:
        """Load some images of a chunk, from the one at offset `start` on; at least one.

        `rows`: of the chunk's buffer. Returns what became of each; `chunk.items` then has what each
        of them is that was inspected.
        """
        began = perf_counter_ns()
        part = _Part(chunk, start, self._n, rows)
        try:
            part.opened = self._open(self._places(part), self._most_bytes)
        except ValueError:  # a path with a zero byte
            return part.results
        headers = part.opened.headers
        ends = [began, *(header[2] for header in headers)]
        part.read_ns = [end - start for start, end in pairwise(ends)]
        n_bytes = sum(header[1] for header in headers)
        self._n = max(1, min(_MOST_AT_ONCE, len(headers) * _BYTES_AT_ONCE // (n_bytes + 1)))
        for at, header in enumerate(headers):
            if not isinstance(part.results[at], ImageError):
                self._judge(feed, part, at, header)
        # Marks are as if the images had been loaded one after another.
        inspect_ns, now = (perf_counter_ns() - ends[-1]) // len(headers), began
        for at, filled in enumerate(self._fill(part)):
            if filled is not None:
                was_read = now + part.read_ns[at] + inspect_ns
                now = self._finish(feed, part, at, (now, was_read), filled)
        return part.results

    def _places(self, part: _Part) -> list[str | bytes]:
        """Where each image is; of one that cannot be read, nothing."""
        places: list[str | bytes] = []
        for at, item in enumerate(part.items):
            place = self._reader.place(item)
            if place is None:
                try:
                    place = self._read(item)
                except ImageError as error:
                    place, part.results[at] = b"", error
            places.append(place)
        return places

    def _judge(self, feed: Inspects, part: _Part, at: int, header: tuple[int, ...]) -> None:
        """Say how an image is loaded; or what becomes of it instead."""
        status, n_bytes, _, width, height, *_ = header
        chunk, offset, image = part.chunk, part.start + at, part.items[at]
        if status < 0:
            return  # it cannot be read, which is said in other words
        read, read_ns = partial(part.opened.bytes, at), part.read_ns[at]
        if status:
            part.results[at] = Left(read(), read_ns, handed_over=True)
            return
        if feed.inspects:
            found = feed.inspect_header(chunk.positions[offset], image, header, read)
            if found is None:
                part.results[at] = Left(read(), read_ns)
                return
            image, is_wanted = found
            if not is_wanted:
                chunk.items[offset], part.results[at] = image, None
                return
        elif (image.bytes, image.width, image.height) != (n_bytes, width, height):
            return  # it changed since it was listed
        drawn = self._rows.drawn(image)
        finishes = self._rows.finishes(drawn)
        plan = self._plans(image, drawn, mirrors=not finishes)
        if plan is None:
            part.results[at] = Left(read(), read_ns)
            return
        chunk.items[offset], part.plans[at] = image, plan
        if finishes:
            part.scratch[at] = self._scratch_row(at)
        else:
            part.direct[at] = part.row(at)

    def _scratch_row(self, at: int) -> PixelArray:
        while len(self._scratch) <= at:
            self._scratch.append(np.empty(self._rows.shape, np.uint8))
        return self._scratch[at]

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
        self, feed: Inspects, part: _Part, at: int, began: tuple[int, int], filled: tuple[int, ...]
    ) -> int:
        """Note what became of an image, and do what is left; returns when it ended."""
        status, decoding, resizing, done = filled
        pixels = part.scratch[at]
        if status:
            data, read_ns = part.opened.bytes(at), part.read_ns[at]
            part.results[at] = Left(data, read_ns, handed_over=True, inspected=feed.inspects)
            return began[0]
        if pixels is not None:
            finishing = perf_counter_ns()
            try:
                self._rows.finish(part.chunk.items[part.start + at], pixels, part.row(at))
            except ImageError as error:
                part.results[at] = error
                return began[0]
            done += perf_counter_ns() - finishing
        decoded = began[1] + resizing - decoding
        end = decoded + done - resizing
        part.results[at] = *began, decoded, end
        return end
