"""The size of AV1's frames, which may be larger than what an AVIF file declares for a picture.

Read from the sequence header: AV1 Bitstream & Decoding Process Specification, 5.3.1 (header of a
unit), 4.10.5 (leb128) and 5.5.1 (sequence header). A decoder takes the memory of such a frame
before libavif compares it with the file's own claim.
"""

_SEQUENCE_HEADER = 1
#: Units before a sequence header: temporal delimiters, metadata, padding.
_MOST_UNITS = 16


class NotReadError(ValueError):
    """A sequence header with timing or behind many other units, as no picture has it."""


def frame_size(data: bytes, start: int) -> tuple[int, int] | None:
    """Width and height of the frames of the stream at `start`; None: no sequence header there.

    Raises:
        NotReadError: it has timing information, or is not among the first `_MOST_UNITS` units.
        IndexError: the data ends.
    """
    for _ in range(_MOST_UNITS):
        header = data[start]
        start += 1 + (header >> 2 & 1)
        if header >> 3 & 15 == _SEQUENCE_HEADER:
            # A size of one byte: the header has few.
            return _in_header(_Bits(data, start + (header >> 1 & 1)))
        if not header & 2:
            return None
        size, shift = 0, 0
        while data[start] & 0x80:
            size |= (data[start] & 0x7F) << shift
            start, shift = start + 1, shift + 7
        start += 1 + (size | data[start] << shift)
    raise NotReadError(f"AV1 with {_MOST_UNITS} units before its sequence header")


class _Bits:
    def __init__(self, data: bytes, start: int) -> None:
        self._data, self._at = data, 8 * start

    def read(self, n: int) -> int:
        """The next `n` bits, the first of them the highest."""
        value = 0
        for at in range(self._at, self._at + n):
            value = value << 1 | self._data[at >> 3] >> 7 - (at & 7) & 1
        self._at += n
        return value


def _in_header(bits: _Bits) -> tuple[int, int]:
    _profile, _still = bits.read(3), bits.read(1)
    if bits.read(1):  # a reduced header
        bits.read(5)
    else:
        if bits.read(1):
            raise NotReadError("AV1 with timing information")
        has_delay = bits.read(1)
        for _ in range(bits.read(5) + 1):
            bits.read(12)
            if bits.read(5) > 7:
                bits.read(1)
            if has_delay and bits.read(1):
                bits.read(4)
    width_bits, height_bits = bits.read(4) + 1, bits.read(4) + 1
    return bits.read(width_bits) + 1, bits.read(height_bits) + 1
