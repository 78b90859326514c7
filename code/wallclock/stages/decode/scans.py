"""Progressive JPEGs stop early: scans that a reduced image does not need are cut off.

A progressive file sends its coefficients in scans: a band of the zigzag order of one component or
several, first without their lowest `Al` bits, then bit by bit. libjpeg decodes the entropy-coded
data of all of them at every scale. The scan headers say which scans a scale needs, and what follows
the last one of those is replaced by an end-of-image marker. `recipe.progressive` is one of:

- `exact`: only what no pixel depends on. At 1/8 a component that is not subsampled is its DC
  coefficients alone, so that its AC scans only have to be there: of one whose coefficients 1 to 9
  are all unknown, libjpeg-turbo estimates the DC anew (block smoothing). At 1/4 and 1/2 its
  reduced transforms (jidctred.c) take 25 and 49 coefficients, the last among them: nothing is cut.
- `early`: at 1/8 and 1/4 coefficients of low frequency without their last bit, those of the first
  component, which is luma, without two; at 1/2 without the last bit of the first component's AC.
  In full nothing is cut. Block smoothing estimates what is missing, which costs time: scans that
  bring colour last, as mozjpeg's, leave nothing worth dropping. The pixels are others, judged by
  `benchmarks.progressive`.

A file must be whole and sound before it is cut: damage in the scans that are dropped is not seen.
"""

from wallclock import jpeg

#: Side of a component's blocks after the reduced transform → the last coefficient, in zigzag order,
#: of those as low in both directions; the AC of a block that becomes one pixel feed the smoothing.
_LAST_LOW = {1: 4, 2: 4, 4: 24, 8: 63}
#: Smoothing costs about what an eighth of a file's data takes to decode.
_LEAST_DROPPED = 1 / 8
_EOI = b"\xff\xd9"

#: Of one component: (bits of the coefficients, how many of their lowest bits may be unknown).
_Wanted = tuple[tuple[int, int], ...]
_EVERYTHING: _Wanted = (((1 << 64) - 1, 0),)


def cut(data: bytes, scale: int, mode: str) -> bytes:
    """Those bytes of a progressive JPEG that its image at 1/`scale` needs.

    All of them where too little can be dropped, where the file is not progressive and where its
    scans are not understood; it never raises. `mode`: exact or early.
    """
    end = _needed(data, scale, mode)
    return data[:end] + _EOI if end < len(data) * (1 - _LEAST_DROPPED) else data


def _needed(data: bytes, scale: int, mode: str) -> int:
    """The number of bytes before the first scan that is not needed, or more than may stay."""
    ids, missing = b"", []
    done = False
    most = len(data) * (1 - _LEAST_DROPPED)
    for marker, at, start, end in jpeg.segments(data):
        if done or at > most:
            # What stands between two scans, as tables, belongs to the second.
            return at
        if marker == jpeg.SOF_PROGRESSIVE and not ids:
            ids, factors = data[start + 8 : end : 3], data[start + 9 : end : 3]
            missing = _wanted(mode, scale, factors)
        elif marker == jpeg.SOS:
            components = [ids.find(c) for c in data[start + 3 : end - 3 : 2]]
            if not missing or -1 in components or end > len(data) or end - start < 8:
                break
            first, last, bits = data[end - 3 : end]
            band = (2 << last) - (1 << first)
            for component in components:
                missing[component] = tuple(
                    (wanted & ~band if bits & 15 <= unknown else wanted, unknown)
                    for wanted, unknown in missing[component]
                )
            done = not any(wanted for component in missing for wanted, _ in component)
    return len(data)


def _wanted(mode: str, denominator: int, factors: bytes) -> list[_Wanted]:
    """What each component needs; `factors`: their sampling factors, as a frame header has them.

    An empty list: nothing is to be dropped, or these factors are no decoder's.
    """
    sides = [(factor >> 4, factor & 15) for factor in factors]
    if denominator == 1 or not sides or not all(map(all, sides)):
        return []
    widest, highest = map(max, zip(*sides, strict=True))
    wanted: list[_Wanted] = []
    for number, (wide, high) in enumerate(sides):
        side = scaled = 8 // denominator
        # As jdmaster.c: what is subsampled is enlarged by its transform, as far as that goes.
        while side < 8 and not (
            widest * scaled % (wide * side * 2) or highest * scaled % (high * side * 2)
        ):
            side *= 2
        if mode == "exact":
            wanted.append(((1, 0), (0x3FE, 13)) if side == 1 else _EVERYTHING)
        else:
            coarse = int(denominator >= 4)
            band = (2 << _LAST_LOW[side]) - 2
            wanted.append(((1, coarse), (band, coarse + (number == 0))))
    return [] if all(needs == _EVERYTHING for needs in wanted) else wanted
