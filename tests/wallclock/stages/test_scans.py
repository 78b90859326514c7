"""Progressive JPEGs cut off early: no pixel changes, and only files that are as usual are cut."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from harness import decoders
from harness.corpora.manifest import Item, Manifest
from harness.engines.pipeline import load_stages
from tests import making
from wallclock import jpeg
from wallclock.check import validate
from wallclock.errors import ImageError
from wallclock.recipe import PROGRESSIVE, Limits, ModelSpec, Recipe
from wallclock.stages import decode
from wallclock.stages.decode import scans
from wallclock.stages.pixels import PixelArray

SCALING = [name for name, decoder in decoders.DECODERS.items() if decoder.scales]
SIZE = (200, 136)
#: Pillow's subsampling 4:4:4, 4:2:2, 4:2:0; then grayscale.
KINDS = (0, 1, 2, "L")
#: Segments that a decoder reads between two scans.
GRAY_TABLE = b"\xff\xdb\x00\x43\x00" + bytes([9] * 64)
COMMENT = b"\xff\xfe\x00\x04by"
ADOBE = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
INTERVAL = b"\xff\xdd\x00\x04\x00\x01"


class Scan(NamedTuple):
    """One scan; `data` begins with its tables."""

    components: bytes
    first: int
    last: int
    high: int
    data: bytes = b""

    def needs(self, other: "Scan") -> bool:
        """Whether the standard allows it only after `other`, an earlier one of the same file."""
        overlap = self.first <= other.last and other.first <= self.last
        shared = set(self.components) & set(other.components)
        return bool(shared) and (overlap or other.high == other.first == 0)


@cache
def pillow(kind: object, size: tuple[int, int] = SIZE) -> tuple[bytes, list[Scan]]:
    """A picture in libjpeg's script: the header, tables of scans excluded, and the scans."""
    options = {"mode": "L"} if kind == "L" else {"subsampling": kind}
    noise = np.indices(size[::-1]).sum(0)[..., None] * [7, 5, 3] % 32
    pixels = making.picture(*size) ^ noise.astype(np.uint8)
    data = making.encode(pixels, progressive=True, quality=90, **options)
    starts: list[int] = []
    heads: list[Scan] = []
    begins = False
    for marker, at, start, end in jpeg.segments(data):
        if begins:
            starts.append(at)
        begins = marker in (jpeg.SOF_PROGRESSIVE, jpeg.SOS)
        if marker == jpeg.SOS:
            first, last, bits = data[end - 3 : end]
            heads.append(Scan(data[start + 3 : end - 3 : 2], first, last, bits >> 4))
    chunks = [data[begin:end] for begin, end in pairwise(starts)]
    script = [scan._replace(data=chunk) for scan, chunk in zip(heads, chunks, strict=True)]
    return data[: starts[0]], script


def join(header: bytes, script: Sequence[Scan]) -> bytes:
    return header + b"".join(scan.data for scan in script) + b"\xff\xd9"


@st.composite
def scripts(draw: st.DrawFn) -> tuple[bytes, list[Scan]]:
    """A picture whose scans come in any order that the standard allows."""
    header, script = pillow(draw(st.sampled_from(KINDS)))
    rank = draw(st.permutations(range(len(script))))
    left = list(range(len(script)))
    ordered: list[Scan] = []
    while left:
        ready = (i for i in left if not any(script[i].needs(script[j]) for j in left if j < i))
        chosen = min(ready, key=rank.__getitem__)
        left.remove(chosen)
        ordered.append(script[chosen])
    return header, ordered


def cut(data: bytes, scale: int = 8) -> bytes:
    """Cut however little that drops."""
    with patch.object(scans, "_LEAST_DROPPED", 0):
        return scans.cut(data, scale)


@given(scripts())
def test_no_pixel_changes(file: tuple[bytes, list[Scan]]) -> None:
    data, less = join(*file), cut(join(*file))
    for name in SCALING:
        decoder = decode.make(name, scales=True)
        assert np.array_equal(decoder(less, 8), decoder(data, 8)), name


@given(scripts())
def test_a_cut_file_is_whole(file: tuple[bytes, list[Scan]]) -> None:
    """It ends at a scan, is as valid as before and cannot be cut again."""
    header, script = file
    less = cut(join(*file))
    assert less in [join(header, script[:n]) for n in range(1, len(script) + 1)]
    assert validate(less, Limits()).process == "progressive"
    assert cut(less) == less


# Of libjpeg's 10 scans, 6 for grayscale. Subsampled chroma is 2 x 2 at 1/8, which takes its last
# refinements: the scan before Y's.
@pytest.mark.parametrize(("kind", "kept"), [(0, 7), (1, 7), (2, 9), ("L", 5)])
def test_scans_kept_of_the_usual_script(kind: object, kept: int) -> None:
    header, script = pillow(kind)
    data = join(header, script)
    assert cut(data) == join(header, script[:kept])
    assert all(cut(data, scale) is data for scale in (1, 2, 4))


def test_the_coefficients_that_smoothing_asks_for_have_been_there() -> None:
    """1 to 9: with DC and 1 to 5 alone, another version of libjpeg might change the DC."""
    header, script = pillow("L")
    ordered = [script[number] for number in (0, 1, 4, 2, 3, 5)]
    assert [(scan.first, scan.last) for scan in ordered[:4]] == [(0, 0), (1, 5), (0, 0), (6, 63)]
    assert cut(join(header, ordered)) == join(header, ordered[:4])


def test_too_little_is_not_dropped() -> None:
    data = join(*pillow(2))
    share = 1 - len(cut(data)) / len(data)
    for least, is_cut in ((share - 0.01, True), (share + 0.01, False)):
        with patch.object(scans, "_LEAST_DROPPED", least):
            assert (scans.cut(data, 8) is not data) == is_cut


def test_the_second_of_two_pictures_is_seen() -> None:
    """All scans of a gray area, then all of a picture, in one frame: decoders show the latter."""
    gray = np.full((SIZE[1], SIZE[0], 3), 128, np.uint8)
    flat = making.encode(gray, progressive=True, quality=90, subsampling=2)
    header, picture = pillow(2)
    data = header + flat[len(header) : -2] + join(b"", picture)
    decoder = decode.make("simplejpeg", scales=True)
    assert decoder(data, 8).std() > 10
    assert np.array_equal(decoder(cut(data), 8), decoder(data, 8))
    assert cut(data) is data


def header_of(scan: Scan) -> tuple[int, int]:
    """Where the header of a scan begins behind its tables and its length, and where it ends."""
    at = scan.data.index(b"\xff\xda")
    return at + 4, at + 2 + int.from_bytes(scan.data[at + 2 : at + 4], "big")


def with_header(scan: Scan, header: bytes) -> Scan:
    """With another header, its length excluded."""
    begin, end = header_of(scan)
    length = (2 + len(header)).to_bytes(2, "big")
    return scan._replace(data=scan.data[: begin - 2] + length + header + scan.data[end:])


def edited(scan: Scan, changes: dict[int, int]) -> Scan:
    """With other bytes in its header: number, ids and tables of components; first, last, bits."""
    begin, end = header_of(scan)
    header = bytearray(scan.data[begin:end])
    for at, value in changes.items():
        header[at] = value
    return with_header(scan, bytes(header))


def together(scan: Scan, other: Scan) -> Scan:
    """A scan of two components: the data of the first alone."""
    ids = [scan.components[0], other.components[0]]
    band = [scan.first, scan.last, scan.high << 4]
    return with_header(scan, bytes([2, min(ids), 0, max(ids), 0, *band]))


def without_data(scan: Scan) -> Scan:
    """Only its tables and its header."""
    return scan._replace(data=scan.data[: header_of(scan)[1]])


def behind(scan: Scan, more: bytes) -> Scan:
    return scan._replace(data=scan.data + more)


def changed(script: list[Scan], number: int, scan: Scan) -> list[Scan]:
    return [*script[:number], scan, *script[number + 1 :]]


#: What may be unusual about a script of which the first 7 of 10 scans are needed.
UNUSUAL: dict[str, Callable[[list[Scan]], list[Scan]]] = {
    "a scan is missing": lambda script: script[:-1],
    "a refinement is repeated": lambda script: [*script, script[-1]],
    "a first scan is repeated": lambda script: [*script, script[1]],
    "a first scan is repeated at once": lambda script: [script[0], *script],
    "a refinement comes before its scan": lambda script: [*script[:3], script[9], *script[3:9]],
    "AC come before DC": lambda script: [script[1], script[0], *script[2:]],
    "bits are skipped": lambda script: [*script[:5], *script[6:9], edited(script[9], {-1: 0x20})],
    "bits are sent again": lambda script: [*script[:9], edited(script[9], {-1: 0x11})],
    "more bits than there are": lambda script: [*script[:9], edited(script[9], {-1: 0x0E})],
    "DC with AC": lambda script: changed(script, 6, edited(script[6], {-2: 63})),
    "AC of no coefficient": lambda script: [*script, edited(script[9], {-3: 9, -2: 8})],
    "AC beyond the last": lambda script: [*script[:9], edited(script[9], {-2: 64})],
    "AC of two components": lambda script: [*script[:7], together(script[7], script[8]), script[9]],
    "no component": lambda script: [*script, with_header(script[9], bytes(4))],
    "an empty header": lambda script: [*script, with_header(script[9], b"")],
    "another number of components": lambda script: [*script, edited(script[9], {0: 2})],
    "a longer header": lambda script: [*script[:9], with_header(script[9], b"\1\1\0ab\1\77\x10")],
    "a component of no frame": lambda script: changed(script, 7, edited(script[7], {1: 99})),
    "a component twice": lambda script: changed(script, 6, edited(script[6], {3: 1})),
    "components out of order": lambda script: changed(script, 6, edited(script[6], {1: 2, 3: 1})),
    "a scan is empty": lambda script: changed(script, 8, without_data(script[8])),
    "a restart marker": lambda script: changed(script, 8, behind(script[8], b"\xff\xd0a")),
    "a quantizer": lambda script: changed(script, 8, behind(script[8], GRAY_TABLE)),
    "a comment": lambda script: changed(script, 8, behind(script[8], COMMENT)),
    "another colour space": lambda script: changed(script, 0, behind(script[0], ADOBE)),
    "restart intervals": lambda script: changed(script, 8, behind(script[8], INTERVAL)),
    "another image": lambda script: changed(script, 8, behind(script[8], b"\xff\xd8")),
    "bytes behind the end": lambda script: [*script[:9], behind(script[9], b"\xff\xd9a")],
    "bytes behind a table": lambda script: changed(
        script, 9, script[9]._replace(data=script[9].data.replace(b"\xff\xda", b"a\xff\xda"))
    ),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_an_unusual_script_is_not_cut(what: str) -> None:
    header, script = pillow(0)
    assert cut(join(header, script)) == join(header, script[:7])
    data = join(header, UNUSUAL[what](script))
    assert cut(data) is data


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (4, 12),  # bits of a sample
        (9, 4),  # components
        (11, 0),  # sampling factors
        (11, 0x51),
        (13, 1),  # the id of the second component
    ],
)
def test_an_odd_frame_is_not_cut(at: int, value: int) -> None:
    header, script = pillow(0)
    frame = bytearray(header)
    frame[making.frame_at(header) + at] = value
    data = join(bytes(frame), script)
    assert cut(data) is data


def test_an_odd_header_is_not_cut() -> None:
    """Restart intervals, stray bytes, a second frame, none, and frames without components."""
    header, script = pillow(0)
    at = making.frame_at(header)
    frame = header[at:]
    more = [INTERVAL, b"a", b"\xff\xd8", frame, frame.replace(b"\xff\xc2", b"\xff\xc1")]
    odd = [header[:at] + odd + header[at:] for odd in more] + [header + odd for odd in more]
    none = b"\xff\xc2\x00\x08" + frame[4:9] + b"\x00"
    short = frame[:3] + bytes([frame[3] - 2]) + frame[4 : 2 + frame[3] - 2]
    for start in [*odd, header[:at], header[:at] + none, header[:at] + short]:
        assert cut(join(start, script)) == join(start, script)


@given(st.data(), st.sampled_from(KINDS))
def test_any_bytes(data: st.DataObject, kind: object) -> None:
    """Of damaged scans: what `full` accepts has the same pixels cut; and nothing is raised."""
    header, script = pillow(kind)
    sound = bytearray(join(header, script))
    spots = st.tuples(st.integers(len(header), len(sound) - 1), st.integers(0, 255))
    for at, value in data.draw(st.lists(spots, max_size=8)):
        sound[at] = value
    damaged = bytes(sound[: data.draw(st.integers(len(header), len(sound)) | st.just(len(sound)))])
    less = cut(damaged)
    assert less is damaged or (less.endswith(b"\xff\xd9") and damaged.startswith(less[:-2]))
    decoder = decode.make("simplejpeg", scales=True)
    with suppress(ImageError):
        assert np.array_equal(decoder(damaged, 8), decoder(less, 8))


@given(st.data())
def test_any_bytes_of_the_header(data: st.DataObject) -> None:
    sound = bytearray(join(*pillow(data.draw(st.sampled_from(KINDS)))))
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, 800), st.integers(0, 255)))):
        sound[at] = value
    damaged = bytes(sound)
    less = cut(damaged)
    assert less is damaged or (less.endswith(b"\xff\xd9") and damaged.startswith(less[:-2]))
    baseline = making.jpeg(*SIZE)
    assert cut(baseline) is baseline


def with_noise(data: bytes, seed: int) -> bytes:
    """The second half is noise, but for the end-of-image marker."""
    half = len(data) // 2
    return data[:half] + np.random.default_rng(seed).bytes(len(data) - half - 2) + b"\xff\xd9"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_whose_second_half_is_noise_is_not_cut(kind: object, seed: int) -> None:
    data = with_noise(join(*pillow(kind)), seed)
    assert cut(data) is data


def decode_by_recipe(root: Path, listed: bytes, progressive: str, data: bytes = b"") -> PixelArray:
    """A file as the stages of a recipe decode it; `data`: what is there once it is listed."""
    item = Item("a", "a.jpg", len(data or listed)).with_header(validate(listed, Limits()))
    (root / "a.jpg").write_bytes(data or listed)
    recipe = Recipe("r", "simplejpeg", dct_scale="auto", dct_margin=1.0, progressive=progressive)
    manifest = Manifest("folder", "original", root, (item,))
    stages = load_stages(recipe, ModelSpec("null", "none", input_px=17), manifest)
    return stages.decode(item, stages.read(item))


@pytest.mark.parametrize("progressive", PROGRESSIVE)
def test_in_a_pipeline(progressive: str, tmp_path: Path) -> None:
    for data in (join(*pillow(0)), making.jpeg(*SIZE)):
        pixels = decode.make("simplejpeg", scales=True)(data, 8)
        assert np.array_equal(decode_by_recipe(tmp_path, data, progressive), pixels)


@pytest.mark.parametrize("progressive", PROGRESSIVE)
def test_a_file_whose_second_half_is_noise_is_refused(progressive: str, tmp_path: Path) -> None:
    """By `exact` too, though that half is what it drops."""
    data = join(*pillow(0))
    assert len(cut(data)) < len(data) / 2
    with pytest.raises(ImageError):
        decode_by_recipe(tmp_path, data, progressive, with_noise(data, 0))


@pytest.mark.parametrize("instead", [bytes(400) + b"\xff\xd9", b"\xff\xd9"])
def test_damage_that_exact_does_not_see_changes_no_pixel(instead: bytes, tmp_path: Path) -> None:
    """Zeros in the last scan, or its end missing: `full` finds them."""
    data = join(*pillow(0))
    damaged = data[:-500] + instead
    with pytest.raises(ImageError):
        decode_by_recipe(tmp_path, data, "full", damaged)
    exact = decode_by_recipe(tmp_path, data, "exact", damaged)
    assert np.array_equal(exact, decode_by_recipe(tmp_path, data, "full"))


def check_photo(data: bytes) -> bool:
    """That no pixel of a file depends on what is dropped; whether something is."""
    decoder, less = decode.make("simplejpeg", scales=True), cut(data)
    assert np.array_equal(decoder(less, 8), decoder(data, 8))
    noise = with_noise(data, len(data))
    # Of so much noise the chance that no two bytes look like a marker is below 1e-6.
    assert len(data) < 8000 or cut(noise) is noise
    return less is not data


@pytest.mark.slow
@pytest.mark.parametrize("quality", [3, 10, 20, 30, 50, 75, 95])
def test_photos_of_any_quality(quality: int, shared_images: Path) -> None:
    n_cut = 0
    for path in sorted((shared_images / "photos").glob("*.jpg")):
        with Image.open(path) as image:
            image.draft("RGB", (640, 640))
            pixels = np.asarray(image.convert("RGB"))
        for subsampling in (0, 2):
            n_cut += check_photo(
                making.encode(pixels, quality=quality, subsampling=subsampling, progressive=True)
            )
    assert n_cut > 500


@pytest.mark.slow
def test_progressive_photos_as_they_are(shared_images: Path) -> None:
    files = (path.read_bytes() for path in sorted((shared_images / "photos").glob("*.jpg")))
    sound = [data for data in files if b"\xff\xc2" in data]
    decoder = decode.make("simplejpeg", scales=True)
    for data in sound:
        assert np.array_equal(decoder(cut(data), 8), decoder(data, 8))
    assert sum(cut(data) is not data for data in sound) >= 20
