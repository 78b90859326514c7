"""What the native module has. Sizes are (rows, columns) and windows (top, left, rows, columns), in
pixels. A status is 0, for done; more, for an image that is left to another decoder, which
`STATUSES` gives the reason of; less, for a file that cannot be read: -errno.
"""

from typing import Any, TypeAlias

import numpy.typing as npt
from typing_extensions import Buffer

#: status, bytes of the file, nanoseconds that reading and parsing took; and, 0 unless the status
#: is: width, height, SOF marker (0xC0 …; 0: a PNG), components, sampling of luma as in the frame
#: header, orientation (0: EXIF may say it), segments, scans, and components of all scans together.
Header: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
#: status, and the nanoseconds of decoding and of resizing.
Filled: TypeAlias = tuple[int, int, int]

#: Why an image is left to another decoder, by its status.
STATUSES: tuple[str, ...]

class Plan:
    """How an image of one size becomes a row. Made once for a size, and used for many images.

    Args:
        size: of the image in its file.
        resized: of the result, of which `window` is made; None: all of it.
        denominator: the image is decoded to 1/1, 1/2, 1/4 or 1/8 of its size, rounded up.
        crop: is cut out of that first; None: nothing.
        extent: how many rows and columns of that are resized: 1873 px at 1/4 are 468.25, where 469
            were decoded; None: all.
        mirror: left becomes right.
        bicubic: else bilinear; both antialias.

    Raises ValueError: there is no such part of the image.
    """

    def __new__(
        cls,
        size: tuple[int, int],
        resized: tuple[int, int],
        *,
        denominator: int = 1,
        crop: tuple[int, int, int, int] | None = None,
        extent: tuple[float, float] | None = None,
        window: tuple[int, int, int, int] | None = None,
        mirror: bool = False,
        bicubic: bool = False,
    ) -> Plan: ...

class Normalization:
    """What pixels become in a normalized row: one of 256 levels of each channel.

    Args:
        levels: (3, 256) of float32, or of a type of 2 bytes.
        mean, deviation: where `(pixel / 255 - mean) / deviation` in float32 is what the levels are,
            it is computed, which is faster than to look it up.
    """

    def __new__(
        cls,
        levels: npt.NDArray[Any],
        mean: tuple[float, float, float],
        deviation: tuple[float, float, float],
        /,
    ) -> Normalization: ...

class Chunk:
    """Some files, read."""

    #: One for each file.
    headers: list[Header]

    def bytes(self, index: int, /) -> bytes:
        """The bytes of a file. Raises IndexError; OSError: it could not be read."""

    def fill(
        self,
        plans: list[Plan | None],
        rows: list[npt.NDArray[Any] | None],
        normalization: Normalization | None = None,
        /,
    ) -> list[Filled | None]:
        """Decode and resize files, with the GIL released; returns what became of each.

        Args:
            plans: one for each file; None: it is left out. A file with another status than 0 has
                none.
            rows: one for each file: uint8 (h, w, 3) of its plan's window, or (h, w, 1), which gets
                luma; with a normalization (3, h, w) of its type. Rows of pixels may be apart. Of a
                file whose status is not 0, what is in the row afterwards is undefined.

        Raises ValueError: a plan or a row does not fit; nothing was written.
        """

def open(items: list[str | Buffer], max_bytes: int, /) -> Chunk:
    """Read files by their paths, or take their bytes, and parse headers, with the GIL released.

    What is no regular file has the status -EINVAL, a larger one -EFBIG.
    """

def resize(
    pixels: npt.NDArray[Any],
    plan: Plan,
    row: npt.NDArray[Any],
    normalization: Normalization | None = None,
    /,
) -> int:
    """Resize what any decoder made, uint8 (h, w, c); returns a status.

    c is 3, or 4, of which the last one is left out; or 1, into a row of 1 or of 3. Three channels
    may lie in pixels of 4 bytes, or be a grey one (a stride of 0). The row is as for `Chunk.fill`.
    Raises ValueError: something does not fit.
    """

def choose_kernels() -> str:
    """Choose the inner loops, as is done at import: "avx2" or "generic".

    WALLCLOCK_KERNELS=generic forces the latter. No other thread may be in this module.
    """
