"""Progressive JPEGs stop early: scans that no pixel of a reduced image depends on are cut off.

A progressive file sends its coefficients in scans: a band of the zigzag order of one component or
several, first without their lowest `Al` bits, then bit by bit. libjpeg decodes the entropy-coded
data of all of them at every scale. With `recipe.progressive=exact` what follows the last scan that
a pixel depends on is replaced by an end-of-image marker; with `full` every scan is decoded.

Only 1/8 leaves anything to cut. There a component that is not subsampled is its DC coefficients
alone, and its AC scans only have to be there: of one whose coefficients 1 to 9 are all unknown,
libjpeg-turbo estimates the DC anew (block smoothing). At 1/4 and 1/2 its reduced transforms
(jidctred.c) take 25 and 49 coefficients, the last among them.

Nothing is cut where a decoder could see more than the usual file in what is dropped. From the first
scan to the end-of-image marker there are only scans, each with data, and Huffman tables. Every
coefficient is sent once and then refined bit by bit, as ITU-T T.81, G.1.1.1, has it, down to the
last bit. So a scan that repeats a band, which shows another picture, a second frame or image, a
scan out of order, one that is missing, restart markers, stray bytes, and bytes behind the end all
mean a full decode.

What a strict decode refuses and a cut file does not show: damage of the entropy-coded data and of
the Huffman tables that are dropped, where it leaves the markers in place. Of files whose second
half was overwritten by noise all are refused, of those with a single byte changed behind the cut
hardly any: `benchmarks.progressive` counts them. This is why `full` is the default.
"""

import re
from collections.abc import Sequence

from wallclock import jpeg

#: Smoothing costs about what an eighth of a file's data takes to decode.
_LEAST_DROPPED = 1 / 8
_EOI = b"\xff\xd9"
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_DHT, _DQT, _COM = 0xC4, 0xDB, 0xFE
#: Beside the frame and the scans, what may stand before the first scan and between two.
_IN_HEADER = frozenset({_DHT, _DQT, _COM, *range(0xE0, 0xF0)})
_BETWEEN_SCANS = frozenset({_DHT})
#: Of a coefficient of which nothing was sent; else the number of its lowest bits that were not.
_UNSENT = -1


def cut(data: bytes, scale: int) -> bytes:
    """Those bytes of a progressive JPEG that its image at 1/`scale` depends on.

    All of them where too little can be dropped, where the file is not progressive, is damaged, or
    its scans are unusual; it never raises.
    """
    if scale != 8:
        return data
    end = _needed(data)
    return data[:end] + _EOI if end < len(data) * (1 - _LEAST_DROPPED) else data


def _needed(data: bytes) -> int:
    """The number of bytes before the first scan that is not needed; of an unusual file, all."""
    whole, most = len(data), len(data) * (1 - _LEAST_DROPPED)
    script: _Script | None = None
    needed, behind, in_scan = 0, 2, False
    for marker, at, start, end in jpeg.segments(data):
        if at > most and not needed:
            break
        if in_scan and script is not None:
            if at == behind or (needed and _RESTART.search(data, behind, at)):
                break
            if not needed and script.suffices():
                # What stands between two scans, as tables, belongs to the second.
                needed = at
        elif at != behind:
            break
        if marker == jpeg.EOI:
            is_last = at + len(_EOI) == whole
            return needed if is_last and script is not None and script.is_complete() else whole
        if marker == jpeg.SOF_PROGRESSIVE and script is None:
            script = _script_of(data[start + 2 : end])
        elif marker == jpeg.SOS:
            if script is None or not script.add(data[start + 2 : end]):
                break
        elif marker not in (_BETWEEN_SCANS if script and script.begun else _IN_HEADER):
            break
        in_scan, behind = marker == jpeg.SOS, end
    return whole


def _script_of(frame: bytes) -> "_Script | None":
    """A script without scans. None for a frame header, its length excluded, that is unusual."""
    ids, factors = frame[6::3], frame[7::3]
    if not ids or len(frame) != 6 + 3 * len(ids) or (frame[0], frame[5]) != (8, len(ids)):
        return None
    sides = [(factor >> 4, factor & 15) for factor in factors]
    if not all(1 <= n <= 4 for side in sides for n in side):
        return None
    widest, highest = map(max, zip(*sides, strict=True))
    # As jdmaster.c: what is subsampled in both directions is enlarged by its transform.
    dc_alone = [bool(widest % (2 * wide) or highest % (2 * high)) for wide, high in sides]
    return _Script(ids, dc_alone)


class _Script:
    """The scans of a file up to some position.

    Args:
        ids: of the components, a byte each, in the frame's order.
        dc_alone: which components are their DC coefficients alone.
    """

    def __init__(self, ids: bytes, dc_alone: Sequence[bool]) -> None:
        self._ids, self._dc_alone = ids, dc_alone
        self._unsent_bits = [[_UNSENT] * 64 for _ in ids]
        self.begun = False

    def add(self, header: bytes) -> bool:
        """Take a scan header, the length excluded; whether the standard has it at this place."""
        n = header[0] if header else 0
        if not n or len(header) != 4 + 2 * n:
            return False
        components = [self._ids.find(identity) for identity in header[1 : 1 + 2 * n : 2]]
        first, last, bits = header[-3:]
        high, low = bits >> 4, bits & 15
        if components != sorted(set(components)) or components[0] < 0:
            return False
        # T.81, G.1.1.1: AC of one component alone; bit by bit.
        if (first and n > 1) or last < first or (high and high != low + 1):
            return False
        band, size = slice(first, last + 1), last + 1 - first
        for component in components:
            unsent = self._unsent_bits[component]
            if unsent[band] != [high or _UNSENT] * size or (first and unsent[0] == _UNSENT):
                return False
            unsent[band] = [low] * size
        self.begun = True
        return True

    def suffices(self) -> bool:
        """Whether no pixel at 1/8 depends on a later scan."""
        return all(
            unsent[0] == 0 and _UNSENT not in unsent[1:10] if alone else not any(unsent)
            for alone, unsent in zip(self._dc_alone, self._unsent_bits, strict=True)
        )

    def is_complete(self) -> bool:
        """Whether every bit of every coefficient was sent."""
        return not any(any(unsent) for unsent in self._unsent_bits)
