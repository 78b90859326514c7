"""What `recipe.progressive=exact` brings, and which damage it does not see: two tables under data/.

`progressive.csv`, by scan script: every progressive JPEG is decoded at the scale of `recipe=fast`,
all of it, and cut off as `exact` does. A row is a scan script at one scale: how many files, of how
many something was cut, the share of their bytes that is kept, CPU milliseconds of a decode (the
cut included; alternately, the median round of each file, then the median file), the median file's
speedup and that of all files together, and how many images have other pixels than the whole file's.

A script is written as its scans: components, band of coefficients, bits left out (`Y1-63/1`). Those
of fewer than `--least` files at a scale are counted together.

`progressive-damage.csv`, by kind of damage behind the header: of the files that are cut, seeded
damages; how many a decode of all scans refuses, how many `exact`, how many it alone accepts, and of
those, how many with other pixels than the undamaged file's.

    python -m benchmarks.progressive [--folder DIR] [--n N] [--rounds N] [--least N] [--damages N]
"""

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import thread_time_ns
from typing import NamedTuple

import numpy as np

from benchmarks.fast import PX, SEED, TIMED, save
from harness.corpora import render
from wallclock import jpeg
from wallclock.check import read_header
from wallclock.clock import gc_disabled
from wallclock.errors import ImageError
from wallclock.machine import set_threads
from wallclock.recipe import Limits, Recipe
from wallclock.stages import decode
from wallclock.stages.decode import scans
from wallclock.stages.decode.decoder import Decode, Scaling
from wallclock.stages.pixels import PixelArray
from wallclock.summary import median

#: What libjpeg's jpeg_simple_progression writes, with Cr before Cb.
LIBJPEG = "YCbCr0/1 Y1-5/2 Cr1-63/1 Cb1-63/1 Y6-63/2 Y1-63/1 YCbCr0 Cr1-63 Cb1-63 Y1-63"
_EOI = b"\xff\xd9"
#: The one scale at which something is cut.
_EIGHTH = 8

_Damage = Callable[[bytes, int, random.Random], bytes]


class _File(NamedTuple):
    """A progressive JPEG; `scale`: the denominator at which it is decoded."""

    data: bytes
    script: str
    scale: int


class _Sample(NamedTuple):
    """One file, decoded whole and cut."""

    script: str
    scale: str
    kept: float
    ms_full: float
    ms: float
    has_other_pixels: bool


def main() -> None:
    """Measure, write the tables, print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="JPEGs of your own, in addition")
    parser.add_argument("--n", type=int, default=100, help="synthetic originals")
    parser.add_argument("--rounds", type=int, default=15, help="how often each file is decoded")
    parser.add_argument("--damages", type=int, default=5, help="of each kind, of each file")
    parser.add_argument(
        "--least", type=int, default=4, help="files of a script with rows of its own"
    )
    choices = parser.parse_args()
    set_threads(Recipe("progressive", torch_threads=1), uses_torch=False)
    synthetic = (render.render(SEED, "original", index, 1.0) for index in range(choices.n))
    sets = {"synthetic originals": list(_progressive(synthetic))}
    if choices.folder:
        paths = sorted(choices.folder.rglob("*.jp*g"))
        sets["folder"] = list(_progressive(path.read_bytes() for path in paths))
    rows: list[dict[str, object]] = []
    damage_rows: list[dict[str, object]] = []
    for images, files in sets.items():
        samples = list(_samples(files, choices.rounds))
        rows += [{"images": images, **row} for row in _rows(samples, choices.least)]
        damage_rows += [{"images": images, **row} for row in _damage_rows(files, choices.damages)]
    timed = (*TIMED, "wallclock.jpeg")
    save("progressive", rows, timed)
    save("progressive-damage", damage_rows, timed)


def _progressive(files: Iterable[bytes]) -> Iterator[_File]:
    scaling = Scaling(PX, Recipe.dct_margin)
    decode_jpeg = decode.make("simplejpeg", scales=True)
    for data in files:
        try:
            header = read_header(data, Limits())
            if header.process != "progressive":
                continue
            decode_jpeg(data, _EIGHTH)
        except ImageError:
            continue
        scale = scaling.denominator(header.width, header.height)
        yield _File(data, _script(data), scale)


def _samples(files: Iterable[_File], rounds: int) -> Iterator[_Sample]:
    decode_jpeg = decode.make("simplejpeg", scales=True)
    for data, script, scale in files:
        ways = (_decode_all, _decode_less)
        whole, less = (way(decode_jpeg, data, scale) for way in ways)
        durations: list[list[float]] = [[] for _ in ways]
        with gc_disabled():
            for _ in range(rounds):
                for way, times in zip(ways, durations, strict=True):
                    began = thread_time_ns()
                    way(decode_jpeg, data, scale)
                    times.append((thread_time_ns() - began) / 1e6)
        kept = len(scans.cut(data, scale)) / len(data)
        ms_full, ms = map(median, durations)
        other = not np.array_equal(whole, less)
        yield _Sample(script, f"1/{scale}", kept, ms_full, ms, other)


def _decode_all(decode_jpeg: Decode, data: bytes, scale: int) -> PixelArray:
    return decode_jpeg(data, scale)


def _decode_less(decode_jpeg: Decode, data: bytes, scale: int) -> PixelArray:
    return decode_jpeg(scans.cut(data, scale), scale)


def _script(data: bytes) -> str:
    names: dict[int, str] = {}
    script = []
    for marker, _, start, end in jpeg.segments(data):
        if marker == jpeg.SOF_PROGRESSIVE:
            names = dict(zip(data[start + 8 : end : 3], ("Y", "Cb", "Cr"), strict=False))
        elif marker == jpeg.SOS:
            first, last, bits = data[end - 3 : end]
            band = f"{first}-{last}" if last else "0"
            left = f"/{bits & 15}" if bits & 15 else ""
            script.append("".join(names[i] for i in data[start + 3 : end - 3 : 2]) + band + left)
    named = " ".join(script)
    return "libjpeg" if named == LIBJPEG else named


def _rows(samples: Sequence[_Sample], least: int) -> Iterator[dict[str, object]]:
    """A row for each script and scale, the most frequent first; the others; then all."""
    counts = Counter((sample.script, sample.scale) for sample in samples)
    groups: dict[tuple[str, str], list[_Sample]] = {}
    for key, n in counts.most_common():
        members = [sample for sample in samples if (sample.script, sample.scale) == key]
        group = key if n >= least else ("others", key[1])
        groups.setdefault(group, []).extend(members)
    groups["all", "all"] = list(samples)
    for (script, scale), members in groups.items():
        yield {"script": script, "scale": scale, **_row(members)}


def _row(samples: Sequence[_Sample]) -> dict[str, object]:
    return {
        "n_images": len(samples),
        "n_cut": sum(sample.kept < 1 for sample in samples),
        "bytes_kept": median([sample.kept for sample in samples]),
        "cpu_ms_full": median([sample.ms_full for sample in samples]),
        "cpu_ms": median([sample.ms for sample in samples]),
        "speedup": median([sample.ms_full / sample.ms for sample in samples]),
        "speedup_of_all": sum(s.ms_full for s in samples) / sum(s.ms for s in samples),
        "n_other_pixels": sum(sample.has_other_pixels for sample in samples),
        "origin": "measured",
    }


def _damage_rows(files: Iterable[_File], n: int) -> Iterator[dict[str, object]]:
    """A row for each kind of damage, of the files that are cut at 1/8."""
    is_cut = [data for data, _, _ in files if scans.cut(data, _EIGHTH) is not data]
    for kind, damage in _DAMAGES.items():
        counts: Counter[str] = Counter()
        for seed, data in enumerate(is_cut):
            rng, sound = random.Random(seed), _delivered(data, "full")
            header = data.index(b"\xff\xda")
            for _ in range(n):
                damaged = damage(data, header, rng)
                full, exact = (_delivered(damaged, mode) for mode in ("full", "exact"))
                counts["refused by full"] += full is None
                counts["refused by exact"] += exact is None
                counts["missed"] += full is None and exact is not None
                counts["other"] += full is None and not _are_equal(exact, sound)
        yield {
            "damage": kind,
            "n": n * len(is_cut),
            "n_refused_full": counts["refused by full"],
            "n_refused_exact": counts["refused by exact"],
            "n_missed": counts["missed"],
            "n_missed_other_pixels": counts["other"],
            "origin": "measured",
        }


def _delivered(data: bytes, mode: str) -> "PixelArray | None":
    """The image at 1/8 as the loader decodes it; None: it refuses the file."""
    try:
        read_header(data, Limits())
        less = scans.cut(data, _EIGHTH) if mode == "exact" else data
        return decode.make("simplejpeg", scales=True)(less, _EIGHTH)
    except ImageError:
        return None


def _are_equal(pixels: "PixelArray | None", sound: "PixelArray | None") -> bool:
    """Whether an image is that of the undamaged file; one that is refused counts as that."""
    return pixels is None or (sound is not None and np.array_equal(pixels, sound))


def _with_noise(data: bytes, header: int, rng: random.Random) -> bytes:
    half = len(data) // 2
    return data[:half] + rng.randbytes(len(data) - half - len(_EOI)) + _EOI


def _with_another_byte(data: bytes, header: int, rng: random.Random) -> bytes:
    at = rng.randrange(header, len(data) - len(_EOI))
    other = (data[at] + rng.randrange(1, 256)) % 256
    return data[:at] + bytes([other]) + data[at + 1 :]


def _with_zeros(data: bytes, header: int, rng: random.Random) -> bytes:
    at = rng.randrange(header, len(data) - len(_EOI) - 64)
    return data[:at] + bytes(64) + data[at + 64 :]


def _cut_off(data: bytes, header: int, rng: random.Random) -> bytes:
    return data[: rng.randrange(header, len(data) - len(_EOI))]


def _cut_off_and_ended(data: bytes, header: int, rng: random.Random) -> bytes:
    return _cut_off(data, header, rng) + _EOI


#: Kind → what makes it of a file, of the position of its first scan, and of a generator.
_DAMAGES: Mapping[str, _Damage] = {
    "second half noise": _with_noise,
    "another byte": _with_another_byte,
    "64 zeros": _with_zeros,
    "cut off": _cut_off,
    "cut off with an end marker": _cut_off_and_ended,
}


if __name__ == "__main__":
    main()
